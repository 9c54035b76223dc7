//! What became of requests that may be sent again, in SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::Sqlite;
use sqlx::sqlite::SqliteConnection;

use super::creation::create;
use super::writer::Write;
use super::{SqliteStore, invalid};
use crate::core::codes::numbering::Numbering;
use crate::core::ports::{
    Chunk, ChunkCreated, ChunkKey, IdempotencyStore, NewChunk, RowOutcome, StoreError,
};
use crate::store::shared::Operation;
use crate::store::texts::{of_outcomes, to_outcomes};

#[async_trait]
impl IdempotencyStore for SqliteStore {
    async fn find_chunk(&self, key: &ChunkKey) -> Result<Option<Chunk>, StoreError> {
        find(&self.readers, key)
            .operation("find what became of a request")
            .await
    }

    async fn create_chunk(&self, new: NewChunk) -> Result<ChunkCreated, StoreError> {
        let numbering = Arc::clone(&self.numbering);
        self.writer.write(CreateChunk { new, numbering }).await
    }

    async fn forget_chunks(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.writer.write(ForgetChunks { before }).await
    }
}

async fn find<'e>(
    executor: impl sqlx::Executor<'e, Database = Sqlite>,
    key: &ChunkKey,
) -> Result<Option<Chunk>, sqlx::Error> {
    let row: Option<(Vec<u8>, String)> = sqlx::query_as(
        "SELECT digest, rows FROM idempotent_chunks \
         WHERE key_id = ?1 AND idempotency_key = ?2 AND chunk = ?3",
    )
    .bind(&key.key_id)
    .bind(&key.idempotency_key)
    .bind(key.chunk)
    .fetch_optional(executor)
    .await?;
    let Some((digest, rows)) = row else {
        return Ok(None);
    };
    Ok(Some(Chunk {
        digest: digest
            .try_into()
            .map_err(|_error| invalid("idempotent_chunks", "digest"))?,
        rows: to_outcomes(&rows).ok_or_else(|| invalid("idempotent_chunks", "rows"))?,
    }))
}

struct CreateChunk {
    new: NewChunk,
    numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for CreateChunk {
    type Output = ChunkCreated;
    const OPERATION: &'static str = "keep new links";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<ChunkCreated, sqlx::Error> {
        let new = &mut self.new;
        let present = find(&mut *connection, &new.key).await?;
        if present != new.before
            && let Some(present) = present
        {
            return Ok(ChunkCreated::Exists(present));
        }
        let created = create(connection, &new.links, &self.numbering).await?;
        for &taken in &created.taken {
            new.chunk.rows[new.places[taken]] = RowOutcome::Pending;
        }
        sqlx::query(
            "INSERT INTO idempotent_chunks \
             (key_id, idempotency_key, chunk, digest, rows, created_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
             ON CONFLICT (key_id, idempotency_key, chunk) DO UPDATE SET rows = excluded.rows",
        )
        .bind(&new.key.key_id)
        .bind(&new.key.idempotency_key)
        .bind(new.key.chunk)
        .bind(new.chunk.digest.as_slice())
        .bind(of_outcomes(&new.chunk.rows))
        .bind(new.now.as_millisecond())
        .execute(connection)
        .await?;
        Ok(ChunkCreated::Created(created))
    }
}

struct ForgetChunks {
    before: Timestamp,
}

#[async_trait]
impl Write for ForgetChunks {
    type Output = u64;
    const OPERATION: &'static str = "forget what became of old requests";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let done = sqlx::query("DELETE FROM idempotent_chunks WHERE created_at < ?1")
            .bind(self.before.as_millisecond())
            .execute(connection)
            .await?;
        Ok(done.rows_affected())
    }
}
