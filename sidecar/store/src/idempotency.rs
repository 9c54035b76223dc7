//! Outcomes of idempotent requests, for replays.

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::link::Link;
use shortlink_core::ports::{Chunk, ChunkCreated, ChunkKey, NewChunk, RowOutcome, StoreError};

use super::Store;
use super::creation::{Creation, create};
use super::db::Db;
use super::sql::{FOR_UPDATE, sql};
use super::value::{Row, args, invalid};
use crate::texts::{of_outcomes, to_outcomes};

/// Finds a chunk.
const FIND: &[&str] = &["SELECT digest, rows FROM idempotent_chunks \
     WHERE key_id = $1 AND idempotency_key = $2 AND chunk = $3"];

impl Store {
    /// Finds a chunk.
    #[boxed]
    pub async fn find_chunk(&self, key: &ChunkKey) -> Result<Option<Chunk>, StoreError> {
        let values = args![&key.key_id, &key.idempotency_key, key.chunk];
        let operation = "find the outcome of a request";
        self.one(operation, sql!(FIND;), values, read).await
    }

    /// As [`Store::create_links`] for the links of a chunk's rows, and stores the chunk in the same
    /// transaction.
    #[boxed]
    pub async fn create_chunk(&self, new: NewChunk) -> Result<ChunkCreated, StoreError> {
        let creation = self.creation.of(new.links.iter());
        let args = (new, creation);
        self.run_tx("store new links", args, |db, (new, creation)| {
            Box::pin(create_chunk(db, new, creation))
        })
        .await
    }

    /// Deletes chunks that were stored before a moment; returns their number.
    #[boxed]
    pub async fn forget_chunks(&self, before: Timestamp) -> Result<u64, StoreError> {
        let sql = sql!("DELETE FROM idempotent_chunks WHERE created_at < $1");
        self.run("forget what became of old requests", sql, args![before])
            .await
    }
}

async fn create_chunk(
    db: &mut Db<'_>,
    new: &NewChunk,
    creation: &Creation,
) -> Result<ChunkCreated, sqlx::Error> {
    let present = lock(db, new).await?;
    let is_new = present.is_none();
    if present != new.before
        && let Some(present) = present
    {
        return Ok(ChunkCreated::Exists(present));
    }
    let links: Vec<&Link> = new.links.iter().collect();
    let created = create(db, &links, creation).await?;
    if !is_new || !created.taken.is_empty() || !created.over.is_empty() {
        let mut rows = new.chunk.rows.clone();
        for &taken in &created.taken {
            rows[new.places[taken]] = RowOutcome::Pending;
        }
        for (over, _) in &created.over {
            rows[new.places[*over]] = RowOutcome::Pending;
        }
        let sql = sql!(
            "UPDATE idempotent_chunks SET rows = $4 \
             WHERE key_id = $1 AND idempotency_key = $2 AND chunk = $3"
        );
        let ChunkKey {
            key_id,
            idempotency_key,
            chunk,
        } = &new.key;
        let values = args![key_id, idempotency_key, *chunk, of_outcomes(&rows)];
        db.run(sql, values).await?;
    }
    Ok(ChunkCreated::Created(created))
}

/// Locks the chunk's row and inserts it if it is missing; returns its earlier content.
async fn lock(db: &mut Db<'_>, new: &NewChunk) -> Result<Option<Chunk>, sqlx::Error> {
    let NewChunk {
        key, chunk, now, ..
    } = new;
    loop {
        if insert(db, key, chunk, *now).await? {
            return Ok(None);
        }
        let find = sql!(FIND; FOR_UPDATE);
        let values = args![&key.key_id, &key.idempotency_key, key.chunk];
        // It may be forgotten between the two, and is new then.
        if let Some(present) = db.one(find, values, read).await? {
            return Ok(Some(present));
        }
    }
}

/// Inserts a chunk; returns false if it is there already. PostgreSQL waits for another session that inserts the same.
pub(super) async fn insert(
    db: &mut Db<'_>,
    key: &ChunkKey,
    chunk: &Chunk,
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    let sql = sql!(
        "INSERT INTO idempotent_chunks \
         (key_id, idempotency_key, chunk, digest, rows, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (key_id, idempotency_key, chunk) DO NOTHING"
    );
    let values = args![
        &key.key_id,
        &key.idempotency_key,
        key.chunk,
        chunk.digest.as_slice(),
        of_outcomes(&chunk.rows),
        now,
    ];
    Ok(db.run(sql, values).await? > 0)
}

fn read(row: &Row) -> Result<Chunk, sqlx::Error> {
    Ok(Chunk {
        digest: row.get("digest")?,
        rows: to_outcomes(row.get("rows")?).ok_or_else(|| invalid("rows"))?,
    })
}
