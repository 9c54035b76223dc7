//! What classifying stored visits again needs of the store.

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;
use crate::core::visit::sketch::Sketch;
use crate::core::visit::stored::{StoredVisit, Verdict};
use crate::core::visit::visitor::VisitorId;

/// Reads stored visits, and writes what they were found to be together with what is counted of
/// them.
///
/// Every method is bounded by what it is given, so that it can be called while visits are stored.
#[async_trait]
pub trait ReclassifyStore: Send + Sync {
    /// The numbers of the first and the last visit; `None` when there is none.
    async fn visit_numbers(&self) -> Result<Option<(i64, i64)>, StoreError>;

    /// Reads the visits of a time among the first `limit` behind a number.
    async fn visits_after(
        &self,
        after: i64,
        time: TimeSpan,
        limit: u32,
    ) -> Result<VisitPage, StoreError>;

    /// Writes verdicts on visits as they were read, at most [`MAX_VERDICTS`], and corrects what is
    /// counted of them, all or, after an error, none. Visits that are another by now, or gone, are
    /// left alone. Answers how many were not. `hours_since` is from when on the hours of links are
    /// kept apart.
    async fn reclassify_visits(
        &self,
        verdicts: Vec<(StoredVisit, Verdict)>,
        hours_since: Option<Timestamp>,
    ) -> Result<u64, StoreError>;

    /// Days that somebody was counted on who turned out to be nobody, at most `limit`.
    async fn stale_days(&self, limit: u32) -> Result<Vec<StaleDay>, StoreError>;

    /// Reads the people of some days, from the first to the last, among the first `limit` visits
    /// behind a number.
    async fn people_after(
        &self,
        after: i64,
        days: (i64, i64),
        limit: u32,
    ) -> Result<PeoplePage, StoreError>;

    /// Has the people of days counted from what was read of them, as long as nobody has touched the
    /// day since; answers those days. Who comes meanwhile is added by whoever stores them, but to
    /// what is replaced here: therefore people are read once more then.
    async fn replace_people(
        &self,
        days: Vec<(StaleDay, Sketch)>,
    ) -> Result<Vec<StaleDay>, StoreError>;

    /// Adds the people of days who were read once more, and notes that the days are right again, as
    /// long as nobody has touched the day since; answers how many are.
    async fn settle_people(&self, days: Vec<(StaleDay, Sketch)>) -> Result<u64, StoreError>;
}

/// The most verdicts that are written together.
pub const MAX_VERDICTS: usize = 500;

/// From when until when; without a bound where there is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpan {
    /// From this moment on.
    pub since: Option<Timestamp>,
    /// Before this moment.
    pub until: Option<Timestamp>,
}

impl TimeSpan {
    /// Whether a moment is within it.
    pub fn has(&self, moment: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= moment)
            && self.until.is_none_or(|until| moment < until)
    }
}

/// Visits that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisitPage {
    /// Those of the time that was asked for whose class this version knows.
    pub visits: Vec<StoredVisit>,
    /// The number of the last one that was looked at; `None` when there were none.
    pub last: Option<i64>,
}

/// People who follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeoplePage {
    /// The campaign, or 0, and the day of each, and who it was.
    pub people: Vec<(i64, i64, VisitorId)>,
    /// The number of the last visit that was looked at; `None` when there were none.
    pub last: Option<i64>,
}

/// A day whose people are to be counted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaleDay {
    /// The campaign whose people they are; 0 for all.
    pub campaign: i64,
    /// The day, counted since 1970.
    pub day: i64,
    /// Another one whenever the day was touched.
    pub generation: i64,
}
