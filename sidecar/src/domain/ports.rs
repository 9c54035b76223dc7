//! What the domain needs from the world, as traits: somewhere to keep things, and a way to tell
//! Redis.
//!
//! Two stores are meant to fit behind [`Store`], so that it speaks of what is to happen and not
//! of how: which statements, how many in a transaction and on which connection is each store's
//! own affair. A thing that is not there is `Ok(None)`, never an error.

mod live;
mod reclassify;
mod upkeep;
mod visits;

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use vocabulary::{CampaignId, Code};

use crate::domain::api_key::{ApiKey, Scope};
pub use crate::domain::audit::ChangedBy;
use crate::domain::audit::{AuditEntry, StoredAuditEntry};
use crate::domain::campaign::{Campaign, CampaignEdit};
use crate::domain::codes::numbering::{CodeKey, Numbering};
use crate::domain::link::{Edit, Link, PastChange, State};
use crate::domain::visit::visitor::DayKeys;

pub use live::{EntryId, StreamBounds, TailBatch, VisitTail};
pub use reclassify::{MAX_VERDICTS, PeoplePage, ReclassifyStore, StaleDay, TimeSpan, VisitPage};
pub use upkeep::{
    ExpiredPage, ExpiryPlace, Filled, Kept, Page, Place, RecordIndex, Stood, UpkeepStore,
};
pub use visits::{
    CountQuery, Counted, DayVisitors, Dimension, DomainCount, KeptVisit, KeptVisits, LinkTotal,
    MAX_COUNTED, MAX_POISON, MAX_VISITS_TOGETHER, OldCounts, Poison, QueueDepth, QueuedBatch,
    QueuedId, TimeCount, ValueCount, VisitListing, VisitQueue, VisitStore,
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

/// Which links to list: those that fulfil everything that is said.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Only links in this state at the moment given.
    pub state: Option<(State, Timestamp)>,
    /// Only links that have this tag.
    pub tag: Option<String>,
    /// Only links that the caller calls so.
    pub external_id: Option<String>,
    /// Only links of this campaign.
    pub campaign: Option<CampaignId>,
    /// Only links that this API key has asked for.
    pub created_by: Option<String>,
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

/// What somebody asked for who wants the same link for the same request, as SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestDigest(pub [u8; 32]);

/// What became of new links that are made only where there are none like them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundOrCreated {
    /// The places of those whose codes are taken, in ascending order.
    pub taken: Vec<usize>,
    /// The places of those that were not kept since there is one like them, in ascending order,
    /// and that one.
    pub found: Vec<(usize, Link)>,
    /// The others' rows in the outbox.
    pub receipt: Receipt,
}

/// Keeps links. Every method that changes links also puts them into the outbox, in the same
/// transaction, and has made both durable when it returns.
#[async_trait]
pub trait LinkStore: Send + Sync {
    /// Keeps new links, at most [`MAX_TOGETHER`], all that can be kept or, after an error, none.
    async fn create_links(&self, links: Vec<Link>) -> Result<Created, StoreError>;

    /// As [`LinkStore::create_links`], but a link is kept only if none that stands for it
    /// ([`Link::stands_for`], when the new link is made) was kept for the same digest. However many
    /// do this at the same time, one link is kept.
    async fn find_or_create_links(
        &self,
        links: Vec<(Link, RequestDigest)>,
    ) -> Result<FoundOrCreated, StoreError>;

    /// Finds the link that was kept last for a digest, whatever has become of it.
    async fn find_by_digest(&self, digest: &RequestDigest) -> Result<Option<Link>, StoreError>;

    /// Finds a link, whatever its state.
    async fn find_link(&self, code: &Code) -> Result<Option<Link>, StoreError>;

    /// Finds the links of codes, whatever their state, in no order; codes that have none are left
    /// out. At most [`MAX_TOGETHER`] codes.
    async fn find_links(&self, codes: &[Code]) -> Result<Vec<Link>, StoreError>;

    /// Has `editor` decide what becomes of a link and keeps that; nobody else changes the link
    /// meanwhile. A link left unchanged goes into the outbox too, so that whoever asks again for
    /// what has been done already gets it told to Redis again. What a changed link was before is
    /// kept too, and the audit log told.
    async fn edit_link(
        &self,
        code: &Code,
        by: &ChangedBy,
        editor: Editor,
    ) -> Result<Option<Edited>, StoreError>;

