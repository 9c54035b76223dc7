//! The outbox: changes that are not yet published to Redis.

use std::collections::HashMap;

use jiff::Timestamp;
use shortlink_core::link::Link;
use shortlink_core::ports::{MAX_TOGETHER, OutboxSpan, Receipt, StoreError, Waiting};

use super::db::Db;
use super::rows::{columns, find_by_id, read};
use super::shared::failed;
use super::sql::{Sql, relaxed, sql, table};
use super::value::{Row, Value, args};
use super::{Engine, Store};

/// The most rows of the outbox that are read at once; most hold a change of one link or many new
/// links.
const MAX_ROWS: u32 = 256;

/// Finds changes. Two statements, so that each reads no further than its limit.
const CHANGES: Sql = sql!(
    "SELECT first_id, last_id, revision, {NULL AS ids|ids} \
     FROM outbox {INDEXED BY outbox_changes }\
     WHERE revision > 1 AND enqueued_at <= $1 AND applied_at IS NULL \
     {|ORDER BY enqueued_at, first_id, last_id }LIMIT $2"
);

/// Finds new links.
const CREATIONS: Sql = sql!(
    "SELECT first_id, last_id, revision, {NULL AS ids|ids} FROM outbox {NOT INDEXED }\
     WHERE revision = 1 AND enqueued_at <= $1 AND applied_at IS NULL \
     {|ORDER BY first_id, last_id }LIMIT $2"
);

/// Has rows that are there already wait again.
pub(super) const WAIT_AGAIN: &str = " ON CONFLICT (first_id, last_id) DO UPDATE SET \
     revision = {max|greatest}(outbox.revision, excluded.revision), \
     enqueued_at = excluded.enqueued_at, applied_at = NULL{|, ids = excluded.ids}";

/// Begins the deletion of rows of new links, given by their [`ends`]; [`DELETED`] ends it.
pub(super) const DELETE: &str = "DELETE FROM outbox \
     {|USING unnest($1::bigint[], $2::bigint[]) AS done (first_id, last_id)}";

/// Ends the deletion of rows of new links.
pub(super) const DELETED: &str = " WHERE {(first_id, last_id) IN \
     (SELECT value ->> 1, value ->> 2 FROM json_each($1))|\
     outbox.first_id = done.first_id AND outbox.last_id = done.last_id} AND outbox.revision = 1";

impl Store {
    /// Links that wait since a moment or longer, some [`MAX_TOGETHER`], changes before new links.
    pub async fn waiting(&self, since: Timestamp) -> Result<Waiting, StoreError> {
        let operation = "read the outbox";
        if let Engine::Postgres(store) = &self.engine
            && !store.turn.take().await.map_err(failed(operation))?
        {
            return Ok(Waiting::default());
        }
        let waiting = self.read(operation, since, |db, since| {
            Box::pin(read_waiting(db, *since))
        });
        let waiting = waiting.await?;
        if let Engine::Postgres(store) = &self.engine {
            store.turn.note_begun(&waiting.receipt).await;
        }
        Ok(waiting)
    }

    /// Records Redis' confirmations at `now`. New links leave the outbox; changes stay, marked as
    /// applied, until they are deleted. A link that has changed again meanwhile stays pending.
    pub async fn settle(&self, receipts: Vec<Receipt>, now: Timestamp) -> Result<(), StoreError> {
        let spans = receipts.iter().flat_map(|receipt| &receipt.0);
        let mut spans: Vec<OutboxSpan> = spans.copied().collect();
        // All transactions settle rows in the same order.
        spans.sort_unstable_by_key(|span| (span.first, span.last));
        self.run_tx("settle the outbox", (spans, now), |db, (spans, now)| {
            Box::pin(settle(db, spans, *now))
        })
        .await?;
        if let Engine::Postgres(store) = &self.engine {
            store.turn.note_settled(&receipts).await;
        }
        Ok(())
    }

    /// Counts the rows that wait since a moment or longer, no further than `most`.
    pub async fn count_waiting(&self, since: Timestamp, most: u32) -> Result<u32, StoreError> {
        let sql = sql!(
            "SELECT count(*) AS waiting FROM (SELECT 1 FROM campaign_outbox \
             WHERE enqueued_at <= $1 AND applied_at IS NULL \
             UNION ALL SELECT 1 FROM outbox \
             WHERE enqueued_at <= $1 AND applied_at IS NULL LIMIT $2) AS waiting"
        );
        let read = |row: &Row| row.get("waiting");
        let values = args![since, most];
        let count = self.one("count the outbox", sql, values, read);
        Ok(count.await?.unwrap_or_default())
    }

