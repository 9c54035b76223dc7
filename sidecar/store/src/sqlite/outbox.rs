//! The outbox in SQLite.

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::ports::{MAX_TOGETHER, OutboxSpan, OutboxStore, Receipt, StoreError, Waiting};
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::links::{columns, read};
use super::writer::Write;
use crate::shared::Operation;

/// The most rows of the outbox that are read at once; most hold a change of one link or many new
/// links.
const MAX_ROWS: u32 = 256;

#[async_trait]
impl OutboxStore for SqliteStore {
    async fn waiting(&self, since: Timestamp) -> Result<Waiting, StoreError> {
        self.read_waiting(since).operation("read the outbox").await
    }

    async fn settle(&self, receipts: Vec<Receipt>, now: Timestamp) -> Result<(), StoreError> {
        self.writer.write(Settle { receipts, now }).await
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
                // A single link may have changed since its row was read: its latest state is
                // published. A row of new links waits for their first revision.
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
    // With `WHERE true`, SQLite does not parse `ON` as the beginning of a join.
    sqlx::query(
        "INSERT INTO outbox (first_id, last_id, revision, enqueued_at) \
         SELECT value ->> 0, value ->> 1, value ->> 2, ?2 FROM json_each(?1) WHERE true \
         ON CONFLICT (first_id, last_id) DO UPDATE SET \
         revision = max(revision, excluded.revision), \
         enqueued_at = excluded.enqueued_at, applied_at = NULL",
    )
    .bind(json(spans))
    .bind(now.as_millisecond())
    .execute(connection)
    .await?;
    Ok(())
}

/// Rows of the outbox as a list of lists, which one statement takes however many they are.
fn json<'a>(spans: impl IntoIterator<Item = &'a OutboxSpan>) -> String {
    let mut text = String::from("[");
    for span in spans {
        let separator = if text.len() > 1 { "," } else { "" };
        let OutboxSpan {
            first,
            last,
            revision,
        } = span;
        text.push_str(&format!("{separator}[{first},{last},{revision}]"));
    }
    text.push(']');
    text
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
        let spans = self.receipts.iter().flat_map(|receipt| &receipt.0);
        let (new, changed): (Vec<_>, Vec<_>) = spans.partition(|span| span.revision == 1);
        if !new.is_empty() {
            sqlx::query(
                "DELETE FROM outbox WHERE revision = 1 AND (first_id, last_id) IN \
                 (SELECT value ->> 0, value ->> 1 FROM json_each(?1))",
            )
            .bind(json(new))
            .execute(&mut *connection)
            .await?;
        }
        if !changed.is_empty() {
            sqlx::query(
                "UPDATE outbox SET applied_at = ?2 FROM (SELECT value ->> 0 AS first, \
                 value ->> 1 AS last, value ->> 2 AS published FROM json_each(?1)) \
                 WHERE first_id = first AND last_id = last AND revision <= published \
                 AND applied_at IS NULL",
            )
            .bind(json(changed))
            .bind(self.now.as_millisecond())
            .execute(&mut *connection)
            .await?;
        }
        Ok(())
    }
}
