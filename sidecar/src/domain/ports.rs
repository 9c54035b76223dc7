//! What the domain needs from the world, as traits: somewhere to keep things, and a way to tell
//! Redis.
//!
//! Two stores are meant to fit behind [`Store`], so that it speaks of what is to happen and not
//! of how: which statements, how many in a transaction and on which connection is each store's
//! own affair. A thing that is not there is `Ok(None)`, never an error.

mod upkeep;

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use vocabulary::Code;

use crate::domain::api_key::ApiKey;
use crate::domain::codes::numbering::{CodeKey, Numbering};
use crate::domain::link::{Edit, Link, State};

pub use upkeep::{
    ExpiredPage, ExpiryPlace, Filled, Kept, Page, Place, RecordIndex, Stood, UpkeepStore,
};

/// Decides, inside a store's transaction, what becomes of the link that is there.
pub type Editor = Box<dyn FnOnce(Link) -> Edit + Send>;

/// A place in the listing of links: just behind the link that was made then and has this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// When the link was made.
    pub created_at: Timestamp,
    /// The link's code.
    pub code: Code,
}

/// Which links to list.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// Only links in this state at the moment given.
    pub state: Option<(State, Timestamp)>,
    /// Only links behind this position.
    pub after: Option<Position>,
    /// The most links to answer with.
    pub limit: u32,
}

/// What became of new links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// The places of those that were not kept, in ascending order: their codes are taken.
    pub taken: Vec<usize>,
    /// The others' rows in the outbox.
    pub receipt: Receipt,
}

/// Keeps links. Every method that changes links also puts them into the outbox, in the same
/// transaction, and has made both durable when it returns.
#[async_trait]
pub trait LinkStore: Send + Sync {
    /// Keeps new links, at most [`MAX_TOGETHER`], all that can be kept or, after an error, none.
    async fn create_links(&self, links: Vec<Link>) -> Result<Created, StoreError>;

    /// Finds a link, whatever its state.
    async fn find_link(&self, code: &Code) -> Result<Option<Link>, StoreError>;

    /// Has `editor` decide what becomes of a link and keeps that; nobody else changes the link
    /// meanwhile. A link left unchanged goes into the outbox too, so that whoever asks again for
    /// what has been done already gets it told to Redis again.
    async fn edit_link(&self, code: &Code, editor: Editor) -> Result<Option<Edited>, StoreError>;

    /// Lists links, the latest first, those of one millisecond in an order that stays the same.
    async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError>;
}

/// The most links that are created or published together.
pub const MAX_TOGETHER: usize = 1000;

/// What became of a link that was edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// What was decided.
    pub edit: Edit,
    /// The link's row in the outbox; empty when the edit was refused.
    pub receipt: Receipt,
}

/// Rows of the outbox, as the store names them: whoever has published what they stand for has
/// them settled.
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

/// Keeps what Redis has yet to be told.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Links that wait since a moment or longer, some [`MAX_TOGETHER`], changes before new links.
    async fn waiting(&self, since: Timestamp) -> Result<Waiting, StoreError>;

    /// How many rows wait since a moment or longer, counted no further than `most`.
    async fn count_waiting(&self, since: Timestamp, most: u32) -> Result<u32, StoreError>;

    /// Notes what Redis has confirmed at `now`. New links leave the outbox; changes stay, as
    /// applied, until [`OutboxStore::forget_applied`]. A link that has changed again meanwhile
    /// goes on waiting.
    async fn settle(&self, receipts: Vec<Receipt>, now: Timestamp) -> Result<(), StoreError>;

    /// Has everything that was applied wait again; answers how many that are.
    async fn reopen_applied(&self) -> Result<u64, StoreError>;

    /// Deletes what was applied before a moment.
    async fn forget_applied(&self, before: Timestamp) -> Result<(), StoreError>;
}

/// Keeps what the strategies for codes have to remember.
#[async_trait]
pub trait CodeStore: Send + Sync {
    /// How codes are numbered in this database.
    fn numbering(&self) -> Arc<Numbering>;

    /// A secret of this database, for strategies.
    fn code_key(&self) -> CodeKey;

    /// Moves a counter forward, to `floor` first if it is behind, and answers where it was: the
    /// `count` numbers from there on belong to the caller alone, whatever becomes of it.
    async fn lease(&self, counter: &str, floor: u64, count: u64) -> Result<u64, StoreError>;

