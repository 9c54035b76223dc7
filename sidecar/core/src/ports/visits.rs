//! The storage and the queue of visits.

use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use vocabulary::{CampaignId, Code};

use super::PublishError;
use crate::visit::Visit;
use crate::visit::class::Class;

/// The counts to delete; `None` for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OldCounts {
    /// Counts by the minute before this moment.
    pub minutes_before: Option<Timestamp>,
    /// Counts by the hour and unique visitors by the day before this moment.
    pub hours_before: Option<Timestamp>,
}

/// The most entries in quarantine.
pub const MAX_POISON: u32 = 10_000;

/// The most visits of a link that are looked at to count them by a dimension.
pub const MAX_COUNTED: u32 = 100_000;

/// The most hourly counts that are added up for a dimension: one for each hour, value and class.
pub const MAX_COUNTS: u32 = 1_000_000;

/// The most values that are counted by name for each campaign, dimension that visitors choose, and
/// day; also for all links.
pub const MAX_VALUES: i64 = 1000;

/// The value under which visits with other values are counted. It is no host name.
pub const OTHER: &str = "(other)";

/// The outcome of storing visits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptVisits {
    /// The places of those that were new, in ascending order.
    pub new: Vec<usize>,
    /// Number of the others that were dropped, since the visits of their links are erased.
    pub erased: u64,
    /// Links that have reached their limit of visits, of which only human ones count.
    pub ended: Vec<Code>,
}

/// The filter of a listing of visits; a visit must match every member that is set.
#[derive(Clone, Debug, Default)]
pub struct VisitListing {
    /// Only visits of this link.
    pub code: Option<Code>,
    /// Only visits of this class.
    pub class: Option<Class>,
    /// Only visits from this moment on.
    pub since: Option<Timestamp>,
    /// Only visits before this moment.
    pub until: Option<Timestamp>,
    /// Only visits that were stored before the one of this number.
    pub before: Option<i64>,
    /// The most visits to answer with.
    pub limit: u32,
}

/// A stored visit. Its texts are as they were written, possibly by another version of this
/// program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptVisit {
    /// The visit's number; visits that are stored later have greater ones.
    pub number: i64,
    /// The time of the answer.
    pub at: Timestamp,
    /// The link's code, as it was requested.
    pub code: String,
    /// The short domain of the request.
    pub host: String,
    /// The stored part of the client's address.
    pub client: Option<String>,
    /// The visitor, in hexadecimal digits.
    pub visitor: Option<String>,
    /// The header `User-Agent`.
    pub user_agent: String,
    /// The header `Referer`; empty without one.
    pub referrer: String,
    /// The referrer's host.
    pub referrer_host: Option<String>,
    /// The language that the client likes best.
    pub language: Option<String>,
    /// The request's method.
    pub method: String,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The header `Sec-Purpose` or `Purpose`; empty without one.
    pub purpose: String,
    /// The country's code.
    pub country: Option<String>,
    /// The province, state or region.
    pub province: Option<String>,
    /// The city.
    pub city: Option<String>,
    /// The client's Internet provider.
    pub isp: Option<String>,
    /// The browser and its version.
    pub browser: Option<String>,
    /// The operating system and its version.
    pub os: Option<String>,
    /// The kind of device.
    pub device: String,
    /// The app whose built-in browser it is.
    pub app: Option<String>,
    /// The name of the visit's class.
    pub class: String,
    /// The reason for the class.
    pub reason: String,
    /// The version of the rules that decided the class.
    pub ruleset: u16,
    /// The variant that was followed.
    pub variant: Option<String>,
    /// The click id that its target got, if it is stored with the number of the visit.
    pub click_id: Option<String>,
}

/// The numbers of the last visits that an export can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitsToExport {
    /// All visits up to this number are stored; those that are stored later have greater numbers.
    pub stored: i64,
    /// All visits up to this number were also judged by behaviour, or will not be.
    pub judged: i64,
}

/// A stored visit with what a warehouse joins it by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportedVisit {
    /// The visit.
    pub visit: KeptVisit,
    /// The campaign that its link belonged to.
    pub campaign: Option<CampaignId>,
    /// The external id of its link, as it is now.
    pub external_id: Option<String>,
    /// The API key that created its link; `None` for a link that does not exist any more.
    pub created_by: Option<String>,
    /// The tags of its link, as they are now.
    pub tags: Vec<String>,
}

/// The links whose visits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All links.
    All,
    /// A campaign's links.
    Campaign(CampaignId),
    /// One link.
    Link(Code),
}

