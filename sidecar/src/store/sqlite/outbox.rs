//! The outbox in SQLite.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::sqlite::SqliteConnection;

use super::links::{columns, read};
use super::writer::Write;
use super::{SqliteStore, failed};
use crate::domain::link::Link;
use crate::domain::ports::{OutboxStore, Published, StoreError};

#[async_trait]
impl OutboxStore for SqliteStore {
    async fn waiting(&self, since: Timestamp, limit: u32) -> Result<Vec<Link>, StoreError> {
        // Two statements, so that each reads no further than its limit.
        let changes = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM outbox INDEXED BY outbox_changes CROSS JOIN links USING (code) \
             WHERE outbox.revision > 1 AND enqueued_at <= ?1 AND applied_at IS NULL LIMIT ?2"
        ));
        let creations = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM outbox NOT INDEXED CROSS JOIN links USING (code) \
             WHERE outbox.revision = 1 AND enqueued_at <= ?1 AND applied_at IS NULL LIMIT ?2"
        ));
        let mut links = Vec::new();
        for query in [changes, creations] {
            let missing = limit.saturating_sub(u32::try_from(links.len()).unwrap_or(u32::MAX));
            let rows = query
                .bind(since.as_millisecond())
                .bind(missing)
                .fetch_all(&self.readers)
                .await
                .map_err(failed("read the outbox"))?;
            for row in &rows {
                links.push(read(row).map_err(failed("read the outbox"))?);
            }
        }
        Ok(links)
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

    async fn settle(&self, published: Vec<Published>, now: Timestamp) -> Result<(), StoreError> {
        self.writer.write(Settle { published, now }).await
    }

    async fn reopen_applied(&self) -> Result<u64, StoreError> {
        self.writer.write(ReopenApplied).await
    }

    async fn forget_applied(&self, before: Timestamp) -> Result<(), StoreError> {
        self.writer.write(ForgetApplied { before }).await
    }
}

/// Has a link's present revision wait to be published, in the transaction that has stored it.
pub(super) async fn enqueue(
    connection: &mut SqliteConnection,
    link: &Link,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO outbox (code, revision, enqueued_at) VALUES (?1, ?2, ?3) \
         ON CONFLICT (code) DO UPDATE SET revision = max(revision, excluded.revision), \
         enqueued_at = excluded.enqueued_at, applied_at = NULL",
    )
    .bind(link.code.as_str())
    .bind(link.revision as i64)
    .bind(now.as_millisecond())
    .execute(connection)
    .await?;
    Ok(())
}

struct Settle {
    published: Vec<Published>,
    now: Timestamp,
}

#[async_trait]
impl Write for Settle {
    type Output = ();
    const OPERATION: &'static str = "settle the outbox";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for Published { code, revision } in &self.published {
            let statement = if *revision == 1 {
                sqlx::query("DELETE FROM outbox WHERE code = ?1 AND revision = ?2")
            } else {
                sqlx::query(
                    "UPDATE outbox SET applied_at = ?3 WHERE code = ?1 AND revision <= ?2 \
                     AND applied_at IS NULL",
                )
            };
            let statement = statement.bind(code.as_str()).bind(*revision as i64);
            let statement = if *revision == 1 {
                statement
            } else {
                statement.bind(self.now.as_millisecond())
            };
            statement.execute(&mut *connection).await?;
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
