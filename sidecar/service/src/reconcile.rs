//! Compares all links with Redis, slowly and continuously, and repairs their records: a Redis that
//! lost some keys recovers by itself.

use std::time::Duration;

use async_trait::async_trait;
use shortlink_core::ports::Place;
use shortlink_core::records::Drift;
use tokio::time::Instant;

use super::drift::{InspectError, Inspector};
use crate::jobs::{Job, Next};
use crate::refill;

/// The interval at which some links are compared.
pub const EVERY: Duration = Duration::from_secs(1);

/// The interval at which the position is stored.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// The most links per comparison.
const PAGE: u32 = 2048;

/// The most links per step while a data set is compared as a whole.
const FAST: u32 = 50_000;

/// Compares links with Redis and repairs their records.
pub struct Reconcile {
    inspector: Inspector,
    links_per_step: u32,
    position: Place,
    /// The number of links before the position that need no record any more.
    ended: u64,
    noted_at: Instant,
    /// The generation that is compared as a whole, at full speed, from the beginning.
    incomplete: Option<u64>,
    /// The number of records that were newer than the database in the last pass. Another number is logged.
    newer: usize,
    /// The same in this pass so far.
    newer_now: usize,
}

impl Reconcile {
    /// Compares so many links per [`EVERY`]; with 0 only a data set that may lack changes of long ago.
    pub fn new(inspector: Inspector, links_per_s: u32) -> Self {
        Self {
            inspector,
            links_per_step: links_per_s,
            position: Place::START,
            ended: 0,
            noted_at: Instant::now(),
            incomplete: None,
            newer: 0,
            newer_now: 0,
        }
    }

    async fn note(&mut self) -> Result<(), InspectError> {
        self.noted_at = Instant::now();
        let text = Some(format!("{} {}", self.position.0, self.ended));
        Ok(self.inspector.store.take_note(Self::NAME, text).await?)
    }

    /// Compares the next links, at most `limit`; returns the position of those after them.
    async fn compare(&mut self, limit: u32) -> Result<Option<Place>, InspectError> {
        let Inspector {
            store,
            index,
            clock,
        } = &self.inspector;
        let page = store
            .records_after(self.position, limit, clock.now())
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
            tracing::info!(links = lost, "records in Redis were put right");
        }
        self.newer_now += newer;
        self.ended += ended;
        Ok(page.next)
    }

    /// Compares all campaigns and repairs their records.
    async fn compare_campaigns(&mut self) -> Result<(), InspectError> {
        let mut drifts = self.inspector.compare_campaigns().await?.drifts;
        let all = drifts.len();
        drifts.retain(|found| !matches!(found.drift, Drift::Newer(_)));
        self.newer_now += all - drifts.len();
        if !drifts.is_empty() {
            tracing::info!(campaigns = drifts.len(), "records in Redis were put right");
            self.inspector.repair_campaigns(drifts).await?;
        }
        Ok(())
    }
}

impl Reconcile {
    /// All links and campaigns were compared since the beginning.
    async fn end_pass(&mut self) -> Result<(), InspectError> {
        let newer = std::mem::take(&mut self.newer_now);
        if newer > 0 && newer != self.newer {
            tracing::warn!(
                records = newer,
                "Redis has newer records than the database; `shortlink audit` shows them"
            );
        }
        self.newer = newer;
        let ended = std::mem::take(&mut self.ended);
        refill::note_ended(&self.inspector.store, ended).await?;
        if let Some(generation) = self.incomplete.take() {
            self.inspector.store.note_compared(generation).await?;
            tracing::info!(generation, "the data set of Redis was compared as a whole");
        }
        Ok(())
    }
}

#[async_trait]
impl Job for Reconcile {
    type Error = InspectError;
    const NAME: &'static str = "reconcile";
    const FAILURE: &'static str = "links can't be compared with Redis; trying again until they can";
    const LEASE: Option<Duration> = Some(Duration::from_secs(30));

    async fn begin(&mut self) -> Result<(), InspectError> {
        let note = self.inspector.store.note(Self::NAME).await?;
        let note = note
            .as_deref()
            .map(|text| text.split_once(' ').unwrap_or((text, "0")));
        let note = note.and_then(|(place, ended)| Some((place.parse().ok()?, ended.parse().ok()?)));
        let (place, ended) = note.unwrap_or((Place::START.0, 0));
        (self.position, self.ended) = (Place(place), ended);
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, InspectError> {
        let mut left = self.links_per_step;
        let incomplete = self.inspector.store.incomplete_generation().await?;
        if incomplete.is_some() {
            left = left.max(FAST);
        }
        if incomplete != self.incomplete {
            (self.position, self.ended) = (Place::START, 0);
            // Noted first: a run after a failure must not begin in the middle.
            self.note().await?;
            self.incomplete = incomplete;
        }
        while left > 0 {
            let limit = left.min(PAGE);
            left -= limit;
            if let Some(next) = self.compare(limit).await? {
                self.position = next;
            } else {
                self.position = Place::START;
                left = 0;
                self.compare_campaigns().await?;
                self.end_pass().await?;
            }
        }
        if self.noted_at.elapsed() >= NOTE_EVERY {
            self.note().await?;
        }
        Ok(match self.incomplete {
            Some(_) => Next::Now,
            None => Next::Idle,
        })
    }

    async fn end(&mut self) -> Result<(), InspectError> {
        self.note().await
    }
}
