//! Access to thousands of links in the store and in Redis, for the repair of Redis.

use async_trait::async_trait;
use tokio::sync::mpsc;
use vocabulary::CampaignId;

use super::PublishError;
use crate::campaign::Campaign;
use crate::ended::EndedDays;
use crate::records::{Drift, Records, Standing, drift_of};

/// A place in the order in which a store walks through its links: behind the link of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub i64);

impl Place {
    /// Before all links.
    pub const START: Self = Self(i64::MIN);
}

/// The links of one of several lanes, by their numbers; by default all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The number of the lane, from 0 on.
    pub number: u32,
    /// The number of lanes.
    pub of: u32,
}

impl Default for Slice {
    fn default() -> Self {
        Self { number: 0, of: 1 }
    }
}

impl Slice {
    /// Returns whether the link of a number belongs to the lane.
    pub fn has(self, number: i64) -> bool {
        number.rem_euclid(i64::from(self.of)) == i64::from(self.number)
    }
}

/// Links that follow each other.
#[derive(Clone, Debug)]
pub struct Page {
    /// Their records.
    pub records: Records,
    /// The start of the next page; `None` when there are no more.
    pub next: Option<Place>,
}

/// The two ways in which links end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// They were revoked.
    Revocation,
    /// They have expired.
    Expiry,
}

/// A place among links in the order in which they ended: behind the link of this time and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndPlace {
    /// The time: of an expiry in seconds since 1970, of a revocation in milliseconds.
    pub at: i64,
    /// The number.
    pub place: Place,
}

/// The text of a place, which a later process continues at.
impl std::fmt::Display for EndPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.at, self.place.0)
    }
}

impl EndPlace {
    /// Reads its text; `None` if it is none.
    pub fn read(text: &str) -> Option<Self> {
        let (at, place) = text.split_once(' ')?;
        Some(Self {
            at: at.parse().ok()?,
            place: Place(place.parse().ok()?),
        })
    }

    /// Before all links.
    pub const START: Self = Self {
        at: 0,
        place: Place::START,
    };
}

/// Links that have ended one after the other.
#[derive(Clone, Debug)]
pub struct EndedPage {
    /// Their records.
    pub records: Records,
    /// The start of the next page; `None` when there were no links.
    pub next: Option<EndPlace>,
}

/// Links that were looked up.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Their records.
    pub records: Records,
    /// True for each of them that is in the outbox: Redis need not have it yet.
    pub waiting: Vec<bool>,
}

/// Maintains the records of many links in Redis. Every method returns within a bounded time,
/// whatever state Redis is in, and does not block other publishers.
#[async_trait]
pub trait RecordIndex: Send + Sync {
    /// The days for which the records of ended links stay.
    fn ended_days(&self) -> EndedDays;

    /// Writes records, each unless Redis has a newer one, for as long as they are needed; one that is not is written
    /// only in place of another. After an error any of them may be written; the method is idempotent.
    async fn fill(&self, records: &Records) -> Result<Filled, PublishError>;

    /// Compares records with Redis; returns the places of those that differ, in ascending order.
    async fn compare(&self, records: &Records) -> Result<Vec<(usize, Drift)>, PublishError>;

    /// As [`RecordIndex::fill`] for the records of campaigns; returns the places of those that were
    /// left out since Redis has a newer one.
    async fn fill_campaigns(&self, campaigns: &[Campaign]) -> Result<Vec<usize>, PublishError>;

    /// As [`RecordIndex::compare`] for the records of campaigns.
    async fn compare_campaigns(
        &self,
        campaigns: &[Campaign],
    ) -> Result<Vec<(usize, Drift)>, PublishError> {
        let ids: Vec<CampaignId> = campaigns.iter().map(|campaign| campaign.id).collect();
        let stood = self.read_campaigns(&ids).await?;
        let drifts = campaigns.iter().zip(&stood).enumerate();
        let drifts = drifts.filter_map(|(place, (campaign, stood))| {
            let record = campaign.record().to_vec();
            let drift = drift_of(&record, campaign.revision, 0, stood.standing());
            Some((place, drift?))
        });
        Ok(drifts.collect())
    }

    /// Reads the values of campaigns' keys.
    async fn read_campaigns(&self, ids: &[CampaignId]) -> Result<Vec<Stood>, PublishError>;

    /// Sends the names of all keys of link records in portions, until all were seen or the receiver
    /// is dropped. A name is the part of the key behind the prefix: a code, unless another program
    /// writes there. A name may come more than once.
    async fn scan(&self, pages: mpsc::Sender<Vec<Vec<u8>>>) -> Result<(), PublishError>;

    /// Reads the values of names.
    async fn read(&self, names: &[Vec<u8>]) -> Result<Vec<Stood>, PublishError>;

    /// Deletes the keys whose values are still as they were read; returns their number.
    async fn remove(&self, read: &[(Vec<u8>, Stood)]) -> Result<u64, PublishError>;

    /// Counts the keys, of whatever kind.
    async fn count(&self) -> Result<u64, PublishError>;

    /// The names that the servers gave themselves when they started. A restart may lose the last
    /// writes.
    async fn incarnation(&self) -> Result<String, PublishError>;
}

/// The value of a key when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stood {
    /// Nothing.
    Nothing,
    /// A text.
    Text(Vec<u8>),
    /// Something that is no text.
    OtherType,
}

impl Stood {
    /// Borrows the value.
    pub fn standing(&self) -> Standing<'_> {
        match self {
            Self::Nothing => Standing::Nothing,
            Self::Text(text) => Standing::Text(text),
            Self::OtherType => Standing::OtherType,
        }
    }
}

/// The outcomes of writing records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// The key had no value.
    pub added: u64,
    /// The key had another value.
    pub replaced: u64,
    /// The key had the record already.
    pub same: u64,
    /// The key has a newer record.
    pub newer: u64,
}

impl std::ops::AddAssign for Filled {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.replaced += other.replaced;
        self.same += other.same;
        self.newer += other.newer;
    }
}

impl Filled {
    /// The number of records.
    pub fn total(&self) -> u64 {
        self.added + self.replaced + self.same + self.newer
    }
}
