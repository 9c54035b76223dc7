//! The part of the store that reclassifies stored visits.

use jiff::Timestamp;

use crate::visit::stored::StoredVisit;
use crate::visit::visitor::VisitorId;

/// The most verdicts that are written together.
pub const MAX_VERDICTS: usize = 500;

/// A span of time; `None` is an open end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpan {
    /// From this moment on.
    pub since: Option<Timestamp>,
    /// Before this moment.
    pub until: Option<Timestamp>,
}

impl TimeSpan {
    /// True if a moment is within it.
    pub fn has(&self, moment: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= moment)
            && self.until.is_none_or(|until| moment < until)
    }
}

/// Visits that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisitPage {
    /// The visits within the span whose class this version knows.
    pub visits: Vec<StoredVisit>,
    /// The number of the last visit that was read; `None` when there were none.
    pub last: Option<i64>,
}

/// Visits that were stored together and wait for their second judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Id of the stretch.
    pub id: i64,
    /// The numbers of the first and the last visit. Other visits may be in between.
    pub numbers: (i64, i64),
    /// The times of the earliest and the latest visit, in milliseconds since 1970.
    pub times: (i64, i64),
    /// The number of visits.
    pub visits: u64,
    /// The time at which they were stored, in milliseconds since 1970, by the clock of the sidecar
    /// that stored them.
    pub stored_ms: i64,
}

/// Visitors of consecutive visits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeoplePage {
    /// The campaign, or 0, the day, and the visitor of each.
    pub people: Vec<(i64, i64, VisitorId)>,
    /// The number of the last visit that was read; `None` when there were none.
    pub last: Option<i64>,
}

/// A day whose unique visitors are to be counted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaleDay {
    /// The campaign, or 0 for all visits.
    pub campaign: i64,
    /// The day, counted since 1970.
    pub day: i64,
    /// Changes whenever the day changes.
    pub generation: i64,
}
