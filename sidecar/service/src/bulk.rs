//! Bulk jobs: works off those that callers have created.
//!
//! Each step is a transaction that also stores the position of the next one ([`Store::step_bulk_job`]), then its changes
//! are published. A process that is killed between the two leaves the publication to the outbox. Jobs take turns, so a small
//! one does not wait for a large one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use shortlink_core::api_key::{KeyState, Scope};
use shortlink_core::boxed;
use shortlink_core::bulk::{BulkJob, BulkState, BulkStep};
use shortlink_core::clock::Clock;
use shortlink_core::ports::{Delivery, StoreError};
use shortlink_core::target::domains::TargetDomains;
use shortlink_store::Store;

use crate::jobs::{Job, Next};

/// The interval of the search for new jobs.
pub const EVERY: Duration = Duration::from_secs(1);

/// The time for which jobs that have ended are stored, with their results.
pub const STORED_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Does steps of jobs.
#[derive(Clone)]
pub struct Bulk {
    /// The store of the jobs.
    pub store: Arc<Store>,
    /// Delivers changes to Redis.
    pub delivery: Arc<dyn Delivery>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The domains that targets may have.
    pub target_domains: TargetDomains,
}

impl Bulk {
    /// Does a step of a job, as far as its API key still allows it; returns true after the last one.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn step(&self, job: &BulkJob) -> Result<bool, StoreError> {
        let now = self.clock.now();
        if let Some(reason) = self.objection(job).await? {
            let store = &self.store;
            store
                .end_bulk_job(job.id, BulkState::Failed, Some(reason), None, now)
                .await?;
            return Ok(true);
        }
        let BulkStep {
            links,
            receipt,
            is_last,
        } = self.store.step_bulk_job(job.id, now).await?;
        if !links.is_empty() {
            self.delivery.deliver(&links, receipt).await;
        }
        Ok(is_last)
    }

    /// The reason why the API key of a job does not allow it any more. The key and its policy may change while the job
    /// runs.
    async fn objection(&self, job: &BulkJob) -> Result<Option<String>, StoreError> {
        let Some(key) = self.store.find_key(&job.key_id).await? else {
            return Ok(Some("the API key does not exist".to_owned()));
        };
        let state = key.state(self.clock.now());
        if state != KeyState::Live {
            return Ok(Some(format!("the API key is {state}")));
        }
        if !key.allows(Scope::LinksWrite) {
            return Ok(Some(format!(
                "the API key lacks the scope {}",
                Scope::LinksWrite
            )));
        }
        if job.own.is_none() && key.own_ids().is_some() {
            return Ok(Some(
                "the API key reaches only its own links now".to_owned(),
            ));
        }
        let Some(target) = &job.change.target else {
            return Ok(None);
        };
        let allowed = self
            .target_domains
            .check(target, key.policy.allowed_domains.as_ref());
        Ok(allowed.err().map(|error| format!("longUrl {error}")))
    }
}

/// The background job.
pub struct BulkWorker {
    bulk: Bulk,
    /// The job that did the last step.
    last: u64,
}

impl BulkWorker {
    /// Prepares the background job.
    pub fn new(bulk: Bulk) -> Self {
        Self { bulk, last: 0 }
    }
}

#[async_trait]
impl Job for BulkWorker {
    type Error = StoreError;
    const NAME: &'static str = "bulk";
    const FAILURE: &'static str = "bulk jobs do not proceed; trying again";
    const LEASE: Option<Duration> = Some(Duration::from_secs(5));

    async fn step(&mut self) -> Result<Next, StoreError> {
        let Bulk { store, clock, .. } = &self.bulk;
        let Some(job) = store.next_bulk_job(self.last).await? else {
            let is_rest = store.forget_bulk_jobs(clock.now() - STORED_FOR).await?;
            return Ok(if is_rest { Next::Rest } else { Next::Idle });
        };
        self.last = job.id;
        if self.bulk.step(&job).await? {
            tracing::info!(job = job.id, action = %job.action, "a bulk job has ended");
        }
        // Requests for single links get their share of the database; callers wait for this job, too.
        Ok(Next::ShortRest)
    }
}
