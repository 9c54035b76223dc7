//! Compares all links with Redis, slowly and continuously, and repairs their records: a Redis that
//! lost some keys recovers by itself.

use std::time::Duration;

use shortlink_core::ports::Place;
use shortlink_core::records::Drift;
use tokio::time::Instant;

use super::drift::{InspectError, Inspector};
use crate::jobs::{Job, Next};

/// The interval at which some links are compared.
pub const EVERY: Duration = Duration::from_secs(1);

/// The interval at which the position is stored.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// The most links per comparison.
const PAGE: u32 = 2048;

/// Compares links with Redis and repairs their records.
pub struct Reconcile {
    inspector: Inspector,
    links_per_step: u32,
    position: Place,
    noted_at: Instant,
}

impl Reconcile {
    /// Compares so many links per [`EVERY`].
    pub fn new(inspector: Inspector, links_per_s: u32) -> Self {
        Self {
            inspector,
            links_per_step: links_per_s,
            position: Place::START,
            noted_at: Instant::now(),
        }
    }

    async fn note(&mut self) -> Result<(), InspectError> {
        self.noted_at = Instant::now();
        let text = Some(self.position.0.to_string());
        Ok(self.inspector.store.take_note(Self::NAME, text).await?)
    }

    /// Compares the next links, at most `limit`; returns the position of those after them.
    async fn compare(&self, limit: u32) -> Result<Option<Place>, InspectError> {
        let Inspector {
            store,
            index,
            clock,
        } = &self.inspector;
        let page = store
            .records_after(self.position, limit, clock.now())
            .await?;
        let drifts = index.compare(&page.records).await?;
        let suspects = drifts.iter().map(|(at, _)| page.records.get(*at).code);
        let confirmed = self.inspector.confirm(suspects.collect()).await?;
        let count = |is_counted: fn(&Drift) -> bool| {
            let drifts = confirmed.drifts.iter();
            drifts.filter(|drift| is_counted(drift)).count()
        };
        // A newer record in Redis needs an operator: SQL may have lost a change.
        let newer = count(|drift| matches!(drift, Drift::Newer(_)));
        if newer > 0 {
            tracing::warn!(
                links = newer,
                "Redis has newer records than the database; `shortlink audit` shows them"
            );
        }
        let lost = count(|drift| !matches!(drift, Drift::Long | Drift::Newer(_)));
        index.fill(&confirmed.records).await?;
        if lost > 0 {
            tracing::info!(links = lost, "records in Redis were put right");
        }
        Ok(page.next)
    }

    /// Compares all campaigns and repairs their records.
    async fn compare_campaigns(&self) -> Result<(), InspectError> {
        let mut drifts = self.inspector.compare_campaigns().await?.drifts;
        let all = drifts.len();
        drifts.retain(|found| !matches!(found.drift, Drift::Newer(_)));
        if drifts.len() < all {
            tracing::warn!(
                campaigns = all - drifts.len(),
                "Redis has newer records than the database; `shortlink audit` shows them"
            );
        }
        if !drifts.is_empty() {
            tracing::info!(campaigns = drifts.len(), "records in Redis were put right");
            self.inspector.repair_campaigns(drifts).await?;
        }
        Ok(())
    }
}

impl Job for Reconcile {
    type Error = InspectError;
    const NAME: &'static str = "reconcile";
    const FAILURE: &'static str = "links can't be compared with Redis; trying again until they can";
    const LEASE: Option<Duration> = Some(Duration::from_secs(30));

    async fn begin(&mut self) -> Result<(), InspectError> {
        let note = self.inspector.store.note(Self::NAME).await?;
        let place = note.and_then(|text| text.parse().ok());
        self.position = place.map_or(Place::START, Place);
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, InspectError> {
        let mut left = self.links_per_step;
        while left > 0 {
            let limit = left.min(PAGE);
            left -= limit;
            if let Some(next) = self.compare(limit).await? {
                self.position = next;
            } else {
                self.position = Place::START;
                left = 0;
                self.compare_campaigns().await?;
            }
        }
        if self.noted_at.elapsed() >= NOTE_EVERY {
            self.note().await?;
        }
        Ok(Next::Idle)
    }

    async fn end(&mut self) -> Result<(), InspectError> {
        self.note().await
    }
}
