//! The state of the strategies for codes, in SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use shortlink_core::codes::numbering::{CodeKey, Numbering};
use shortlink_core::link::Link;
use shortlink_core::ports::{CodeStore, StoreError};
use sqlx::sqlite::SqliteConnection;
use vocabulary::Code;

use super::SqliteStore;
use super::links::id_of;
use super::writer::Write;
use crate::shared::usage;

#[async_trait]
impl CodeStore for SqliteStore {
    fn numbering(&self) -> Arc<Numbering> {
        Arc::clone(&self.numbering)
    }

    fn code_key(&self) -> CodeKey {
        self.code_key.clone()
    }

    async fn fill_pool(&self, codes: Vec<Code>) -> Result<u64, StoreError> {
        let numbering = Arc::clone(&self.numbering);
        self.writer.write(FillPool { codes, numbering }).await
    }
}

/// Counts new links, in the transaction that stores them.
pub(super) async fn count_usage(
    connection: &mut SqliteConnection,
    links: impl Iterator<Item = &Link>,
) -> Result<(), sqlx::Error> {
    for ((length, day), links) in usage(links) {
        sqlx::query(
            "INSERT INTO code_usage (length, day, links) VALUES (?1, ?2, ?3) \
             ON CONFLICT (length, day) DO UPDATE SET links = links + excluded.links",
        )
        .bind(length)
        .bind(day)
        .bind(links)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

struct FillPool {
    codes: Vec<Code>,
    numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for FillPool {
    type Output = u64;
    const OPERATION: &'static str = "fill the pool of codes";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let mut rows = Vec::with_capacity(self.codes.len());
        for code in &self.codes {
            rows.push((id_of(&mut *connection, &self.numbering, code).await?, code));
        }
        // Sorted, so that neighbours in the index are looked up in sequence.
        rows.sort_unstable();
        let rows = rows.iter().map(|(id, code)| format!("[{id},\"{code}\"]"));
        let rows: Vec<String> = rows.collect();
        let done = sqlx::query(
            "INSERT INTO code_pool (code, length, status) \
             SELECT value ->> 1, length(value ->> 1), 'unused' FROM json_each(?1) \
             WHERE NOT EXISTS (SELECT 1 FROM links WHERE id = value ->> 0) \
             ON CONFLICT (code) DO NOTHING",
        )
        .bind(format!("[{}]", rows.join(",")))
        .execute(connection)
        .await?;
        Ok(done.rows_affected())
    }
}
