//! Counting the people of days again that have lost somebody.

use std::collections::HashMap;
use std::time::Duration;

use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use super::{Outcome, Reclassify, Report, again};
use crate::core::ports::{StaleDay, StoreError};
use crate::core::visit::sketch::Sketch;

/// How many days are counted together, of a campaign or of all. A sketch takes 4 KB.
const TOGETHER: u32 = 1024;

/// How many sketches are written in one transaction.
const WRITTEN_TOGETHER: usize = 32;

/// How many visits are read at a time.
const PAGE: u32 = 5000;

/// The name of the task: who counts the same days at the same time only starts the others anew.
const TASK: &str = "people";

/// How long a claim is good that is not renewed.
const CLAIM: SignedDuration = SignedDuration::from_secs(10);

/// How long is waited before somebody else's claim is looked at again.
const WAIT: Duration = Duration::from_millis(250);

impl Reclassify {
    /// Counts the people of all days again that have lost somebody, whoever has noted them.
    pub(super) async fn count_people(
        &self,
        report: &mut Report,
        shutdown: &CancellationToken,
    ) -> Result<Outcome, StoreError> {
        let mut is_waiting = false;
        let outcome = loop {
            let days = again(|| self.store.stale_days(TOGETHER)).await?;
            if days.is_empty() {
                break Outcome::Done;
            }
            if shutdown.is_cancelled() {
                break Outcome::Stopped;
            }
            if !self.claims().await? {
                if !is_waiting {
                    tracing::info!("another process counts people again, or was killed; waiting");
                    is_waiting = true;
                }
                tokio::time::sleep(WAIT).await;
                continue;
            }
            tracing::info!(days = days.len(), "the people of days are counted again");
            let Some(found) = self.people_of(days, shutdown).await? else {
                break Outcome::Stopped;
            };
            let mut replaced = Vec::new();
            for some in found.chunks(WRITTEN_TOGETHER) {
                replaced.extend(again(|| self.store.replace_people(some.to_vec())).await?);
            }
            let Some(found) = self.people_of(replaced, shutdown).await? else {
                break Outcome::Stopped;
            };
            for some in found.chunks(WRITTEN_TOGETHER) {
                report.days += again(|| self.store.settle_people(some.to_vec())).await?;
            }
        };
        again(|| self.store.release(TASK, &self.holder)).await?;
        Ok(outcome)
    }

    async fn claims(&self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        again(|| self.store.claim(TASK, &self.holder, now, now + CLAIM)).await
    }

    /// Reads who the people of days were, from the visits that there are; `None` when it was asked
    /// to stop.
    async fn people_of(
        &self,
        days: Vec<StaleDay>,
        shutdown: &CancellationToken,
    ) -> Result<Option<Vec<(StaleDay, Sketch)>>, StoreError> {
        let each = || days.iter().map(|day| day.day);
        let (Some(first), Some(last)) = (each().min(), each().max()) else {
            return Ok(Some(Vec::new()));
        };
        let sketches = days.iter();
        let sketches = sketches.map(|day| ((day.campaign, day.day), Sketch::default()));
        let mut sketches: HashMap<(i64, i64), Sketch> = sketches.collect();
        let mut after = i64::MIN;
        loop {
            if shutdown.is_cancelled() {
                return Ok(None);
            }
            // The claim only saves work: what counts is each day's generation.
            self.claims().await?;
            let page = again(|| self.store.people_after(after, (first, last), PAGE)).await?;
            let Some(reached) = page.last else {
                break;
            };
            after = reached;
            for (campaign, day, visitor) in page.people {
                // Those of a campaign are of all, too.
                for of in [0, campaign] {
                    if let Some(sketch) = sketches.get_mut(&(of, day)) {
                        sketch.add(visitor);
                    }
                }
            }
        }
        let found = days.into_iter().filter_map(|day| {
            let sketch = sketches.remove(&(day.campaign, day.day))?;
            Some((day, sketch))
        });
        Ok(Some(found.collect()))
    }
}
