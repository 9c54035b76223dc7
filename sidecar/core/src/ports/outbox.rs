//! Storage of the changes that are not yet published to Redis.

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