    /// Takes unused codes of a length out of the pool, at most `count`: they are used.
    async fn take_pooled(&self, length: usize, count: u32) -> Result<Vec<Code>, StoreError>;

    /// Puts codes into the pool; those that are in it already, or that links have, are left out.
    /// Answers how many were new.
    async fn fill_pool(&self, codes: Vec<Code>) -> Result<u64, StoreError>;

    /// Notes that pooled codes were found taken.
    async fn void_pooled(&self, codes: Vec<Code>) -> Result<(), StoreError>;

    /// How many codes of a length the pool holds by status: unused, used, void.
    async fn count_pooled(&self, length: usize) -> Result<PoolCounts, StoreError>;

    /// How many links were made, by the length of their codes: in all, and since a day (in days
    /// since 1970).
    async fn code_usage(&self, since_day: i64) -> Result<Vec<CodeUsage>, StoreError>;
}

/// What the pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Codes to be had.
    pub unused: u64,
    /// Codes that were handed out.
    pub used: u64,
    /// Codes that turned out to be taken.
    pub void: u64,
}

/// How many links have codes of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeUsage {
    /// The length, check character included.
    pub length: usize,
    /// Links that were made, without those that were deleted.
    pub links: u64,
    /// Those made since the day that was asked for.
    pub lately: u64,
}

/// Keeps API keys.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// Keeps a new key.
    async fn create_key(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// Finds a key by its id, revoked or not.
    async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError>;

    /// Every key, the oldest first.
    async fn list_keys(&self) -> Result<Vec<ApiKey>, StoreError>;

    /// Revokes a key, which a revoked one stays; `false` when there is none of this id.
    async fn revoke_key(&self, id: &str, now: Timestamp) -> Result<bool, StoreError>;
}

/// Everything that is kept.
#[async_trait]
pub trait Store: LinkStore + OutboxStore + CodeStore + KeyStore + UpkeepStore {
    /// Ends every connection, after what has been begun.
    async fn close(&self);
}

/// The store could not do what it was asked, or nobody can know whether it did.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the database could not {operation}")]
pub struct StoreError {
    /// What it was asked.
    pub operation: &'static str,
    /// Why not.
    #[source]
    pub source: Arc<dyn Error + Send + Sync>,
}

/// Writes link records to where the edge reads them. Every method returns within a bounded time,
/// whatever state Redis is in.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Puts the records of links in place, each unless a newer one stands there already. After
    /// an error any of them may be in place; publishing again is harmless.
    async fn publish(&self, links: &[Link]) -> Result<(), PublishError>;

    /// As [`Publisher::publish`] for links that were just made, of which nothing is expected to
    /// stand there: that is cheaper.
    async fn publish_new(&self, links: &[Link]) -> Result<(), PublishError>;

    /// Notes for a short while that a code is unknown, unless something stands there.
    async fn note_unknown(&self, code: &Code) -> Result<(), PublishError>;

    /// Moves a counter that all processes share forward by `by`, to `floor` first if it is behind;
    /// answers where it then is.
    async fn advance(&self, counter: &str, floor: u64, by: u64) -> Result<u64, PublishError>;

    /// A name that is another one after every start of the server: what has changed it may have
    /// lost its last writes.
    async fn incarnation(&self) -> Result<String, PublishError>;
}

/// Redis could not be told something.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// It did not answer in time.
    #[error("Redis did not {operation} within {limit_ms} ms")]
    Timeout {
        /// What was asked of it.
        operation: &'static str,
        /// How long it was given, in milliseconds.
        limit_ms: u64,
    },
    /// It failed moments ago, so that it was not asked.
    #[error("Redis is not asked to {operation}: it failed moments ago")]
    Away {
        /// What would have been asked of it.
        operation: &'static str,
    },
    /// It can't be reached or has answered with an error.
    #[error("Redis did not {operation}")]
    Refused {
        /// What was asked of it.
        operation: &'static str,
        /// Why not.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Tells Redis of links that were just stored, or sees to it that this is done later.
#[async_trait]
pub trait Delivery: Send + Sync {
    /// Whether Redis has confirmed all of them by now.
    async fn deliver(&self, links: &[Link], receipt: Receipt) -> bool;
}