/// The visits to count. Both bounds are rounded down to whole hours.
#[derive(Clone, Copy, Debug)]
pub struct CountQuery {
    /// The links.
    pub of: Counted,
    /// The start of the period.
    pub since: Timestamp,
    /// The end of the period, which is not part of it.
    pub until: Timestamp,
}

/// The attribute by which visits are counted besides their class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// No attribute.
    Total,
    /// The short domain.
    Domain,
    /// The country.
    Country,
    /// The kind of device.
    Device,
    /// The browser.
    Browser,
    /// The operating system.
    Os,
    /// The referrer's host.
    Referrer,
    /// The provider of the client's Internet access.
    Network,
    /// The HTTP status of the answer.
    Status,
    /// The variant that was followed.
    Variant,
}

impl Dimension {
    /// Every dimension but [`Dimension::Total`].
    pub const ALL: [Self; 9] = [
        Self::Domain,
        Self::Country,
        Self::Device,
        Self::Browser,
        Self::Os,
        Self::Referrer,
        Self::Network,
        Self::Status,
        Self::Variant,
    ];

    /// The names, for messages that list what is allowed.
    pub const NAMES: &'static str =
        "domain, country, device, browser, os, referrer, network, status, variant";

    /// The dimension's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Domain => "domain",
            Self::Country => "country",
            Self::Device => "device",
            Self::Browser => "browser",
            Self::Os => "os",
            Self::Referrer => "referrer",
            Self::Network => "network",
            Self::Status => "status",
            Self::Variant => "variant",
        }
    }

    /// The dimension with a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Visitors choose the values of this dimension, come from many networks, or follow many links with variants: there can
    /// be any number of values.
    pub fn is_chosen(self) -> bool {
        matches!(
            self,
            Self::Domain
                | Self::Browser
                | Self::Os
                | Self::Referrer
                | Self::Network
                | Self::Variant
        )
    }

    /// Most visits have no value in this dimension. Those are not counted in it: they are the rest of all visits.
    pub fn is_sparse(self) -> bool {
        matches!(self, Self::Variant)
    }

    /// The visit's value in this dimension; empty when it is unknown.
    pub fn value(self, visit: &Visit) -> &str {
        match self {
            Self::Total => "",
            Self::Domain => &visit.host,
            Self::Country => visit.place.country.as_deref().unwrap_or_default(),
            Self::Device => visit.agent.device.kind.name(),
            Self::Browser => visit.agent.browser.as_ref().map_or("", |it| &it.name),
            Self::Os => visit.agent.os.as_ref().map_or("", |it| &it.name),
            Self::Referrer => visit.referrer_host.as_deref().unwrap_or_default(),
            Self::Network => visit.place.isp.as_deref().unwrap_or_default(),
            Self::Status => status_text(visit.status),
            Self::Variant => visit.variant.as_deref().unwrap_or_default(),
        }
    }
}

/// An HTTP status as a value of [`Dimension::Status`]; empty unless it has three digits.
pub fn status_text(status: u16) -> &'static str {
    static TEXTS: LazyLock<Vec<String>> =
        LazyLock::new(|| (100..1000).map(|status| status.to_string()).collect());
    let place = status.checked_sub(100).map(usize::from);
    place
        .and_then(|place| TEXTS.get(place))
        .map_or("", String::as_str)
}

/// The time up to the present hour in which visits of a campaign, and all visits, are counted by the minute.
pub const BY_MINUTE: SignedDuration = SignedDuration::from_hours(48);

/// The number of visits in an hour or a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeCount {
    /// The start of the hour or the minute.
    pub begin: Timestamp,
    /// The class of the visits.
    pub class: Class,
    /// The number of visits.
    pub visits: u64,
}

/// The number of unique visitors on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayVisitors {
    /// The start of the day, by UTC.
    pub day: Timestamp,
    /// The number of unique visitors.
    pub visitors: u64,
}

/// The number of visits with a common value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueCount {
    /// The value; empty when it is unknown.
    pub value: String,
    /// The class of the visits.
    pub class: Class,
    /// The number of visits.
    pub visits: u64,
}

/// Counts of the visits of a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Visits by hour and class.
    pub times: Vec<TimeCount>,
    /// Unique visitors of each day, in the order of days.
    pub visitors: Vec<DayVisitors>,
    /// Visits by each of the dimensions that were asked for and class, the largest count first.
    pub by: Vec<Vec<ValueCount>>,
}

/// The length of the intervals by which visits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hours {
    /// An hour.
    One,
    /// A day.
    Day,
}

impl Hours {
    /// The number of hours.
    pub fn count(self) -> i64 {
        match self {
            Self::One => 1,
            Self::Day => 24,
        }
    }
}

