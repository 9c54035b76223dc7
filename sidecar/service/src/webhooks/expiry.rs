//! The job that reports expired links to webhooks, in bounded steps: one process at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use shortlink_core::clock::Clock;
use shortlink_core::ports::StoreError;
use shortlink_store::Store;

use crate::jobs::{JOBS, Job, Next};

/// The interval of the search for expired links.
pub const EVERY: Duration = Duration::from_secs(5);

/// The lag behind the clock, so that a link stored with an expiry just ahead is never missed.
const LAG: SignedDuration = SignedDuration::from_secs(10);

/// The most links of a step.
const BATCH: u32 = 1000;

/// Reports expired links.
pub struct ReportExpired {
    /// The store of links and events.
    pub store: Arc<Store>,
    /// The clock that links expire by.
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl Job for ReportExpired {
    type Error = StoreError;
    const NAME: &'static str = "expired";
    const FAILURE: &'static str = "expired links are not reported to webhooks; trying again";
    const LEASE: Option<Duration> = Some(Duration::from_secs(10));

    async fn step(&mut self) -> Result<Next, StoreError> {
        let now = self.clock.now();
        let reported = self.store.report_expired(now - LAG, BATCH, now).await?;
        JOBS.add_items(Self::NAME, reported);
        let is_last = reported < BATCH.into();
        Ok(if is_last { Next::Idle } else { Next::Rest })
    }
}
