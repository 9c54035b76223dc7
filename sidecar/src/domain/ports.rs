//! What the domain needs from the world, as traits: somewhere to keep things, and a way to tell
//! Redis.
//!
//! Two stores are meant to fit behind [`Store`], so that it speaks of what is to happen and not
//! of how: which statements, how many in a transaction and on which connection is each store's
//! own affair. A thing that is not there is `Ok(None)`, never an error.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use vocabulary::Code;

use crate::domain::api_key::{ApiKey, Scope};
use crate::domain::audit::{AuditEntry, StoredAuditEntry};
use crate::domain::link::{Edit, Link, State};

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

/// Keeps links. Every method that changes a link also puts it into the outbox, in the same
/// transaction, and has made both durable when it returns.
#[async_trait]
pub trait LinkStore: Send + Sync {
    /// Keeps a new link; `false` when its code is taken.
    async fn create_link(&self, link: &Link) -> Result<bool, StoreError>;

    /// Finds a link, whatever its state.
    async fn find_link(&self, code: &Code) -> Result<Option<Link>, StoreError>;

    /// Has `editor` decide what becomes of a link and keeps that; nobody else changes the link
    /// meanwhile. A link left unchanged goes into the outbox too, so that whoever asks again for
    /// what has been done already gets it told to Redis again.
    async fn edit_link(&self, code: &Code, editor: Editor) -> Result<Option<Edit>, StoreError>;

    /// Lists links, the latest first, those of one millisecond by code downwards.
    async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError>;
}

/// A revision of a link that Redis has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The link's code.
    pub code: Code,
    /// The revision.
    pub revision: u64,
}

/// Keeps what Redis has yet to be told.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// The present state of links that wait since a moment or longer, at most `limit`, changes
    /// before new links.
    async fn waiting(&self, since: Timestamp, limit: u32) -> Result<Vec<Link>, StoreError>;

    /// How many links wait since a moment or longer, counted no further than `most`.
    async fn count_waiting(&self, since: Timestamp, most: u32) -> Result<u32, StoreError>;

    /// Notes what Redis has confirmed at `now`. New links leave the outbox; changes stay, as
    /// applied, until [`OutboxStore::forget_applied`]. A link that has changed again meanwhile
    /// goes on waiting.
    async fn settle(&self, published: Vec<Published>, now: Timestamp) -> Result<(), StoreError>;

    /// Has everything that was applied wait again; answers how many that are.
    async fn reopen_applied(&self) -> Result<u64, StoreError>;

    /// Deletes what was applied before a moment.
    async fn forget_applied(&self, before: Timestamp) -> Result<(), StoreError>;
}

/// A place in the listing of keys: just behind the key that was made then and has this id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPosition {
    /// When the key was made.
    pub created_at: Timestamp,
    /// The key's id.
    pub id: String,
}

/// Which keys to list.
#[derive(Clone, Debug)]
pub struct KeyListing {
    /// Only keys behind this position.
    pub after: Option<KeyPosition>,
    /// The most keys to answer with.
    pub limit: u32,
}

/// A key that is about to be changed.
#[derive(Clone, Debug)]
pub struct KeyToEdit {
    /// The key as it is.
    pub key: ApiKey,
    /// Whether another key with the scope `admin` lives at the moment of the change. Keys that
    /// have a successor don't count: they are on their way out.
    pub has_other_admin: bool,
}

/// What is to become of a key.
#[derive(Clone, Debug)]
pub enum KeyEdit {
    /// The key is changed.
    Changed {
        /// The key as it is to be stored.
        key: Box<ApiKey>,
        /// A new key to be stored with it.
        successor: Option<Box<ApiKey>>,
        /// What the audit log is told.
        audit: Vec<AuditEntry>,
    },
    /// The key was as it should be already.
    Unchanged(Box<ApiKey>),
    /// The change is refused.
    Refused(KeyRefusal),
}

/// Why a key is not made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// Whoever asks lacks a scope that the key has or would get.
    #[error("the scope {0} is needed")]
    Scope(Scope),
    /// The key is revoked, which is final.
    #[error("the API key is revoked")]
    Revoked,
    /// The key has expired.
    #[error("the API key has expired")]
    Expired,
    /// The key has a successor already.
    #[error("the API key has been rotated already")]
    Rotated,
    /// Nobody would be left who may do everything.
    #[error("this is the last live API key with the scope admin")]
    LastAdmin,
}

/// Decides, inside a store's transaction, what becomes of the key that is there.
pub type KeyEditor = Box<dyn FnOnce(KeyToEdit) -> KeyEdit + Send>;

/// Keeps API keys. Every method that changes something also writes to the audit log, in the same
/// transaction, and has made both durable when it returns.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// Keeps a new key.
    async fn create_key(&self, key: &ApiKey, audit: &AuditEntry) -> Result<(), StoreError>;

    /// Finds a key by its id, whatever its state.
    async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError>;

    /// Lists keys, the latest first, those of one millisecond by id downwards.
    async fn list_keys(&self, listing: &KeyListing) -> Result<Vec<ApiKey>, StoreError>;

    /// Has `editor` decide what becomes of a key and keeps that. Nobody else changes any key
    /// meanwhile, or two who each remove one of the last two administrators would both be let.
    async fn edit_key(
        &self,
        id: &str,
        now: Timestamp,
        editor: KeyEditor,
    ) -> Result<Option<KeyEdit>, StoreError>;
}

/// Which entries of the audit log to list. What is `None` is not asked for.
#[derive(Clone, Debug, Default)]
pub struct AuditListing {
    /// Only entries about this subject.
    pub subject: Option<String>,
    /// Only entries of what was done with this key.
    pub key_id: Option<String>,
    /// Only entries of this action.
    pub action: Option<String>,
    /// Only entries with a lesser number.
    pub before: Option<i64>,
    /// The most entries to answer with.
    pub limit: u32,
}

/// Reads the audit log. It is written by what makes the changes that it tells of.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Lists entries, the latest first.
    async fn list_audit(&self, listing: &AuditListing)
    -> Result<Vec<StoredAuditEntry>, StoreError>;
}

/// Everything that is kept.
#[async_trait]
pub trait Store: LinkStore + OutboxStore + KeyStore + AuditStore {
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

    /// Notes for a short while that a code is unknown, unless something stands there.
    async fn note_unknown(&self, code: &Code) -> Result<(), PublishError>;

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

/// Tells Redis of a link that was just stored, or sees to it that this is done later.
#[async_trait]
pub trait Delivery: Send + Sync {
    /// Whether Redis has confirmed the link by now.
    async fn deliver(&self, link: &Link) -> bool;
}
