//! Keeping what became of requests that may be sent again.

use async_trait::async_trait;
use jiff::Timestamp;
use vocabulary::Code;

use super::{Created, StoreError};
use crate::core::link::Link;

/// Names a chunk of a request that may be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkKey {
    /// The id of the API key that it was sent with.
    pub key_id: String,
    /// What the client calls the request.
    pub idempotency_key: String,
    /// Which part of the request it is, from 0.
    pub chunk: u32,
}

/// What became of a row of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    /// A link was made.
    Link(Code),
    /// No link was made, for a reason that is kept as it was told.
    Problem(String),
    /// Nothing yet: the code that was drawn was taken.
    Pending,
}

/// Rows of a request that may be sent again, and what became of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The SHA-256 of what was asked for.
    pub digest: [u8; 32],
    /// What became of each row.
    pub rows: Vec<RowOutcome>,
}

/// A chunk to be kept, and links with it.
#[derive(Clone, Debug)]
pub struct NewChunk {
    /// Which chunk.
    pub key: ChunkKey,
    /// What it is to be, the rows of the links included.
    pub chunk: Chunk,
    /// What stands there; `None` when it is new. Nothing is done if that is not so.
    pub before: Option<Chunk>,
    /// The links to be made.
    pub links: Vec<Link>,
    /// The row of each link.
    pub places: Vec<usize>,
    /// When it is kept.
    pub now: Timestamp,
}

/// What became of an attempt to keep a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkCreated {
    /// It is kept, and so are its links but those whose codes are taken: their rows are pending.
    Created(Created),
    /// Somebody was faster; nothing was done.
    Exists(Chunk),
}

/// Keeps what became of requests, so that one that is sent again has no other effect.
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// Finds a chunk.
    async fn find_chunk(&self, key: &ChunkKey) -> Result<Option<Chunk>, StoreError>;

    /// As [`create_links`](super::LinkStore::create_links) for the links of a chunk's rows, and keeps
    /// the chunk in the same transaction.
    async fn create_chunk(&self, new: NewChunk) -> Result<ChunkCreated, StoreError>;

    /// Forgets chunks that were kept before a moment; answers how many.
    async fn forget_chunks(&self, before: Timestamp) -> Result<u64, StoreError>;
}
