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
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::patience;
use crate::clock::Clock;
use crate::core::ports::{MAX_VERDICTS, StoreError, TimeSpan};
use crate::core::visit::agent::Agents;
use crate::core::visit::class::Class;
use crate::core::visit::stored::{StoredVisit, Verdict};
use crate::store::Store;

/// How many visits are read at a time.
const PAGE: u32 = 2000;

/// The longest rest between two transactions.
const LONGEST_REST: Duration = Duration::from_secs(1);

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
pub struct Reclassify {
    /// Where they are.
    pub store: Arc<Store>,
    /// What clients are.
    pub agents: Arc<dyn Agents>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What nobody else is called.
    pub holder: String,
    /// Visits of which time.
    pub time: TimeSpan,
    /// From when on hours are still counted apart.
    pub hours_since: Option<Timestamp>,
    /// Whether nothing is to be written.
    pub is_rehearsal: bool,
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

/// How a run ends that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All visits are as the rules have it.
    Done,
    /// It was asked to stop; the next run finds what is left.
    Stopped,
}

impl Reclassify {
    /// Classifies all visits that there are when it begins; tells `progress` now and then how far
    /// it is.
    ///
    /// # Errors
    /// When SQL fails and does not come back.
    pub async fn run(
        &self,
        shutdown: &CancellationToken,
        progress: &(dyn Fn(&Report) + Sync),
    ) -> Result<(Outcome, Report), StoreError> {
        let mut report = Report::default();
        let numbers = again(|| self.store.visit_numbers()).await?;
        if let Some((first, last)) = numbers {
            report.total = (last - first).unsigned_abs() + 1;
            let mut after = first - 1;
            while after < last {
                if shutdown.is_cancelled() {
                    return Ok((Outcome::Stopped, report));
                }
                let page = again(|| self.store.visits_after(after, self.time, PAGE)).await?;
                let Some(reached) = page.last else {
                    break;
                };
                after = reached;
                report.visits += page.visits.len() as u64;
                self.judge(page.visits, &mut report).await?;
                report.reached = ((after - first).unsigned_abs() + 1).min(report.total);
                progress(&report);
            }
            report.reached = report.total;
            progress(&report);
        }
        if self.is_rehearsal {
            return Ok((Outcome::Done, report));
        }
        let outcome = self.count_people(&mut report, shutdown).await?;
        Ok((outcome, report))
    }

    /// Judges visits and writes what is different.
    async fn judge(&self, visits: Vec<StoredVisit>, report: &mut Report) -> Result<(), StoreError> {
        let verdicts = visits.into_iter().filter_map(|visit| {
            let verdict = visit.reclassified(&*self.agents)?;
            Some((visit, verdict))
        });
        let verdicts: Vec<(StoredVisit, Verdict)> = verdicts.collect();
        for (visit, verdict) in &verdicts {
            report.note(visit.class, verdict.classification.class);
        }
        if self.is_rehearsal {
            return Ok(());
        }
        for some in verdicts.chunks(MAX_VERDICTS) {
            let begun = Instant::now();
            report.written += again(|| {
                let verdicts = some.to_vec();
                self.store.reclassify_visits(verdicts, self.hours_since)
            })
            .await?;
            // Whoever stores visits wants to write too, and SQLite has no queue for its lock.
            tokio::time::sleep(begun.elapsed().min(LONGEST_REST)).await;
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
