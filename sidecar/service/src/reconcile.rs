//! Compares all links with Redis, slowly and continuously, and repairs their records: a Redis that
//! lost some keys recovers by itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shortlink_core::records::Drift;
use shortlink_store::{Part, Pass, Share, Walk};
use tokio::time::Instant;

use super::drift::{InspectError, Inspector};
use crate::jobs::{JOBS, Job, Lane, Next};
use crate::refill;

/// The interval at which some links are compared.
pub const EVERY: Duration = Duration::from_secs(1);

/// The interval at which the position is stored.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// The most links per comparison.
const PAGE: u32 = 2048;

/// The most links per step while a data set is compared as a whole.
const FAST: u32 = 50_000;

/// The number of links of a part, where several lanes share a pass.
const PART: u32 = 10_000;

/// Compares links with Redis and repairs their records.
pub struct Reconcile {
    inspector: Inspector,
    lane: Lane,
    links_per_step: u32,
    /// The part of the pass that this lane compares.
    part: Option<Part>,
    noted_at: Instant,
    /// The generation that this pass compares as a whole, at full speed.
    generation: Option<u64>,
    /// The number of records that were newer than the database in the last pass that this lane ended. Another number is
    /// logged.
    newer: u64,
}

impl Reconcile {
    /// Compares so many links per [`EVERY`], over all lanes; with 0 only a data set that may lack changes of long ago.
    pub fn new(inspector: Inspector, links_per_s: u32, lane: Lane) -> Self {
        let slice = lane.slice;
        // The first lanes compare one link more, so that the sum is right.
        let rest = u32::from(slice.number < links_per_s % slice.of);
        Self {
            inspector,
            lane,
            links_per_step: (links_per_s / slice.of + rest).max(u32::from(links_per_s > 0)),
            part: None,
            noted_at: Instant::now(),
            generation: None,
            newer: 0,
        }
    }

    /// Stores the position; a pass that began again has another part for this lane.
    async fn note(&mut self) -> Result<(), InspectError> {
        self.noted_at = Instant::now();
        if let Some(part) = self.part {
            let (store, lane) = (&self.inspector.store, self.lane.slice.number);
            if !store.note_part(Self::NAME, lane, part).await? {
                self.part = None;
            }
        }
        Ok(())
    }

    /// Compares the next links of a part, at most `limit`; returns the rest of the part, or the next work.
    async fn compare(
        &mut self,
        walk: Walk,
        mut part: Part,
        limit: u32,
    ) -> Result<Share, InspectError> {
        let Inspector {
            store,
            index,
            clock,
        } = &self.inspector;
        let page = store
            .records_between(part.from, part.to, limit, clock.now())
            .await?;
        let drifts = index.compare(&page.records).await?;
        let ended = page.records.count_over(index.ended_days());
        let suspects = drifts.iter().map(|(at, _)| page.records.get(*at).code);
        let confirmed = self.inspector.confirm(suspects.collect()).await?;
        let count = |is_counted: fn(&Drift) -> bool| {
            let drifts = confirmed.drifts.iter();
            drifts.filter(|drift| is_counted(drift)).count()
        };
        // A newer record in Redis needs an operator: SQL may have lost a change.
        let newer = count(|drift| matches!(drift, Drift::Newer(_)));
        let lost = count(|drift| !drift.is_harmless() && !matches!(drift, Drift::Newer(_)));
        index.fill(&confirmed.records).await?;
        if lost > 0 {
            tracing::info!(links = lost, "records in Redis were corrected");
        }
        JOBS.add_items(Self::NAME, page.records.len() as u64);
        part.found.newer += newer as u64;
        part.found.ended += ended;
        let Some(next) = page.next else {
            let lane = self.lane.slice.number;
            return Ok(store.finish_part(walk, lane, part).await?);
        };
        part.from = next;
        Ok(Share::Part(part))
    }

    /// Compares all campaigns and repairs their records; returns the number of newer records.
    async fn compare_campaigns(&mut self) -> Result<u64, InspectError> {
        let mut drifts = self.inspector.compare_campaigns().await?.drifts;
        let all = drifts.len();
        drifts.retain(|found| !matches!(found.drift, Drift::Newer(_)));
        let newer = (all - drifts.len()) as u64;
        if !drifts.is_empty() {
            tracing::info!(campaigns = drifts.len(), "records in Redis were corrected");
            self.inspector.repair_campaigns(drifts).await?;
        }
        Ok(newer)
    }

    /// Ends a pass: all links were compared since its beginning. Returns the next work.
    async fn end_pass(&mut self, walk: Walk, pass: Pass) -> Result<Share, InspectError> {
        let newer = pass.found.newer + self.compare_campaigns().await?;
        if newer > 0 && newer != self.newer {
            tracing::warn!(
                records = newer,
                "Redis has newer records than the database; `shortlink audit` shows them"
            );
        }
        self.newer = newer;
        let store = &self.inspector.store;
        refill::note_ended(store, pass.found.ended).await?;
        if let Some(generation) = walk.generation {
            store.note_compared(generation).await?;
            tracing::info!(generation, "the data set of Redis was compared as a whole");
        }
        // The next pass compares no data set as a whole, unless another one is incomplete by then.
        let walk = Walk {
            generation: None,
            ..walk
        };
        let lane = self.lane.slice.number;
        self.generation = None;
        Ok(store.end_pass(walk, lane, pass).await?)
    }
}

#[async_trait]
impl Job for Reconcile {
    type Error = InspectError;
    const NAME: &'static str = "reconcile";
    const FAILURE: &'static str = "links can't be compared with Redis; trying again until they can";
    const LEASE: Option<Duration> = Some(Duration::from_secs(30));

    fn lane(&self) -> Lane {
        self.lane.clone()
    }

    async fn begin(&mut self) -> Result<(), InspectError> {
        self.part = None;
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, InspectError> {
        let mut left = self.links_per_step;
        let store = Arc::clone(&self.inspector.store);
        let generation = store.incomplete_generation().await?;
        if generation.is_some() {
            left = left.max(FAST);
        }
        if left == 0 {
            return Ok(Next::Idle);
        }
        let walk = Walk {
            name: Self::NAME,
            lanes: self.lane.slice.of,
            links: PART,
            generation,
        };
        if self.generation != generation {
            self.part = None;
            self.generation = generation;
        }
        let lane = self.lane.slice.number;
        let mut share = match self.part {
            Some(part) => Share::Part(part),
            None => store.take_part(walk, lane).await?,
        };
        while left > 0
            && let Share::Part(part) = share
        {
            let limit = left.min(PAGE);
            left -= limit;
            share = self.compare(walk, part, limit).await?;
            self.part = match share {
                Share::Part(part) => Some(part),
                Share::Wait | Share::End(_) => None,
            };
        }
        if let Share::End(pass) = share {
            if let Share::Part(part) = self.end_pass(walk, pass).await? {
                self.part = Some(part);
            }
            return Ok(Next::Idle);
        }
        if share == Share::Wait {
            return Ok(Next::Idle);
        }
        if self.noted_at.elapsed() >= NOTE_EVERY {
            self.note().await?;
        }
        Ok(match generation {
            Some(_) => Next::Now,
            None => Next::Idle,
        })
    }

    async fn end(&mut self) -> Result<(), InspectError> {
        self.note().await
    }
}
