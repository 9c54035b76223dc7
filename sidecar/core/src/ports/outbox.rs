//! Storage of what is not yet published to Redis, and of the order of changes.

use crate::campaign::Campaign;
use crate::link::Link;

use super::PublishedCampaign;

/// New and changed links that were stored and are to be published. It is settled once they are
/// published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt(pub Vec<OutboxSpan>);

/// Links whose numbers follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxSpan {
    /// The first link's number.
    pub first: i64,
    /// The last link's number.
    pub last: i64,
    /// The revision that was published; 1 for new links.
    pub revision: u64,
}

/// Links and campaigns that are to be published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The present state of the links.
    pub links: Vec<Link>,
    /// The present state of the campaigns.
    pub campaigns: Vec<Campaign>,
    /// The receipt to settle once they are published, at the revisions that the links have.
    pub receipt: Receipt,
    /// The last place among them, if they are changes.
    pub last: Option<u64>,
}

impl Waiting {
    /// Reports whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.receipt.0.is_empty() && self.campaigns.is_empty()
    }
}

/// Publications that Redis has confirmed.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// The generation of the data set that has confirmed it.
    pub generation: u64,
    /// New and changed links.
    pub receipts: Vec<Receipt>,
    /// Campaigns.
    pub campaigns: Vec<PublishedCampaign>,
}

/// A data set of Redis as it shows itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// The names that its servers gave themselves when they started.
    pub incarnation: String,
    /// Its generation and watermark; `None` if it has none.
    pub standing: Option<(u64, u64)>,
    /// All servers show this generation.
    pub is_whole: bool,
    /// It has so few keys that it was probably emptied: hardly any of its records can be stale.
    pub is_nearly_empty: bool,
}

/// A data set as SQL knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Its generation.
    pub generation: u64,
    /// All changes up to this place are in the data set.
    pub watermark: u64,
    /// Changes behind the watermark, up to this place, may be missing although they were applied to another
    /// data set.
    pub replay_to: u64,
    /// Changes that the log has forgotten may be missing as well.
    pub is_incomplete: bool,
    /// The generation begins now.
    pub is_new: bool,
}

/// Changes and records that a data set lacks, or may lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Changes that were applied to an earlier data set.
    pub changes: u64,
    /// The comparison as a whole is still to end that finds what no change in the log says.
    pub is_incomplete: bool,
}

/// The order of changes at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The last place that a change has, or may have when its transaction ends.
    pub last: u64,
    /// Transactions with a place up to this one have all ended.
    pub ended: u64,
    /// The first place of a change that waits.
    pub first_waiting: Option<u64>,
    /// The generation of the data set that was adopted last, by any process.
    pub generation: u64,
}

impl Places {
    /// Every change up to this place was applied.
    pub fn applied(&self) -> u64 {
        let before = |place: u64| place.saturating_sub(1);
        self.first_waiting
            .map_or(self.ended, |it| self.ended.min(before(it)))
    }
}

/// New links and changes that should be in Redis by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// Number of rows, counted up to a limit.
    pub rows: u32,
    /// The oldest, in milliseconds since 1970 by the clock of the process that made it.
    pub since: Option<i64>,
}
