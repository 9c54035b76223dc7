//! The outbox: new links that are not yet published to Redis. Changes wait in [`changes`].

use std::collections::HashMap;

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::link::Link;
use shortlink_core::ports::{MAX_TOGETHER, OutboxSpan, Receipt, StoreError, Waiting};

use super::db::Db;
use super::rows::{columns, find_by_id, read};
use super::shared::failed;
use super::sql::{Sql, relaxed, sql, table};
use super::value::{Row, Value, args};
use super::{Engine, Store, changes};

/// The most rows of the outbox that are read at once; most hold a change of one link or many new
/// links.
const MAX_ROWS: u32 = 256;

/// Finds new links: all, or those that were not stored in the last moments by this clock. Another clock's
/// rows may be published twice, which does no harm.
const WAITING: Sql = sql!(
    "SELECT first_id, last_id, {NULL AS ids|ids} FROM outbox {NOT INDEXED }\
     WHERE enqueued_at <= $1 OR enqueued_at > $2 {|ORDER BY first_id, last_id }LIMIT $3"
);

/// Replaces a row of a link whose code was free again.
pub(super) const WAIT_AGAIN: &str = " ON CONFLICT (first_id, last_id) DO UPDATE SET \
     enqueued_at = excluded.enqueued_at{|, ids = excluded.ids}";

/// Begins the deletion of rows of new links, given by their [`ends`]; [`DELETED`] ends it.
pub(super) const DELETE: &str = "DELETE FROM outbox \
     {|USING unnest($1::bigint[], $2::bigint[]) AS done (first_id, last_id)}";

/// Ends the deletion of rows of new links.
pub(super) const DELETED: &str = " WHERE {(first_id, last_id) IN \
     (SELECT value ->> 1, value ->> 2 FROM json_each($1))|\
     outbox.first_id = done.first_id AND outbox.last_id = done.last_id}";

impl Store {
    /// Requests the lease for delivery; returns whether to deliver now. SQLite has one
    /// service, which needs none.
    #[boxed]
    pub async fn take_turn(&self) -> Result<bool, StoreError> {
        match &self.engine {
            Engine::Sqlite(_) => Ok(true),
            Engine::Postgres(store) => {
                let turn = store.turn.take().await;
                turn.map_err(failed("request the lease of the outbox"))
            }
        }
    }

    /// Releases the lease: this process cannot deliver.
    #[boxed]
    pub async fn end_turn(&self) {
        if let Engine::Postgres(store) = &self.engine {
            store.turn.end().await;
        }
    }

    /// Notes that a delivery begins. The process that cannot settle it releases the lease.
    #[boxed]
    pub async fn note_delivery(&self, receipt: &Receipt) {
        if let Engine::Postgres(store) = &self.engine {
            store.turn.note_begun(receipt).await;
        }
    }

    /// Reads new links, some [`MAX_TOGETHER`], which were stored by clocks outside of a span of time.
    #[boxed]
    pub async fn waiting_links(
        &self,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<Waiting, StoreError> {
        self.read("read the outbox", (since, until), |db, (since, until)| {
            Box::pin(read_waiting(db, *since, *until))
        })
        .await
    }
}

async fn read_waiting(
    db: &mut Db<'_>,
    since: Timestamp,
    until: Timestamp,
) -> Result<Waiting, sqlx::Error> {
    let mut waiting = Waiting::default();
    let read_span = |row: &Row| {
        let span = OutboxSpan {
            first: row.get("first_id")?,
            last: row.get("last_id")?,
            revision: 1,
        };
        Ok((span, row.find::<Vec<i64>>("ids")?))
    };
    let values = args![since, until, MAX_ROWS];
    let spans: Vec<_> = db.all(WAITING, values, read_span).await?;
    let singles = spans.iter().filter(|(span, _)| span.first == span.last);
    let singles = singles.map(|(span, _)| span.first).collect();
    let mut singles: HashMap<i64, Link> = find_by_id(db, singles).await?;
    for (span, ids) in spans {
        if waiting.links.len() >= MAX_TOGETHER {
            return Ok(waiting);
        }
        if span.first == span.last {
            waiting.links.extend(singles.remove(&span.first));
        } else if let Some(ids) = ids {
            let links: Vec<(i64, Link)> = find_by_id(db, ids).await?;
            let links = links.into_iter().map(|(_, link)| link);
            waiting.links.extend(links);
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
    Ok(waiting)
}

/// The first id and the last id of a row.
pub(super) fn ends(span: &OutboxSpan) -> [Value<'static>; 2] {
    [span.first.into(), span.last.into()]
}

/// Has links wait to be published, in the transaction that has stored them: new ones here, others as
/// changes.
pub(super) async fn enqueue(
    db: &mut Db<'_>,
    spans: &[OutboxSpan],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let (new, changed): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.revision == 1);
    let sql = sql!(
        "INSERT INTO outbox (first_id, last_id, revision, enqueued_at) \
         SELECT first_id, last_id, 1, $3 FROM ",
        table!("new": 1 "first_id" "bigint", 2 "last_id" "bigint"),
        " WHERE true",
        WAIT_AGAIN
    );
    db.run_table(sql, new.into_iter().map(ends), args![now])
        .await?;
    changes::append(db, changed.into_iter(), now).await
}

/// Deletes rows of new links that are published.
pub(super) async fn remove<'s>(
    db: &mut Db<'_>,
    spans: impl ExactSizeIterator<Item = &'s OutboxSpan>,
) -> Result<(), sqlx::Error> {
    let sql = sql!(DELETE, "{|, ", relaxed!(), "}", DELETED);
    db.run_table(sql, spans.map(ends), &[]).await?;
    Ok(())
}
