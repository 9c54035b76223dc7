//! Values that the service exchanges with the store, and the traits through which it reaches Redis.

mod audit;
mod campaigns;
mod codes;
mod idempotency;
mod keys;
mod links;
mod live;
mod outbox;
mod quotas;
mod reclassify;
mod upkeep;
mod visits;

use std::error::Error;

use async_trait::async_trait;
use vocabulary::Code;

pub use crate::audit::ChangedBy;
use crate::campaign::Campaign;
use crate::link::Link;
pub use crate::store_error::StoreError;

pub use audit::AuditListing;
pub use campaigns::{CampaignEditor, PublishedCampaign};
pub use codes::{CapacityGrant, CodeLease, CodeUsage, PoolCounts};
pub use idempotency::{Chunk, ChunkCreated, ChunkKey, NewChunk, RowOutcome};
pub use keys::{
    KeyEdit, KeyEditor, KeyListing, KeyPosition, KeyRefusal, KeyToEdit, NewSession, SignIn,
    SignInEditor, StoredSession,
};
pub use links::{
    Created, Edited, Editor, FoundOrCreated, Identical, Identity, Listing, MAX_NODES, MAX_TOGETHER,
    Position, RequestDigest,
};
pub use live::{EntryId, StreamBounds, TailBatch, VisitTail, digits};
pub use outbox::{
    Adopted, Behind, DataSet, OutboxSpan, Overdue, Places, Receipt, Settled, Waiting,
};
pub use quotas::{QuotaOwner, UsedUp};
pub use reclassify::{MAX_VERDICTS, PeoplePage, StaleDay, Stretch, TimeSpan, VisitPage};
pub use upkeep::{End, EndPlace, EndedPage, Filled, Kept, Page, Place, RecordIndex, Slice, Stood};
pub use visits::{
    BY_MINUTE, CountQuery, Counted, Counts, DayVisitors, Dimension, DomainCount, ExportedVisit,
    FirstClicks, Hours, Intervals, KeptVisit, KeptVisits, LinkClicks, LinkTotal, MAX_COUNTED,
    MAX_COUNTS, MAX_POISON, MAX_VALUES, MOST_CLICKED, MostClicked, NetworkCount, OTHER, OldCounts,
    Poison, QueueDepth, QueuedBatch, QueuedId, Recipient, TimeCount, ValueCount, ValueTimeCount,
    VisitListing, VisitQueue, VisitsToExport, status_text,
};

/// The most items of a listing that are examined for a page: few of millions may match its filter.
pub const MOST_EXAMINED: u32 = 10_000;

/// Items of a listing by descending numbers, as many as it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    /// The items.
    pub items: Vec<T>,
    /// The number of the last item that was examined, if there are fewer items than the listing may have, and others
    /// that were not examined.
    pub read_to: Option<i64>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            read_to: None,
        }
    }
}

impl<T> Listed<T> {
    /// Whatever was found of at most `limit` items, where `reach` bounds what was examined.
    pub fn new(items: Vec<T>, limit: u32, reach: Option<i64>) -> Self {
        let is_full = items.len() >= limit as usize;
        Self {
            items,
            read_to: reach.filter(|_| !is_full),
        }
    }
}

/// Publishes link records to Redis. Every method returns within a bounded time, whatever state
/// Redis is in.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Writes the records of links, each unless Redis has a newer one already. After an error any
    /// of them may be written; the method is idempotent. A Redis that is full and refuses records
    /// loses those that stand there: the fallback answers for the links.
    async fn publish(&self, links: &[Link]) -> Result<Published, PublishError>;

    /// As [`Publisher::publish`] for new links, whose keys are expected to be free: that is
    /// cheaper.
    async fn publish_new(&self, links: &[Link]) -> Result<Published, PublishError>;

    /// As [`Publisher::publish`] for campaigns.
    async fn publish_campaigns(&self, campaigns: &[Campaign]) -> Result<Published, PublishError>;

    /// Caches in Redis for a short time that a code is unknown, unless its key has a value or the
    /// generation of the data set is not known.
    async fn note_unknown(&self, code: &Code) -> Result<(), PublishError>;

    /// Advances a shared counter by `by`, after raising it to `floor` if it is lower; returns its
    /// new value.
    async fn advance(&self, counter: &str, floor: u64, by: u64) -> Result<u64, PublishError>;

    /// Reads how the data set shows itself.
    async fn inspect(&self) -> Result<(Session, DataSet), PublishError>;

    /// Marks the data set, only over the connection on which it was inspected. A watermark of the
    /// same generation is only raised. `false` if the data set has a later generation, or has gone
    /// back, or another server has taken over. A full Redis takes it.
    async fn mark(&self, mark: &Mark) -> Result<bool, PublishError>;
}

/// A mark of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The connection on which the data set was inspected.
    pub session: Session,
    /// The names of its servers: another one that has taken over meanwhile is not marked.
    pub incarnation: String,
    /// The generation.
    pub generation: u64,
    /// The generation and the least watermark that the data set showed when it was inspected or marked last. One that
    /// shows neither these nor the wanted generation has been emptied or has gone back since, and is not marked.
    pub stands: Option<(u64, u64)>,
    /// The place of the last change that the data set has together with all before it.
    pub watermark: u64,
    /// It is current: nginx may believe it for some seconds.
    pub beat: bool,
}

/// A connection to Redis, counted from the first of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session(pub u64);

/// Records that were published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The connection that they were written over.
    pub session: Session,
    /// The places of those that were left out, and the later revision that stands there.
    pub newer: Vec<(usize, u64)>,
    /// Redis is full, so what stood there was deleted: the fallback answers instead.
    pub is_withdrawn: bool,
}

/// A failed operation on Redis.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// It did not answer in time.
    #[error("Redis did not {operation} within {limit_ms} ms")]
    Timeout {
        /// The operation.
        operation: &'static str,
        /// The time limit in milliseconds.
        limit_ms: u64,
    },
    /// It failed moments ago, so that the operation was skipped.
    #[error("Redis is not asked to {operation}: it failed moments ago")]
    Away {
        /// The operation that was skipped.
        operation: &'static str,
    },
    /// It can't be reached or has answered with an error.
    #[error("Redis did not {operation}")]
    Refused {
        /// The operation.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Publishes links that were just stored to Redis, or leaves that to a later attempt.
#[async_trait]
pub trait Delivery: Send + Sync {
    /// Returns whether Redis has confirmed all of them.
    async fn deliver(&self, links: &[Link], receipt: Receipt) -> bool;

    /// As [`Delivery::deliver`] for a campaign.
    async fn deliver_campaign(&self, campaign: &Campaign) -> bool;
}