/// The intervals by which visits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// The length of each.
    pub length: Hours,
    /// The number of hours by which days begin before those of UTC; -14 to 14.
    pub ahead: i64,
}

/// The number of visits in an interval with a common value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueTimeCount {
    /// The start of the interval.
    pub begin: Timestamp,
    /// The common value; empty when it is unknown.
    pub value: String,
    /// The class of the visits.
    pub class: Class,
    /// The number of visits.
    pub visits: u64,
}

/// The number of visits of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTotal {
    /// The link's code.
    pub code: Code,
    /// The number of all visits.
    pub visits: u64,
    /// The number of human visits.
    pub human: u64,
    /// The number of refused visits.
    pub refused: u64,
    /// The time of the last visit.
    pub last_at: Timestamp,
}

/// The clicks of a link: its human visits that are not erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkClicks {
    /// The time of the first human visit.
    pub first_at: Timestamp,
    /// The time of the last human visit.
    pub last_at: Timestamp,
    /// The number of human visits, at least one.
    pub visits: u64,
}

/// A link of a campaign, which was sent to one recipient, with its clicks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// The link's code.
    pub code: Code,
    /// The time at which the link was created.
    pub created_at: Timestamp,
    /// The id of the API key that created the link.
    pub created_by: String,
    /// The caller's id of the link.
    pub external_id: Option<String>,
    /// The clicks, if there are any.
    pub clicks: Option<LinkClicks>,
}

/// The most links that [`MostClicked`] has.
pub const MOST_CLICKED: u32 = 1000;

/// The links with the most clicks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MostClicked {
    /// The links, the one with the most clicks first.
    pub links: Vec<Recipient>,
    /// All clicked links were compared.
    pub is_complete: bool,
}

/// The number of links whose first human visit was in an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstClicks {
    /// The start of the hour.
    pub hour: Timestamp,
    /// The number of links.
    pub links: u64,
}

/// The number of visits of a domain in a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainCount {
    /// The short domain.
    pub host: String,
    /// The start of the minute.
    pub minute: Timestamp,
    /// The number of visits of all classes.
    pub visits: u64,
}

/// The number of human visits of a domain from a network in a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkCount {
    /// The short domain.
    pub host: String,
    /// The provider of the clients' Internet access.
    pub network: String,
    /// The start of the minute.
    pub minute: Timestamp,
    /// The number of visits.
    pub visits: u64,
}

/// The queue through which the edge reports visits, in batches. Each batch is delivered to one of
/// several readers, which settles it once it is stored; a batch that is not settled in time is
/// delivered to another reader.
#[async_trait]
pub trait VisitQueue: Send + Sync {
    /// Takes batches that no reader has taken, at most `most`.
    async fn take(&self, most: usize) -> Result<Vec<QueuedBatch>, PublishError>;

    /// Takes batches that a reader took or renewed at least `idle` ago and has not settled, at most
    /// `most`.
    async fn take_over(
        &self,
        idle: Duration,
        most: usize,
    ) -> Result<Vec<QueuedBatch>, PublishError>;

    /// Renews batches of this reader that are not settled, as if it had taken them now.
    async fn renew(&self, batches: &[QueuedId]) -> Result<(), PublishError>;

    /// Marks batches as stored, so that they are not delivered again.
    async fn settle(&self, batches: &[QueuedId]) -> Result<(), PublishError>;

    /// Removes the batches before the first one that is not settled.
    async fn trim(&self) -> Result<(), PublishError>;

    /// Removes readers that have been idle for `idle` and have no unsettled batches.
    async fn forget_readers(&self, idle: Duration) -> Result<(), PublishError>;

    /// Measures the backlog.
    async fn depth(&self) -> Result<QueueDepth, PublishError>;
}

/// Names a batch in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueuedId {
    /// The part of the queue.
    pub shard: u16,
    /// Its name there.
    pub entry: String,
}

/// A batch that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedBatch {
    /// The name of the batch.
    pub id: QueuedId,
    /// The frames of the events, one behind the other ([`vocabulary::visit`]).
    pub frames: Vec<u8>,
}

/// The backlog of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Batches that are not settled.
    pub batches: u64,
    /// The time at which the oldest of them was queued.
    pub oldest: Option<Timestamp>,
}

/// An entry of the queue that is no visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    /// The batch.
    pub id: QueuedId,
    /// The frame's number in the batch, from 0.
    pub place: usize,
    /// The fault.
    pub reason: String,
    /// The bytes that could not be read, at most some thousand.
    pub bytes: Vec<u8>,
}
