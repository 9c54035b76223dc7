//! Storage of the outcomes of idempotent requests.

use jiff::Timestamp;
use vocabulary::Code;

use super::Created;
use crate::link::Link;

/// Names a chunk of an idempotent request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkKey {
    /// The id of the API key that it was sent with.
    pub key_id: String,
    /// The client's key for the request.
    pub idempotency_key: String,
    /// The part of the request, from 0.
    pub chunk: u32,
}

/// The outcome of a row of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    /// A link was created.
    Link(Code),
    /// No link was created, for the reason that was returned.
    Problem(String),
    /// Nothing yet: the code that was drawn was taken, or a quota was used up.
    Pending,
}

/// Rows of an idempotent request, and their outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The SHA-256 of the request's chunk.
    pub digest: [u8; 32],
    /// The outcome of each row.
    pub rows: Vec<RowOutcome>,
}

/// A chunk to be stored, with its links.
#[derive(Clone, Debug)]
pub struct NewChunk {
    /// The chunk's key.
    pub key: ChunkKey,
    /// The chunk to be stored, the rows of the links included.
    pub chunk: Chunk,
    /// The chunk that is stored now; `None` for none. Another one there prevents the write.
    pub before: Option<Chunk>,
    /// The links to be created.
    pub links: Vec<Link>,
    /// The row of each link.
    pub places: Vec<usize>,
    /// The time of the write.
    pub now: Timestamp,
}

/// The outcome of an attempt to store a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkCreated {
    /// The chunk is stored with its links, except those whose codes are taken or whose quota is used
    /// up: their rows are pending.
    Created(Created),
    /// Another request was faster; nothing was stored.
    Exists(Chunk),
}
