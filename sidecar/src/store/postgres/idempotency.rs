//! What became of requests that may be sent again, in PostgreSQL.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Postgres, Row as _};

use super::PostgresStore;
use super::creation::create;
use super::statements::Statements;
use super::work::Work;
use crate::core::codes::numbering::Numbering;
use crate::core::link::Link;
use crate::core::ports::{
    Chunk, ChunkCreated, ChunkKey, IdempotencyStore, NewChunk, RowOutcome, StoreError,
};
use crate::store::shared::invalid;
use crate::store::texts::{of_outcomes, to_outcomes};

#[async_trait]
impl IdempotencyStore for PostgresStore {
    async fn find_chunk(&self, key: &ChunkKey) -> Result<Option<Chunk>, StoreError> {
        self.run(FindChunk { key }).await
    }

    async fn create_chunk(&self, new: NewChunk) -> Result<ChunkCreated, StoreError> {
        let create = CreateChunk {
            new: &new,
            numbering: &self.numbering,
        };
        self.transact(create).await
    }

    async fn forget_chunks(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.run(ForgetChunks { before }).await
    }
}

/// Finds a chunk with a statement that takes its key as the first three parameters.
async fn find<'q>(
    connection: &mut Statements<'_>,
    statement: Query<'q, Postgres, PgArguments>,
    key: &'q ChunkKey,
) -> Result<Option<Chunk>, sqlx::Error> {
    let row = statement
        .bind(&key.key_id)
        .bind(&key.idempotency_key)
        .bind(i64::from(key.chunk))
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let digest: &[u8] = row.try_get("digest")?;
    Ok(Some(Chunk {
        digest: digest
            .try_into()
            .map_err(|_error| invalid("idempotent_chunks", "digest"))?,
        rows: to_outcomes(row.try_get("rows")?)
            .ok_or_else(|| invalid("idempotent_chunks", "rows"))?,
    }))
}

struct FindChunk<'a> {
    key: &'a ChunkKey,
}

#[async_trait]
impl Work for FindChunk<'_> {
    type Output = Option<Chunk>;
    const OPERATION: &'static str = "find what became of a request";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Option<Chunk>, sqlx::Error> {
        let statement = sqlx::query(
            "SELECT digest, rows FROM idempotent_chunks \
             WHERE key_id = $1 AND idempotency_key = $2 AND chunk = $3",
        );
        find(connection, statement, self.key).await
    }
}

struct CreateChunk<'a> {
    new: &'a NewChunk,
    numbering: &'a Numbering,
}

impl CreateChunk<'_> {
    /// Locks the chunk's row, making it if there is none; answers what stood there.
    async fn lock(&self, connection: &mut Statements<'_>) -> Result<Option<Chunk>, sqlx::Error> {
        let NewChunk {
            key, chunk, now, ..
        } = self.new;
        loop {
            // Somebody else who inserts the same is waited for.
            let done = sqlx::query(
                "INSERT INTO idempotent_chunks \
                 (key_id, idempotency_key, chunk, digest, rows, created_at) \
                 VALUES ($1, $2, $3, $4, $5, $6) \
                 ON CONFLICT (key_id, idempotency_key, chunk) DO NOTHING",
            )
            .bind(&key.key_id)
            .bind(&key.idempotency_key)
            .bind(i64::from(key.chunk))
            .bind(chunk.digest.as_slice())
            .bind(of_outcomes(&chunk.rows))
            .bind(now.as_millisecond())
            .execute(&mut *connection)
            .await?;
            if done.rows_affected() > 0 {
                return Ok(None);
            }
            let statement = sqlx::query(
                "SELECT digest, rows FROM idempotent_chunks \
                 WHERE key_id = $1 AND idempotency_key = $2 AND chunk = $3 FOR UPDATE",
            );
            // It may be forgotten between the two, and is new then.
            if let Some(present) = find(connection, statement, key).await? {
                return Ok(Some(present));
            }
        }
    }
}

#[async_trait]
impl Work for CreateChunk<'_> {
    type Output = ChunkCreated;
    const OPERATION: &'static str = "keep new links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<ChunkCreated, sqlx::Error> {
        let new = self.new;
        let present = self.lock(connection).await?;
        let is_new = present.is_none();
        if present != new.before
            && let Some(present) = present
        {
            return Ok(ChunkCreated::Exists(present));
        }
        let links: Vec<&Link> = new.links.iter().collect();
        let created = create(connection, &links, self.numbering).await?;
        if !is_new || !created.taken.is_empty() {
            let mut rows = new.chunk.rows.clone();
            for &taken in &created.taken {
                rows[new.places[taken]] = RowOutcome::Pending;
            }
            sqlx::query(
                "UPDATE idempotent_chunks SET rows = $4 \
                 WHERE key_id = $1 AND idempotency_key = $2 AND chunk = $3",
            )
            .bind(&new.key.key_id)
            .bind(&new.key.idempotency_key)
            .bind(i64::from(new.key.chunk))
            .bind(of_outcomes(&rows))
            .execute(connection)
            .await?;
        }
        Ok(ChunkCreated::Created(created))
    }
}

struct ForgetChunks {
    before: Timestamp,
}

#[async_trait]
impl Work for ForgetChunks {
    type Output = u64;
    const OPERATION: &'static str = "forget what became of old requests";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let done = sqlx::query("DELETE FROM idempotent_chunks WHERE created_at < $1")
            .bind(self.before.as_millisecond())
            .execute(connection)
            .await?;
        Ok(done.rows_affected())
    }
}
