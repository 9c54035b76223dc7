//! The outbox in PostgreSQL.

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::link::Link;
use shortlink_core::ports::{MAX_TOGETHER, OutboxSpan, OutboxStore, Receipt, StoreError, Waiting};

use super::PostgresStore;
use super::codes::{count, counts};
use super::links::find_by_id;
use super::rows::{columns, read};
use super::statements::Statements;
use super::work::Work;
use crate::shared::{failed, spans};
use crate::sql::relaxed;

/// The most rows of the outbox that are read at once; most hold a change of one link or many new
/// links.
const MAX_ROWS: i64 = 256;

#[async_trait]
impl OutboxStore for PostgresStore {
    async fn waiting(&self, since: Timestamp) -> Result<Waiting, StoreError> {
        let is_mine = self.turn.take().await;
        if !is_mine.map_err(failed(ReadWaiting::OPERATION))? {
            return Ok(Waiting::default());
        }
        let waiting = self.run(ReadWaiting { since }).await?;
        self.turn.note_begun(&waiting.receipt).await;
        Ok(waiting)
    }

    async fn settle(&self, receipts: Vec<Receipt>, now: Timestamp) -> Result<(), StoreError> {
        let receipts = &receipts;
        self.transact(Settle { receipts, now }).await?;
        self.turn.note_settled(receipts).await;
        Ok(())
    }
}

/// Maximum number of rows for new links that each cover all links between two. More links share one
/// row with their ids.
const FEW_SPANS: usize = 4;

/// Adds rows: from where, to where, at which revisions, when, and with which ids.
macro_rules! insert {
    ($ids:literal) => {
        concat!(
            "INSERT INTO outbox (first_id, last_id, revision, enqueued_at, ids) \
             SELECT first_id, last_id, revision, $4, ",
            $ids,
            " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) \
             WITH ORDINALITY AS new (first_id, last_id, revision, place) \
             ON CONFLICT (first_id, last_id) DO UPDATE SET \
             revision = greatest(outbox.revision, excluded.revision), \
             enqueued_at = excluded.enqueued_at, applied_at = NULL, ids = excluded.ids"
        )
    };
}

/// Deletes rows of new links: from where, to where.
macro_rules! delete_new {
    ($more:expr) => {
        concat!(
            "DELETE FROM outbox USING unnest($1::bigint[], $2::bigint[]) \
             AS done (first_id, last_id)",
            $more,
            " WHERE outbox.first_id = done.first_id \
             AND outbox.last_id = done.last_id AND outbox.revision = 1"
        )
    };
}

/// The rows for new links: spans, and the ids of the one that has some.
pub(super) struct NewRows {
    /// The spans of all rows; that of the scattered links is the last.
    pub(super) receipt: Receipt,
    scattered: Option<Vec<i64>>,
}

impl NewRows {
    /// The rows for links, given as ids and revisions in the order of the ids.
    pub(super) fn new(links: &[(i64, u64)]) -> Self {
        let (new, others): (Vec<OutboxSpan>, Vec<OutboxSpan>) = spans(links.iter().copied())
            .into_iter()
            .partition(|span| span.revision == 1);
        if new.len() <= FEW_SPANS {
            let receipt = Receipt([new, others].concat());
            return Self {
                receipt,
                scattered: None,
            };
        }
        let ids: Vec<i64> = links
            .iter()
            .filter(|(_, revision)| *revision == 1)
            .map(|(id, _)| *id)
            .collect();
        let mut receipt = Receipt(others);
        receipt.0.push(OutboxSpan {
            first: new[0].first,
            last: new[new.len() - 1].last,
            revision: 1,
        });
        Self {
            receipt,
            scattered: Some(ids),
        }
    }
}

/// Adds new links to the outbox and counts them, in the transaction that stores them; returns those
/// whose id still belongs to a deleted link.
///
/// Only now is this known: if a link is deleted while this transaction waits for its id, the
/// transaction gets the id, but its statement is too old to see that the code is not free yet.
pub(super) async fn enqueue_new(
    connection: &mut Statements<'_>,
    rows: &NewRows,
    links: &[(i64, &Link)],
    now: Timestamp,
) -> Result<Vec<i64>, sqlx::Error> {
    let (firsts, lasts, revisions) = columns_of(rows.receipt.0.iter().copied());
    let ids: Vec<i64> = links.iter().map(|(id, _)| *id).collect();
    let (lengths, days, counts) = counts(links.iter().map(|(_, link)| *link));
    let statement = concat!(
        "WITH waiting AS (",
        insert!("CASE WHEN place = cardinality($1) THEN $5::bigint[] END"),
        "), counted AS (",
        count!("$7", "$8", "$9"),
        ") SELECT id FROM removed_links WHERE id = ANY($6::bigint[])"
    );
    sqlx::query_scalar(statement)
        .bind(firsts)
        .bind(lasts)
        .bind(revisions)
        .bind(now.as_millisecond())
        .bind(rows.scattered.as_deref())
        .bind(ids)
        .bind(lengths)
        .bind(days)
        .bind(counts)
        .fetch_all(connection)
        .await
}

