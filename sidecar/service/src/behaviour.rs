//! The second judgement of visits, by the behaviour of their clients.
//!
//! The transaction that stores visits notes them as a stretch. Once a stretch is as old as the
//! delay, its visits are read together with those of the stretches around it, judged, and
//! corrected together with the counts, as [`crate::reclassify`] does. A stretch is removed when no
//! later one can have visits in a window with its own. So all progress is in SQL: a killed
//! run is repeated by the next, which finds the corrected visits correct, and two sidecars that
//! believe to hold the claim count nothing twice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use shortlink_core::clock::Clock;
use shortlink_core::ports::{MAX_VERDICTS, StoreError, Stretch};
use shortlink_core::visit::agent::Agents;
use shortlink_core::visit::class::behaviour::{
    CLASS, WINDOW_MS, Watched, codes_in_question, judge,
};
use shortlink_core::visit::class::{Classification, RULESET};
use shortlink_core::visit::stored::{StoredVisit, Verdict};
use shortlink_store::Store;
use vocabulary::Code;

use crate::jobs::{Job, Next};

/// The interval at which visits are judged that are stored for `delay`.
pub fn every(delay: Option<SignedDuration>) -> Duration {
    let delay = delay.and_then(|delay| Duration::try_from(delay).ok());
    let quarter = delay.unwrap_or(LONGEST_PAUSE) / 4;
    quarter.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The most stretches that are listed together.
const STRETCHES: u32 = 20_000;

/// The most visits that are judged together: some 200 MB.
const TOGETHER: u64 = 1_000_000;

/// Visits per page.
const PAGE: u32 = 5000;

/// Links per page.
const LINKS: usize = 500;

/// A stretch from further ahead is due: the clock of its sidecar was wrong.
const MAX_AHEAD_MS: i64 = 60_000;

/// Judges visits by the behaviour of their clients.
pub struct Behaviour {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    agents: Arc<dyn Agents>,
    /// The time from storing visits to judging them; `None` removes stretches without judging.
    delay: Option<SignedDuration>,
    /// The retention of counts by the hour.
    hours_retention: Option<SignedDuration>,
    work: Option<Work>,
    /// The stretches of the last judgement.
    judged: HashSet<i64>,
}

/// Stretches that are being judged.
struct Work {
    /// The numbers and reasons of visits that are to be corrected.
    verdicts: Vec<(i64, &'static str)>,
    /// The times of all visits.
    times: (i64, i64),
    /// The stretches that are then done.
    done: Vec<i64>,
    /// More stretches may be due.
    is_part: bool,
    corrected: u64,
}

impl Behaviour {
    /// Judges the visits in a store `delay` after they were stored, or never.
    pub fn new(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        agents: Arc<dyn Agents>,
        delay: Option<SignedDuration>,
        hours_retention: Option<SignedDuration>,
    ) -> Self {
        Self {
            store,
            clock,
            agents,
            delay,
            hours_retention,
            work: None,
            judged: HashSet::new(),
        }
    }

    /// Reads the stretches that are due, and judges their visits; `None` without any.
    async fn find(&mut self) -> Result<Option<Work>, StoreError> {
        let all = self.store.stretches(STRETCHES).await?;
        let is_full = all.len() >= STRETCHES as usize;
        let Some(delay) = self.delay else {
            let done: Vec<i64> = all.iter().map(|stretch| stretch.id).collect();
            return Ok((!done.is_empty()).then(|| Work::of(Vec::new(), &[], done, is_full)));
        };
        let now = self.clock.now().as_millisecond();
        let due = now.saturating_sub(milliseconds(delay));
        let is_due = |it: &Stretch| it.stored_ms <= due || it.stored_ms > now + MAX_AHEAD_MS;
        let mut visits = 0;
        let together = all.iter().filter(|it| is_due(it)).take_while(|it| {
            // At least one.
            let is_within = visits == 0 || visits + it.visits <= TOGETHER;
            visits += it.visits;
            is_within
        });
        let together: Vec<Stretch> = together.copied().collect();
        let is_part = is_full || visits > TOGETHER;
        // Stretches that come later have no visits in a window with the visits of older ones than this.
        let latest = together.iter().map(|it| it.stored_ms).max();
        let latest = latest.filter(|_| is_part).unwrap_or(due);
        let settled = latest.min(due) - WINDOW_MS;
        let is_done = |it: &&Stretch| it.stored_ms < settled || it.stored_ms > due;
        let mut done: Vec<i64> = together.iter().filter(is_done).map(|it| it.id).collect();
        if done.is_empty() && is_part {
            // More visits than are judged together came within a window.
            let half = together.len().div_ceil(2);
            done.extend(together[..half].iter().map(|it| it.id));
        }
        if together.is_empty() {
            return Ok(None);
        }
        let judged = std::mem::take(&mut self.judged);
        self.judged.extend(together.iter().map(|it| it.id));
        if self.judged.is_subset(&judged) {
            return Ok((!done.is_empty()).then(|| Work::of(Vec::new(), &[], done, is_part)));
        }
        let mut visits = self.read(&together).await?;
        self.add_creation(&mut visits).await?;
        Ok(Some(Work::of(judge(&visits), &together, done, is_part)))
    }

    /// Reads the visits of stretches, each once.
    async fn read(&self, stretches: &[Stretch]) -> Result<Vec<Watched>, StoreError> {
        let mut visits = Vec::new();
        for stretch in stretches {
            let mut after = stretch.numbers.0.saturating_sub(1);
            loop {
                let read = self.store.watched_visits(after, *stretch, PAGE);
                let (page, last) = read.await?;
                visits.extend(page);
                match last {
                    Some(last) => after = last,
                    None => break,
                }
            }
        }
        visits.sort_unstable_by_key(|visit| visit.number);
        visits.dedup_by_key(|visit| visit.number);
        Ok(visits)
    }

    /// Adds the times at which links were created, where they may decide.
    async fn add_creation(&self, visits: &mut [Watched]) -> Result<(), StoreError> {
        let codes = codes_in_question(visits).into_iter();
        let codes: Vec<Code> = codes.filter_map(|code| code.parse().ok()).collect();
        let mut created: HashMap<Box<str>, i64> = HashMap::new();
        for some in codes.chunks(LINKS) {
            for link in self.store.find_links(some).await? {
                let at = link.created_at.as_millisecond();
                created.insert(link.code.to_string().into(), at);
            }
        }
        for visit in visits {
            visit.created_ms = created.get(&visit.code).copied();
        }
        Ok(())
    }

    /// Corrects visits and counts in one transaction.
    async fn correct(
        &self,
        verdicts: &[(i64, &'static str)],
        times: (i64, i64),
    ) -> Result<u64, StoreError> {
        let reasons: HashMap<i64, &'static str> = verdicts.iter().copied().collect();
        let numbers: Vec<i64> = verdicts.iter().map(|(number, _)| *number).collect();
        let visits = self.store.stored_visits(&numbers, times).await?;
        let verdicts = visits.into_iter().filter_map(|visit| {
            let reason = reasons.get(&visit.number)?;
            self.verdict(visit, reason)
        });
        let verdicts: Vec<_> = verdicts.collect();
        let now = self.clock.now();
        let hours_since = self.hours_retention;
        let hours_since = hours_since.and_then(|kept| now.checked_sub(kept).ok());
        let store = &self.store;
        store.reclassify_visits(verdicts, hours_since, now).await
    }

    fn verdict(&self, visit: StoredVisit, reason: &'static str) -> Option<(StoredVisit, Verdict)> {
        // Others may have judged it meanwhile.
        if !visit.class.is_of_person(&visit.reason) || visit.ruleset > RULESET {
            return None;
        }
        let classification = Classification {
            class: CLASS,
            reason,
            ruleset: RULESET,
        }
        .answered(visit.status);
        let agent = self.agents.agent(&visit.user_agent);
        let verdict = Verdict {
            classification,
            agent,
        };
        Some((visit, verdict))
    }
}

impl Work {
    fn of(
        verdicts: Vec<(i64, &'static str)>,
        stretches: &[Stretch],
        done: Vec<i64>,
        is_part: bool,
    ) -> Self {
        let first = stretches.iter().map(|it| it.times.0).min();
        let last = stretches.iter().map(|it| it.times.1).max();
        Self {
            verdicts,
            times: (first.unwrap_or_default(), last.unwrap_or_default()),
            done,
            is_part,
            corrected: 0,
        }
    }
}

#[async_trait]
impl Job for Behaviour {
    type Error = StoreError;
    const NAME: &'static str = "behaviour";
    const FAILURE: &'static str = "visits can't be judged by behaviour; trying again";
    /// The claim only saves work: visits are corrected only if they are as they were read.
    const LEASE: Option<Duration> = Some(Duration::from_secs(30));

    async fn begin(&mut self) -> Result<(), StoreError> {
        self.work = None;
        self.judged.clear();
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, StoreError> {
        let Some(work) = &mut self.work else {
            self.work = self.find().await?;
            return Ok(match self.work {
                Some(_) => Next::Now,
                None => Next::Idle,
            });
        };
        if !work.verdicts.is_empty() {
            let from = work.verdicts.len().saturating_sub(MAX_VERDICTS);
            let (some, times) = (work.verdicts[from..].to_vec(), work.times);
            let corrected = self.correct(&some, times).await?;
            if let Some(work) = &mut self.work {
                work.verdicts.truncate(from);
                work.corrected += corrected;
            }
            // Ingestion writes too, and SQLite has no queue for its lock.
            return Ok(Next::Rest);
        }
        let (done, is_part) = (std::mem::take(&mut work.done), work.is_part);
        if work.corrected > 0 {
            tracing::info!(visits = work.corrected, "visits were judged by behaviour");
        }
        if !done.is_empty() {
            self.store.remove_stretches(done).await?;
        }
        self.work = None;
        Ok(if is_part { Next::Rest } else { Next::Idle })
    }
}

fn milliseconds(time: SignedDuration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
