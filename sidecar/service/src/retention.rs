//! Deletes visits and counts at the end of their retention.
//!
//! One process at a time does it, beside those that store visits: in transactions of about 100 ms,
//! with pauses as long as these. So ingestion waits for one such transaction at most, and retention
//! catches up at half the rate at which the database deletes, however much is due.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use shortlink_core::clock::Clock;
use shortlink_core::ports::{OldCounts, StoreError};
use shortlink_store::{AgentsPass, Store};
use tokio::time::Instant;

use super::visits::VisitCounters;
use crate::jobs::{JOBS, Job, Lane, Next};

/// The interval at which due visits and counts are deleted.
pub const EVERY: Duration = Duration::from_secs(60);

/// The time for which events of erased visits are expected. No time bounds the life of an event in a file of nginx: this is
/// far longer than any outage.
const LATEST_EVENT: SignedDuration = SignedDuration::from_hours(24 * 400);

/// The kinds of rows that are due, in their order. Lanes share the kinds, so that more lanes than kinds are of no use.
const KINDS: [Due; 3] = [Due::Visits, Due::Counts, Due::Erasures];

/// The most lanes.
pub const LANES: u32 = KINDS.len() as u32;

/// The interval at which unused user agents are deleted.
const AGENTS_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// The time that a transaction should take at most.
const TARGET: Duration = Duration::from_millis(100);

/// The fewest and the most rows that a transaction deletes. With fewer, the waits for ingestion
/// would outweigh the work.
const FEWEST: u32 = 1000;
const MOST: u32 = 16_000;

/// The retention of counts by network and minute, in which blocks are detected.
const NETWORKS: SignedDuration = SignedDuration::from_hours(3);

/// The kinds of rows of counts that one transaction deletes: minutes of domains, hours of links, hours, values,
/// and days.
const KINDS_OF_COUNTS: u32 = 5;

/// Deletes visits and counts at the end of their retention.
pub struct Retention {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    counters: Arc<VisitCounters>,
    periods: RetentionPeriods,
    /// The lane: the first one deletes visits and user agents.
    lane: Lane,
    /// Kinds of rows that may be due, the next first.
    due: VecDeque<Due>,
    /// The rest of the pass that deletes unused user agents.
    agents: Option<AgentsPass>,
    /// The time of the start of the last pass.
    agents_at: Option<Timestamp>,
    /// The time at which the kinds of rows were last due.
    begun: Instant,
    /// The rows of the next transaction.
    rows: u32,
}

/// The retention of visits and counts; `None` for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPeriods {
    /// Visits.
    pub visits: Option<SignedDuration>,
    /// Counts by the minute.
    pub minutes: Option<SignedDuration>,
    /// Counts by the hour and the day.
    pub hours: Option<SignedDuration>,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    Visits,
    Counts,
    Erasures,
}

impl Retention {
    /// Deletes from `store` and counts deleted visits in `counters`.
    pub fn new(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        counters: Arc<VisitCounters>,
        periods: RetentionPeriods,
    ) -> Self {
        Self {
            store,
            clock,
            counters,
            periods,
            lane: Lane::default(),
            due: VecDeque::new(),
            agents: None,
            agents_at: None,
            begun: Instant::now(),
            rows: FEWEST,
        }
    }

    /// Deletes only the kinds of rows of a lane.
    #[must_use]
    pub fn in_lane(mut self, lane: Lane) -> Self {
        self.lane = lane;
        self
    }

    /// The kinds of rows of the lane.
    fn kinds(&self) -> VecDeque<Due> {
        let kinds = (0..).zip(KINDS);
        let own = kinds.filter(|(number, _)| self.lane.slice.has(*number));
        own.map(|(_, kind)| kind).collect()
    }

    /// Does a portion of the pass over the user agents; `false` if it has been done for a day. The
    /// visits that were due are deleted.
    async fn delete_agents(&mut self) -> Result<bool, StoreError> {
        if self.lane.slice.number > 0 {
            return Ok(false);
        }
        let now = self.clock.now();
        let is_done = |at: Timestamp| now < at + AGENTS_EVERY;
        let pass = match self.agents {
            Some(pass) => pass,
            None if self.agents_at.is_some_and(is_done) => return Ok(false),
            None => {
                self.agents_at = Some(now);
                let before = |kept| now.checked_sub(kept).unwrap_or(Timestamp::MIN);
                AgentsPass::new(now, self.periods.visits.map(before))
            }
        };
        // After an error, the same portion is done again.
        self.agents = Some(pass);
        (_, self.agents) = self.store.forget_agents(pass, self.rows).await?;
        Ok(true)
    }

    /// Deletes some due rows; returns their number.
    async fn delete(&self, due: Due) -> Result<u64, StoreError> {
        let now = self.clock.now();
        let before = |kept: SignedDuration| now.checked_sub(kept).unwrap_or(Timestamp::MIN);
        let RetentionPeriods {
            visits,
            minutes,
            hours,
        } = self.periods;
        match (due, visits) {
            (Due::Visits, None) => Ok(0),
            (Due::Visits, Some(kept)) => {
                let gone = self.store.forget_visits(before(kept), self.rows).await?;
                self.counters.forgotten.fetch_add(gone, Ordering::Relaxed);
                let ids = self.store.forget_click_ids(before(kept), self.rows).await?;
                Ok(gone + ids)
            }
            (Due::Counts, _) => {
                let old = OldCounts {
                    minutes_before: minutes.map(before),
                    hours_before: hours.map(before),
                };
                let each = self.rows / KINDS_OF_COUNTS;
                let gone = self.store.forget_counts(old, each).await?;
                let networks = self.store.forget_networks(before(NETWORKS), each);
                let minutes = self.store.forget_minutes(now, each);
                Ok(gone + networks.await? + minutes.await?)
            }
            (Due::Erasures, _) => {
                let before = before(LATEST_EVENT);
                self.store.forget_erasures(before, self.rows).await
            }
        }
    }
}

#[async_trait]
impl Job for Retention {
    type Error = StoreError;
    const NAME: &'static str = "retention";
    const FAILURE: &'static str = "old visits and counts can't be deleted; trying again";
    const LEASE: Option<Duration> = Some(Duration::from_secs(30));

    fn lane(&self) -> Lane {
        self.lane.clone()
    }

    async fn begin(&mut self) -> Result<(), StoreError> {
        self.due = self.kinds();
        self.begun = Instant::now();
        self.rows = FEWEST;
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, StoreError> {
        let begun = Instant::now();
        let is_full = match self.due.pop_front() {
            Some(due) => {
                let gone = self.delete(due).await?;
                JOBS.add_items(Self::NAME, gone);
                if gone > 0 {
                    self.due.push_back(due);
                }
                gone >= u64::from(self.rows)
            }
            None if self.delete_agents().await? => {
                if self.begun.elapsed() >= EVERY {
                    // A pass over all visits can take hours.
                    self.due = self.kinds();
                    self.begun = begun;
                }
                true
            }
            None => {
                self.begin().await?;
                return Ok(Next::Idle);
            }
        };
        let took = begun.elapsed();
        if took > TARGET {
            self.rows = (self.rows / 2).max(FEWEST);
        } else if is_full && took < TARGET / 2 {
            self.rows = (self.rows * 2).min(MOST);
        }
        Ok(Next::Rest)
    }
}

#[cfg(test)]
mod tests;