/// Deletes rows that this transaction has inserted for links that it does not store after all.
pub(super) async fn withdraw(
    connection: &mut Statements<'_>,
    spans: &[OutboxSpan],
) -> Result<(), sqlx::Error> {
    let (firsts, lasts, _) = columns_of(spans.iter().copied());
    sqlx::query(delete_new!(""))
        .bind(firsts)
        .bind(lasts)
        .execute(connection)
        .await?;
    Ok(())
}

/// The first ids, the last ids and the revisions.
fn columns_of(spans: impl Iterator<Item = OutboxSpan>) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
    let columns = spans.map(|span| (span.first, span.last, span.revision as i64));
    columns.collect()
}

struct ReadWaiting {
    since: Timestamp,
}

#[async_trait]
impl Work for ReadWaiting {
    type Output = Waiting;
    const OPERATION: &'static str = "read the outbox";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Waiting, sqlx::Error> {
        // Two statements, so that each reads no further than its limit.
        let changes = sqlx::query_as(
            "SELECT first_id, last_id, revision, ids FROM outbox \
             WHERE revision > 1 AND enqueued_at <= $1 AND applied_at IS NULL \
             ORDER BY enqueued_at, first_id, last_id LIMIT $2",
        );
        let creations = sqlx::query_as(
            "SELECT first_id, last_id, revision, ids FROM outbox \
             WHERE revision = 1 AND enqueued_at <= $1 AND applied_at IS NULL \
             ORDER BY first_id, last_id LIMIT $2",
        );
        let mut waiting = Waiting::default();
        for query in [changes, creations] {
            let spans: Vec<(i64, i64, i64, Option<Vec<i64>>)> = query
                .bind(self.since.as_millisecond())
                .bind(MAX_ROWS)
                .fetch_all(&mut *connection)
                .await?;
            let singles = spans.iter().filter(|(first, last, ..)| first == last);
            let mut singles =
                find_by_id(connection, singles.map(|(first, ..)| *first).collect()).await?;
            for (first, last, revision, ids) in spans {
                if waiting.links.len() >= MAX_TOGETHER {
                    return Ok(waiting);
                }
                // A single link may have changed since its row was read: its latest state is
                // published. A row of new links waits for their first revision.
                let mut revision = revision.unsigned_abs();
                if first == last {
                    if let Some(link) = singles.remove(&first) {
                        revision = revision.max(link.revision);
                        waiting.links.push(link);
                    }
                } else if let Some(ids) = ids {
                    let links = find_by_id(connection, ids).await?;
                    waiting.links.extend(links.into_values());
                } else {
                    let links = find_between(connection, first, last).await?;
                    waiting.links.extend(links);
                }
                waiting.receipt.0.push(OutboxSpan {
                    first,
                    last,
                    revision,
                });
            }
        }
        Ok(waiting)
    }
}

async fn find_between(
    connection: &mut Statements<'_>,
    first: i64,
    last: i64,
) -> Result<Vec<Link>, sqlx::Error> {
    let rows = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM links WHERE id BETWEEN $1 AND $2"
    ))
    .bind(first)
    .bind(last)
    .fetch_all(connection)
    .await?;
    rows.iter().map(read).collect()
}

struct Settle<'a> {
    receipts: &'a [Receipt],
    now: Timestamp,
}

#[async_trait]
impl Work for Settle<'_> {
    type Output = ();
    const OPERATION: &'static str = "settle the outbox";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<(), sqlx::Error> {
        let spans = self.receipts.iter().flat_map(|receipt| &receipt.0);
        let mut spans: Vec<OutboxSpan> = spans.copied().collect();
        // All transactions settle rows in the same order.
        spans.sort_unstable_by_key(|span| (span.first, span.last));
        let are_new = |span: &&OutboxSpan| span.revision == 1;
        let (firsts, lasts, _) = columns_of(spans.iter().filter(are_new).copied());
        if !firsts.is_empty() {
            sqlx::query(delete_new!(concat!(", ", relaxed!())))
                .bind(firsts)
                .bind(lasts)
                .execute(&mut *connection)
                .await?;
        }
        let changes = spans.iter().filter(|span| !are_new(span));
        let (firsts, lasts, revisions) = columns_of(changes.copied());
        if !firsts.is_empty() {
            sqlx::query(concat!(
                "UPDATE outbox SET applied_at = $4 \
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) \
                 AS done (first_id, last_id, revision), ",
                relaxed!(),
                " WHERE outbox.first_id = done.first_id \
                 AND outbox.last_id = done.last_id AND outbox.revision <= done.revision \
                 AND outbox.applied_at IS NULL"
            ))
            .bind(firsts)
            .bind(lasts)
            .bind(revisions)
            .bind(self.now.as_millisecond())
            .execute(connection)
            .await?;
        }
        Ok(())
    }
}
