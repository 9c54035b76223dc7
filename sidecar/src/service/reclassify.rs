//! Classifying stored visits again by the rules of this version, while visits are stored.
//!
//! Visits are read in the order of their numbers, some thousand at a time. Those of which the rules
//! say something else are written together with what changes in the counts, each only if it still
//! is as it was read: so whoever is killed has counted nothing twice, and several may do this at
//! once. Nothing is remembered: whoever begins again finds what is right already right.
//!
//! How many people there were on a day is kept as a sketch, which forgets nobody. So days that lose
//! somebody are noted in the same transaction, and their people are counted again from the visits
//! at the end:
//!
//! 1. They are read, and the sketch is replaced by what was found. Whoever was stored before that
//!    and after they were read is missing for a moment.
//! 2. They are read once more and added.
//!
//! The note has a generation, which is another one after each step and when somebody else is lost;
//! a step that finds another generation is not done, and the day's turn comes again.

mod people;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::patience;
use crate::core::ports::{MAX_VERDICTS, StoreError, TimeSpan};
use crate::core::visit::agent::Agents;
use crate::core::visit::class::Class;
use crate::core::visit::stored::{StoredVisit, Verdict};
use crate::jobs::{Claims, Job, Next, Outcome, Run};
use crate::store::Store;
use people::People;

/// How many visits are read at a time.
const PAGE: u32 = 2000;

/// How long is waited before the database is tried again, each time that it fails.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// Classifies stored visits again.
#[derive(Clone)]
pub struct Reclassify {
    /// Where they are.
    pub store: Arc<Store>,
    /// What clients are.
    pub agents: Arc<dyn Agents>,
    /// Visits of which time.
    pub time: TimeSpan,
    /// From when on hours are still counted apart.
    pub hours_since: Option<Timestamp>,
    /// Whether nothing is to be written.
    pub is_rehearsal: bool,
}

/// The part of it that goes through visits.
struct Walk {
    reclassify: Reclassify,
    report: Report,
    /// The numbers of visits: the first, the one that was looked at last, and the last.
    numbers: Option<(i64, i64, i64)>,
}

/// How far it has come, and what was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Visits that were looked at.
    pub visits: u64,
    /// Of how many numbers of visits it has reached which: some numbers no visit has.
    pub reached: u64,
    /// How many numbers there are.
    pub total: u64,
    /// Visits that are to be another, by the class that they had and the one that they get. The two
    /// are the same where something else is different: the reason, the agent, or the version of
    /// the rules.
    pub found: [[u64; Class::ALL.len()]; Class::ALL.len()],
    /// Visits that were written.
    pub written: u64,
    /// Days whose people were counted again, each once for all and once for each campaign.
    pub days: u64,
}

impl Report {
    /// How many visits are to be another.
    pub fn changes(&self) -> u64 {
        self.found.iter().flatten().sum()
    }

    /// How many go from a class to another, those that do.
    pub fn moves(&self) -> impl Iterator<Item = (Class, Class, u64)> {
        let classes = Class::ALL.into_iter().enumerate();
        let pairs = classes.flat_map(move |(row, from)| {
            let others = Class::ALL.into_iter().enumerate();
            others.map(move |(column, to)| (from, to, self.found[row][column]))
        });
        pairs.filter(|(_, _, visits)| *visits > 0)
    }

    fn note(&mut self, from: Class, to: Class) {
        let place = |class| Class::ALL.iter().position(|it| *it == class);
        if let (Some(row), Some(column)) = (place(from), place(to)) {
            self.found[row][column] += 1;
        }
    }
}

impl Reclassify {
    /// Classifies all visits that there are when it begins, and counts the people of days again that
    /// have lost somebody. Reports now and then how far it is, and `None` while it waits for another
    /// process that counts people.
    ///
    /// # Errors
    /// When SQL fails and does not come back.
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
            report: Report::default(),
            numbers: None,
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

impl Job for Walk {
    type Error = StoreError;
    const NAME: &'static str = "reclassify";
    const FAILURE: &'static str = "visits can't be classified again";

    /// Finds the visits that there are: those that are stored later are classified by these rules.
    async fn begin(&mut self) -> Result<(), StoreError> {
        let numbers = again(|| self.reclassify.store.visit_numbers()).await?;
        self.numbers = numbers.map(|(first, last)| (first, first - 1, last));
        self.report = Report {
            total: numbers.map_or(0, |(first, last)| (last - first).unsigned_abs() + 1),
            ..Report::default()
        };
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, StoreError> {
        if let Some((first, after, last)) = self.numbers
            && after < last
        {
            let page = again(|| {
                self.reclassify
                    .store
                    .visits_after(after, self.reclassify.time, PAGE)
            })
            .await?;
            if let Some(reached) = page.last {
                self.numbers = Some((first, reached, last));
                self.report.visits += page.visits.len() as u64;
                self.judge(page.visits).await?;
                let all = (reached - first).unsigned_abs() + 1;
                self.report.reached = all.min(self.report.total);
                return Ok(if self.reclassify.is_rehearsal {
                    Next::Now
                } else {
                    // Those who store visits write too, and SQLite has no queue for its lock.
                    Next::Rest
                });
            }
        }
        self.report.reached = self.report.total;
        Ok(Next::Idle)
    }
}

impl Walk {
    /// Judges visits and writes what is different.
    async fn judge(&mut self, visits: Vec<StoredVisit>) -> Result<(), StoreError> {
        let verdicts = visits.into_iter().filter_map(|visit| {
            let verdict = visit.reclassified(&*self.reclassify.agents)?;
            Some((visit, verdict))
        });
        let verdicts: Vec<(StoredVisit, Verdict)> = verdicts.collect();
        for (visit, verdict) in &verdicts {
            self.report.note(visit.class, verdict.classification.class);
        }
        if self.reclassify.is_rehearsal {
            return Ok(());
        }
        for some in verdicts.chunks(MAX_VERDICTS) {
            self.report.written += again(|| {
                let verdicts = some.to_vec();
                self.reclassify
                    .store
                    .reclassify_visits(verdicts, self.reclassify.hours_since)
            })
            .await?;
        }
        Ok(())
    }
}

/// Does something, several times if it fails: all of this can be done again.
async fn again<T, F>(attempt: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    patience::again(&PAUSES, attempt, |error, _pause| {
        tracing::warn!(
            error = error as &dyn Error,
            "visits can't be classified again; trying again"
        );
    })
    .await
}

#[cfg(test)]
mod tests;
