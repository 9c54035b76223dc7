//! Reclassifies stored visits by the rules of this version, while visits are stored.
//!
//! Visits are read in the order of their numbers, some thousand at a time. Those with another
//! classification are written together with the changes in the counts, each only if it has not
//! changed since it was read. So a killed run counts nothing twice, and several may run at once. A
//! run has no stored progress: a new one finds correct visits already correct.
//!
//! The unique visitors of a day are counted by a sketch, from which a visitor cannot be removed. So
//! days that lose a visitor are marked stale in the same transaction, and their visitors are
//! counted again from the visits at the end:
//!
//! 1. The visits are read into a new sketch, which replaces the stored one. Visitors who were
//!    stored in between are missing for a moment.
//! 2. The visits are read once more and added.
//!
//! The mark has a generation, which changes at every step and when the day loses another visitor. A
//! step that finds another generation is skipped, and the day is counted again.

mod people;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::ports::{MAX_VERDICTS, StoreError, TimeSpan};
use shortlink_core::visit::agent::Agents;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::{StoredVisit, Verdict};
use shortlink_store::Store;
use tokio_util::sync::CancellationToken;

use super::patience;
use crate::jobs::{Claims, Job, Next, Outcome, Run};
pub use people::{EVERY as COUNT_PEOPLE_EVERY, People};

/// Visits per page.
const PAGE: u32 = 2000;

/// Pauses before retries of a failed operation.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// Reclassifies stored visits.
#[derive(Clone)]
pub struct Reclassify {
    /// Store of the visits.
    pub store: Arc<Store>,
    /// Recognises clients by their user agents.
    pub agents: Arc<dyn Agents>,
    /// Time span of the visits to reclassify.
    pub time: TimeSpan,
    /// Time from which links are counted per hour.
    pub hours_since: Option<Timestamp>,
    /// Writes nothing.
    pub is_rehearsal: bool,
}

/// The job that goes through the visits.
struct Walk {
    reclassify: Reclassify,
    clock: Arc<dyn Clock>,
    report: Report,
    /// Numbers of visits: the first, the one that was read last, and the last.
    numbers: Option<(i64, i64, i64)>,
    /// Verdicts that are not written yet.
    pending: Vec<(StoredVisit, Verdict)>,
}

/// Progress and results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of visits that were read.
    pub visits: u64,
    /// Number of visit numbers that were reached; some of them belong to no visit.
    pub reached: u64,
    /// Number of all visit numbers.
    pub total: u64,
    /// Number of visits that change, by their old and their new class. Both are the same where only
    /// the reason, the agent, or the version of the rules changes.
    pub found: [[u64; Class::ALL.len()]; Class::ALL.len()],
    /// Number of visits that were written.
    pub written: u64,
    /// Number of days whose unique visitors were counted again, separately for each campaign and
    /// for all.
    pub days: u64,
}

impl Report {
    /// Returns the number of visits that change.
    pub fn changes(&self) -> u64 {
        self.found.iter().flatten().sum()
    }

    /// Returns the number of visits that move from one class to another.
    pub fn moves(&self) -> impl Iterator<Item = (Class, Class, u64)> {
        let classes = Class::ALL.into_iter().enumerate();
        let pairs = classes.flat_map(move |(row, from)| {
            let others = Class::ALL.into_iter().enumerate();
            others.map(move |(column, to)| (from, to, self.found[row][column]))
        });
        pairs.filter(|(_, _, visits)| *visits > 0)
    }

    fn note(&mut self, from: Class, to: Class) {
        self.found[from as usize][to as usize] += 1;
    }
}

