//! The part of the store that reclassifies stored visits.

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;
use crate::visit::sketch::Sketch;
use crate::visit::stored::{StoredVisit, Verdict};
use crate::visit::visitor::VisitorId;

/// Reads stored visits, and writes their new verdicts together with the corrected counts.
///
/// Every method has bounded work, so that it can be called while visits are stored.
#[async_trait]
pub trait ReclassifyStore: Send + Sync {
    /// The numbers of the first and the last visit; `None` without visits.
    async fn visit_numbers(&self) -> Result<Option<(i64, i64)>, StoreError>;

    /// Reads the visits of a time among the first `limit` behind a number.
    async fn visits_after(
        &self,
        after: i64,
        time: TimeSpan,
        limit: u32,
    ) -> Result<VisitPage, StoreError>;

    /// Writes verdicts on visits as they were read, at most [`MAX_VERDICTS`], and corrects the
    /// counts, all or, after an error, none. Visits that have changed since or are gone are
    /// skipped. Returns the number of the others. The counts of links are by the hour from
    /// `hours_since` on.
    async fn reclassify_visits(
        &self,
        verdicts: Vec<(StoredVisit, Verdict)>,
        hours_since: Option<Timestamp>,
    ) -> Result<u64, StoreError>;

    /// Finds days whose unique visitors include one that was reclassified as no visitor, at most
    /// `limit`.
    async fn stale_days(&self, limit: u32) -> Result<Vec<StaleDay>, StoreError>;

    /// Reads the visitors of a range of days, both ends included, among the first `limit` visits
    /// behind a number.
    async fn people_after(
        &self,
        after: i64,
        days: (i64, i64),
        limit: u32,
    ) -> Result<PeoplePage, StoreError>;

    /// Replaces the sketches of the unique visitors of days whose generation is unchanged; returns
    /// those days. A visit that is stored meanwhile adds to the sketch that is replaced here, so
    /// the visitors of these days must be read a second time and passed to
    /// [`ReclassifyStore::settle_people`].
    async fn replace_people(
        &self,
        days: Vec<(StaleDay, Sketch)>,
    ) -> Result<Vec<StaleDay>, StoreError>;

    /// Merges the visitors of the second reading into the sketches and marks the days as correct,
    /// as long as their generation is unchanged; returns the number of those days.
    async fn settle_people(&self, days: Vec<(StaleDay, Sketch)>) -> Result<u64, StoreError>;
}

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
