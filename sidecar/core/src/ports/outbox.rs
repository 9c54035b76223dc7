//! Storage of the changes that are not yet published to Redis.

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;
use crate::link::Link;

/// Rows of the outbox, as the store names them. They are settled once the links that they stand
/// for are published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt(pub Vec<OutboxSpan>);

/// A row of the outbox: links whose numbers follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxSpan {
    /// The first link's number.
    pub first: i64,
    /// The last link's number.
    pub last: i64,
    /// The revision that was published.
    pub revision: u64,
}

/// Links that wait to be published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Their present state.
    pub links: Vec<Link>,
    /// Their rows in the outbox, at the revisions that the links have.
    pub receipt: Receipt,
}

/// Stores the changes that are not yet published to Redis.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Links that wait since a moment or longer, some [`MAX_TOGETHER`](super::MAX_TOGETHER),
    /// changes before new links.
    async fn waiting(&self, since: Timestamp) -> Result<Waiting, StoreError>;

    /// Records Redis' confirmations at `now`. New links leave the outbox; changes stay, marked as
    /// applied, until they are deleted. A link that has changed again meanwhile stays pending.
    async fn settle(&self, receipts: Vec<Receipt>, now: Timestamp) -> Result<(), StoreError>;
}