impl Reclassify {
    /// Reclassifies the visits that exist at the start, and counts the unique visitors of stale
    /// days again. Calls `report` now and then with the progress, or with `None` while another
    /// process counts visitors.
    ///
    /// # Errors
    /// Fails if SQL still fails after all retries.
    #[boxed]
    pub async fn run(
        self,
        claims: &Claims,
        shutdown: &CancellationToken,
        report: &mut (dyn FnMut(Option<&Report>) + Send),
    ) -> Result<(Outcome, Report), StoreError> {
        let is_rehearsal = self.is_rehearsal;
        let people = People::new(Arc::clone(&self.store));
        let walk = Walk {
            reclassify: self,
            clock: Arc::clone(&claims.clock),
            report: Report::default(),
            numbers: None,
            pending: Vec::new(),
        };
        let mut run = Run::new(walk, claims);
        let mut progress = |walk: Option<&Walk>| report(walk.map(|walk| &walk.report));
        let outcome = run.finish(Duration::MAX, shutdown, &mut progress).await?;
        let mut done = run.job.report;
        if is_rehearsal || outcome != Outcome::Done {
            return Ok((outcome, done));
        }
        let mut run = Run::new(people, claims);
        let mut waiting = |people: Option<&People>| {
            if people.is_none() {
                report(None);
            }
        };
        let outcome = run.finish(Duration::MAX, shutdown, &mut waiting).await?;
        done.days = run.job.days;
        Ok((outcome, done))
    }
}

#[async_trait]
impl Job for Walk {
    type Error = StoreError;
    const NAME: &'static str = "reclassify";
    const FAILURE: &'static str = "visits can't be classified again";

    /// Determines the range of visits. Those stored later are classified by these rules.
    async fn begin(&mut self) -> Result<(), StoreError> {
        let numbers = again(|| self.reclassify.store.visit_numbers()).await?;
        self.numbers = numbers.map(|(first, last)| (first, first - 1, last));
        self.pending.clear();
        self.report = Report {
            total: numbers.map_or(0, |(first, last)| (last - first).unsigned_abs() + 1),
            ..Report::default()
        };
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, StoreError> {
        if self.pending.is_empty() && !self.read().await? {
            self.report.reached = self.report.total;
            return Ok(Next::Idle);
        }
        let has_written = self.write().await?;
        if self.pending.is_empty()
            && let Some((first, reached, _)) = self.numbers
        {
            let all = (reached - first).unsigned_abs() + 1;
            self.report.reached = all.min(self.report.total);
        }
        Ok(if has_written {
            // Ingestion writes too, and SQLite has no queue for its lock.
            Next::Rest
        } else {
            Next::Now
        })
    }
}

impl Walk {
    /// Reads and judges the next visits; `false` if there are no more.
    async fn read(&mut self) -> Result<bool, StoreError> {
        let Some((first, after, last)) = self.numbers.filter(|(_, after, last)| after < last)
        else {
            return Ok(false);
        };
        let Reclassify { store, time, .. } = &self.reclassify;
        let page = again(|| store.visits_after(after, *time, PAGE)).await?;
        let Some(reached) = page.last else {
            return Ok(false);
        };
        self.numbers = Some((first, reached, last));
        self.report.visits += page.visits.len() as u64;
        for visit in page.visits {
            if let Some(verdict) = visit.reclassified(&*self.reclassify.agents) {
                self.report.note(visit.class, verdict.classification.class);
                if !self.reclassify.is_rehearsal {
                    self.pending.push((visit, verdict));
                }
            }
        }
        Ok(true)
    }

    /// Writes some of the verdicts in one transaction; `false` if there are none.
    async fn write(&mut self) -> Result<bool, StoreError> {
        let some = &self.pending[..self.pending.len().min(MAX_VERDICTS)];
        if some.is_empty() {
            return Ok(false);
        }
        let Reclassify {
            store, hours_since, ..
        } = &self.reclassify;
        let now = self.clock.now();
        self.report.written +=
            again(|| store.reclassify_visits(some.to_vec(), *hours_since, now)).await?;
        self.pending.drain(..some.len());
        Ok(true)
    }
}

/// Runs an idempotent operation with retries.
async fn again<T, F>(attempt: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    patience::again(&PAUSES, Walk::FAILURE, attempt).await
}

#[cfg(test)]
mod tests;