    /// Has everything that was applied, campaigns included, wait again; returns the number of rows.
    pub async fn reopen_applied(&self) -> Result<u64, StoreError> {
        self.run_tx("reopen the outbox", (), |db, ()| {
            Box::pin(async move {
                let links = sql!(
                    "UPDATE outbox SET applied_at = NULL \
                     WHERE revision > 1 AND applied_at IS NOT NULL"
                );
                let campaigns = sql!(
                    "UPDATE campaign_outbox SET applied_at = NULL WHERE applied_at IS NOT NULL"
                );
                Ok(db.run(links, args![]).await? + db.run(campaigns, args![]).await?)
            })
        })
        .await
    }

    /// Deletes rows that were applied before a moment.
    pub async fn forget_applied(&self, before: Timestamp) -> Result<(), StoreError> {
        self.run_tx("clear the outbox", before, |db, before| {
            Box::pin(async move {
                let links = sql!("DELETE FROM outbox WHERE revision > 1 AND applied_at < $1");
                db.run(links, args![*before]).await?;
                let campaigns = sql!("DELETE FROM campaign_outbox WHERE applied_at < $1");
                db.run(campaigns, args![*before]).await?;
                Ok(())
            })
        })
        .await
    }
}

async fn read_waiting(db: &mut Db<'_>, since: Timestamp) -> Result<Waiting, sqlx::Error> {
    let mut waiting = Waiting::default();
    for sql in [CHANGES, CREATIONS] {
        let read_span = |row: &Row| {
            let span = OutboxSpan {
                first: row.get("first_id")?,
                last: row.get("last_id")?,
                revision: row.get("revision")?,
            };
            Ok((span, row.find::<Vec<i64>>("ids")?))
        };
        let spans: Vec<_> = db.all(sql, args![since, MAX_ROWS], read_span).await?;
        let singles = spans.iter().filter(|(span, _)| span.first == span.last);
        let singles = singles.map(|(span, _)| span.first).collect();
        let mut singles: HashMap<i64, Link> = find_by_id(db, singles).await?;
        for (mut span, ids) in spans {
            if waiting.links.len() >= MAX_TOGETHER {
                return Ok(waiting);
            }
            // A single link may have changed since its row was read: its latest state is
            // published. A row of new links waits for their first revision.
            if span.first == span.last {
                if let Some(link) = singles.remove(&span.first) {
                    span.revision = span.revision.max(link.revision);
                    waiting.links.push(link);
                }
            } else if let Some(ids) = ids {
                let links: Vec<(i64, Link)> = find_by_id(db, ids).await?;
                waiting
                    .links
                    .extend(links.into_iter().map(|(_, link)| link));
            } else {
                let sql = sql!(
                    "SELECT ",
                    columns!(),
                    " FROM links WHERE id BETWEEN $1 AND $2"
                );
                let between = args![span.first, span.last];
                let links: Vec<Link> = db.all(sql, between, read).await?;
                waiting.links.extend(links);
            }
            waiting.receipt.0.push(span);
        }
    }
    Ok(waiting)
}

/// The values of a row of the outbox: the first id, the last id and the revision.
pub(super) fn values(span: &OutboxSpan) -> [Value<'static>; 3] {
    [span.first.into(), span.last.into(), span.revision.into()]
}

/// The first id and the last id of a row.
pub(super) fn ends(span: &OutboxSpan) -> [Value<'static>; 2] {
    [span.first.into(), span.last.into()]
}

/// Has links wait to be published, in the transaction that has stored them.
pub(super) async fn enqueue(
    db: &mut Db<'_>,
    spans: &[OutboxSpan],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "INSERT INTO outbox (first_id, last_id, revision, enqueued_at) \
         SELECT first_id, last_id, revision, $4 FROM ",
        table!("new": 1 "first_id" "bigint", 2 "last_id" "bigint", 3 "revision" "bigint"),
        " WHERE true",
        WAIT_AGAIN
    );
    db.run_table(sql, spans.iter().map(values), args![now])
        .await?;
    Ok(())
}

async fn settle(db: &mut Db<'_>, spans: &[OutboxSpan], now: Timestamp) -> Result<(), sqlx::Error> {
    let (new, changes): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.revision == 1);
    let delete = sql!(DELETE, "{|, ", relaxed!(), "}", DELETED);
    db.run_table(delete, new.into_iter().map(ends), &[]).await?;
    let update = sql!(
        "UPDATE outbox SET applied_at = $4 FROM ",
        table!("done": 1 "first_id" "bigint", 2 "last_id" "bigint", 3 "revision" "bigint"),
        "{|, ",
        relaxed!(),
        "} WHERE outbox.first_id = done.first_id AND outbox.last_id = done.last_id \
         AND outbox.revision <= done.revision AND outbox.applied_at IS NULL"
    );
    db.run_table(update, changes.into_iter().map(values), args![now])
        .await?;
    Ok(())
}