    /// The changes that a link has been through, the latest first, at most `limit`: all, or those
    /// before the change that left this revision behind.
    async fn link_history(
        &self,
        code: &Code,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Option<Vec<PastChange>>, StoreError>;

    /// Lists links, the latest first, those of one millisecond in an order that stays the same.
    async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError>;

    /// Reads links in the order in which the store keeps them, which does not change: those behind
    /// the link that has the code `after`, or from the first on; at most `limit`. Whoever goes on
    /// until nothing comes has seen each link once that was there from the first call on, and of
    /// those that were made meanwhile some. Nothing is held between two calls, so that a scan of
    /// all links keeps nobody from writing.
    async fn scan_links(&self, after: Option<&Code>, limit: u32) -> Result<Vec<Link>, StoreError>;
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

    /// Has everything that was applied, campaigns included, wait again; answers how many that are.
    async fn reopen_applied(&self) -> Result<u64, StoreError>;

    /// Deletes what was applied before a moment.
    async fn forget_applied(&self, before: Timestamp) -> Result<(), StoreError>;
}

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

    /// As [`LinkStore::create_links`] for the links of a chunk's rows, and keeps the chunk in the
    /// same transaction.
    async fn create_chunk(&self, new: NewChunk) -> Result<ChunkCreated, StoreError>;

    /// Forgets chunks that were kept before a moment; answers how many.
    async fn forget_chunks(&self, before: Timestamp) -> Result<u64, StoreError>;
}

/// Decides, inside a store's transaction, what becomes of the campaign that is there.
pub type CampaignEditor = Box<dyn FnOnce(Campaign) -> CampaignEdit + Send>;

/// A revision of a campaign that Redis has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedCampaign {
    /// The campaign.
    pub id: CampaignId,
    /// The revision.
    pub revision: u64,
}

/// Keeps campaigns. Every method that changes one also puts it into the outbox, in the same
/// transaction, and has made both durable when it returns.
#[async_trait]
pub trait CampaignStore: Send + Sync {
    /// Keeps a new campaign under an id that the store chooses, which is answered. The audit log
    /// is told.
    async fn create_campaign(&self, campaign: &Campaign) -> Result<CampaignId, StoreError>;

    /// Finds a campaign, whatever its state.
    async fn find_campaign(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError>;

    /// Has `editor` decide what becomes of a campaign and keeps that; nobody else changes it
    /// meanwhile. One that is left unchanged goes into the outbox too; of a change the audit log
    /// is told.
    async fn edit_campaign(
        &self,
        id: CampaignId,
        by: &ChangedBy,
        editor: CampaignEditor,
    ) -> Result<Option<CampaignEdit>, StoreError>;

    /// Lists campaigns, the latest first, those behind `after`.
    async fn list_campaigns(
        &self,
        after: Option<CampaignId>,
        limit: u32,
    ) -> Result<Vec<Campaign>, StoreError>;

    /// Campaigns that wait to be published since a moment or longer, in their present state.
    async fn waiting_campaigns(&self, since: Timestamp) -> Result<Vec<Campaign>, StoreError>;

    /// Notes what Redis has confirmed at `now`; it stays, as applied, until
    /// [`OutboxStore::forget_applied`].
    async fn settle_campaigns(
        &self,
        published: Vec<PublishedCampaign>,
        now: Timestamp,
    ) -> Result<(), StoreError>;
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
pub trait Store:
    LinkStore
    + CampaignStore
    + OutboxStore
    + IdempotencyStore
    + CodeStore
    + KeyStore
    + AuditStore
    + UpkeepStore
    + VisitStore
    + ReclassifyStore
    + DayKeys
{
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

    /// As [`Publisher::publish`] for campaigns.
    async fn publish_campaigns(&self, campaigns: &[Campaign]) -> Result<(), PublishError>;

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

    /// As [`Delivery::deliver`] for a campaign.
    async fn deliver_campaign(&self, campaign: &Campaign) -> bool;
}
