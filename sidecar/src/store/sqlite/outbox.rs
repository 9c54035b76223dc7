//! The outbox in SQLite.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::sqlite::SqliteConnection;

use super::links::{columns, read};
use super::writer::Write;
use super::{SqliteStore, failed};
use crate::domain::ports::{MAX_TOGETHER, OutboxSpan, OutboxStore, Receipt, StoreError, Waiting};

/// The most rows of the outbox that are read at once; most hold a change of one link or many new
/// links.
const MAX_ROWS: u32 = 256;

#[async_trait]
impl OutboxStore for SqliteStore {
    async fn waiting(&self, since: Timestamp) -> Result<Waiting, StoreError> {
        self.read_waiting(since)
            .await
            .map_err(failed("read the outbox"))
    }

    async fn count_waiting(&self, since: Timestamp, most: u32) -> Result<u32, StoreError> {
        sqlx::query_scalar(
            "SELECT count(*) FROM (SELECT 1 FROM outbox \
             WHERE enqueued_at <= ?1 AND applied_at IS NULL LIMIT ?2)",
        )
        .bind(since.as_millisecond())
        .bind(most)
        .fetch_one(&self.readers)
        .await
        .map_err(failed("count the outbox"))
    }

    async fn settle(&self, receipts: Vec<Receipt>, now: Timestamp) -> Result<(), StoreError> {
        self.writer.write(Settle { receipts, now }).await
    }

    async fn reopen_applied(&self) -> Result<u64, StoreError> {
        self.writer.write(ReopenApplied).await
    }

    async fn forget_applied(&self, before: Timestamp) -> Result<(), StoreError> {
        self.writer.write(ForgetApplied { before }).await
    }
}

impl SqliteStore {
    async fn read_waiting(&self, since: Timestamp) -> Result<Waiting, sqlx::Error> {
        // Two statements, so that each reads no further than its limit.
        let changes = sqlx::query_as(
            "SELECT first_id, last_id, revision FROM outbox INDEXED BY outbox_changes \
             WHERE revision > 1 AND enqueued_at <= ?1 AND applied_at IS NULL LIMIT ?2",
        );
        let creations = sqlx::query_as(
            "SELECT first_id, last_id, revision FROM outbox NOT INDEXED \
             WHERE revision = 1 AND enqueued_at <= ?1 AND applied_at IS NULL LIMIT ?2",
        );
        let mut waiting = Waiting::default();
        for query in [changes, creations] {
            let spans: Vec<(i64, i64, i64)> = query
                .bind(since.as_millisecond())
                .bind(MAX_ROWS)
                .fetch_all(&self.readers)
                .await?;
            for (first, last, revision) in spans {
                if waiting.links.len() >= MAX_TOGETHER {
                    return Ok(waiting);
                }
                let rows = sqlx::query(concat!(
                    "SELECT ",
                    columns!(),
                    " FROM links WHERE id BETWEEN ?1 AND ?2"
                ))
                .bind(first)
                .bind(last)
                .fetch_all(&self.readers)
                .await?;
                // A single link may have changed since its row was read. What is published is
                // what was read last, and a row of new links waits for their first revision.
                let mut revision = revision.unsigned_abs();
                for row in &rows {
                    let link = read(row)?;
                    if first == last {
                        revision = revision.max(link.revision);
                    }
                    waiting.links.push(link);
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

/// Has links wait to be published, in the transaction that has stored them.
pub(super) async fn enqueue(
    connection: &mut SqliteConnection,
    spans: &[OutboxSpan],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    if spans.is_empty() {
        return Ok(());
    }
    // Codes that were not counted up need a row each: a thousand rows with one statement. SQLite
    // takes `ON` for a join's unless there is a `WHERE`.
    sqlx::query(
        "INSERT INTO outbox (first_id, last_id, revision, enqueued_at) \
         SELECT value ->> 0, value ->> 1, value ->> 2, ?2 FROM json_each(?1) WHERE true \
         ON CONFLICT (first_id, last_id) DO UPDATE SET \
         revision = max(revision, excluded.revision), \
         enqueued_at = excluded.enqueued_at, applied_at = NULL",
    )
    .bind(list(spans.iter()))
    .bind(now.as_millisecond())
    .execute(connection)
    .await?;
    Ok(())
}

/// Spans as SQLite's functions for JSON read them.
fn list<'a>(spans: impl Iterator<Item = &'a OutboxSpan>) -> String {
    let mut list = String::from("[");
    for OutboxSpan {
        first,
        last,
        revision,
    } in spans
    {
        if list.len() > 1 {
            list.push(',');
        }
        list.push_str(&format!("[{first},{last},{revision}]"));
    }
    list.push(']');
    list
}

struct Settle {
    receipts: Vec<Receipt>,
    now: Timestamp,
}

#[async_trait]
impl Write for Settle {
    type Output = ();
    const OPERATION: &'static str = "settle the outbox";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let spans = || self.receipts.iter().flat_map(|receipt| &receipt.0);
        if spans().any(|span| span.revision == 1) {
            sqlx::query(
                "DELETE FROM outbox WHERE revision = 1 AND (first_id, last_id) IN \
                 (SELECT value ->> 0, value ->> 1 FROM json_each(?1))",
            )
            .bind(list(spans().filter(|span| span.revision == 1)))
            .execute(&mut *connection)
            .await?;
        }
        if spans().any(|span| span.revision != 1) {
            sqlx::query(
                "UPDATE outbox SET applied_at = ?2 FROM \
                 (SELECT value ->> 0 AS first, value ->> 1 AS last, value ->> 2 AS confirmed \
                 FROM json_each(?1)) \
                 WHERE first_id = first AND last_id = last AND revision <= confirmed \
                 AND applied_at IS NULL",
            )
            .bind(list(spans().filter(|span| span.revision != 1)))
            .bind(self.now.as_millisecond())
            .execute(connection)
            .await?;
        }
        Ok(())
    }
}

struct ReopenApplied;

#[async_trait]
impl Write for ReopenApplied {
    type Output = u64;
    const OPERATION: &'static str = "have the outbox applied again";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let done = sqlx::query(
            "UPDATE outbox SET applied_at = NULL WHERE revision > 1 AND applied_at IS NOT NULL",
        )
        .execute(connection)
        .await?;
        Ok(done.rows_affected())
    }
}

struct ForgetApplied {
    before: Timestamp,
}

#[async_trait]
impl Write for ForgetApplied {
    type Output = ();
    const OPERATION: &'static str = "clear the outbox";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        sqlx::query("DELETE FROM outbox WHERE revision > 1 AND applied_at < ?1")
            .bind(self.before.as_millisecond())
            .execute(connection)
            .await?;
        Ok(())
    }
}
