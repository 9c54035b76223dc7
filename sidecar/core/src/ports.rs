//! Values that the service exchanges with the store, and the traits through which it reaches Redis.

mod audit;
mod campaigns;
mod codes;
mod idempotency;
mod keys;
mod links;
mod live;
mod outbox;
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
pub use codes::{CodeUsage, PoolCounts};
pub use idempotency::{Chunk, ChunkCreated, ChunkKey, NewChunk, RowOutcome};
pub use keys::{KeyEdit, KeyEditor, KeyListing, KeyPosition, KeyRefusal, KeyToEdit};
pub use links::{
    Created, Edited, Editor, FoundOrCreated, Listing, MAX_TOGETHER, Position, RequestDigest,
};
pub use live::{EntryId, StreamBounds, TailBatch, VisitTail, digits};
pub use outbox::{OutboxSpan, Receipt, Waiting};
pub use reclassify::{MAX_VERDICTS, PeoplePage, StaleDay, TimeSpan, VisitPage};
pub use upkeep::{ExpiredPage, ExpiryPlace, Filled, Kept, Page, Place, RecordIndex, Stood};
pub use visits::{
    CountQuery, Counted, DayVisitors, Dimension, DomainCount, Hours, KeptVisit, KeptVisits,
    LinkTotal, MAX_COUNTED, MAX_POISON, MAX_VISITS_TOGETHER, OldCounts, Poison, QueueDepth,
    QueuedBatch, QueuedId, TimeCount, ValueCount, ValueTimeCount, VisitListing, VisitQueue,
};

/// Publishes link records to Redis. Every method returns within a bounded time, whatever state
/// Redis is in.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Writes the records of links, each unless Redis has a newer one already. After an error any
    /// of them may be written; the method is idempotent.
    async fn publish(&self, links: &[Link]) -> Result<(), PublishError>;

    /// As [`Publisher::publish`] for new links, whose keys are expected to be free: that is
    /// cheaper.
    async fn publish_new(&self, links: &[Link]) -> Result<(), PublishError>;

    /// As [`Publisher::publish`] for campaigns.
    async fn publish_campaigns(&self, campaigns: &[Campaign]) -> Result<(), PublishError>;

    /// Caches in Redis for a short time that a code is unknown, unless its key has a value.
    async fn note_unknown(&self, code: &Code) -> Result<(), PublishError>;

    /// Advances a shared counter by `by`, after raising it to `floor` if it is lower; returns its
    /// new value.
    async fn advance(&self, counter: &str, floor: u64, by: u64) -> Result<u64, PublishError>;

    /// The generation of the data set. It changes with every restart of the server, which may lose
    /// the last writes.
    async fn incarnation(&self) -> Result<String, PublishError>;
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
