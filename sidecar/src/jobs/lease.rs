//! Claims of jobs in SQL.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;
use crate::core::ports::StoreError;
use crate::store::Store;

/// The place where this process claims jobs.
#[derive(Clone)]
pub struct Claims {
    /// The store of the claims.
    pub store: Arc<Store>,
    /// The clock that claims expire by.
    pub clock: Arc<dyn Clock>,
    /// The name of this process, which no other process has.
    pub holder: String,
}

/// The claim of one job, which expires unless it is renewed.
pub(super) struct Lease {
    claims: Claims,
    job: &'static str,
    length: Duration,
    /// The time of the last claim; `None` while another process may hold the job.
    claimed_at: Option<Instant>,
}

impl Lease {
    pub(super) fn new(claims: Claims, job: &'static str, length: Duration) -> Self {
        Self {
            claims,
            job,
            length,
            claimed_at: None,
        }
    }

    /// Claims the job, or renews the claim when it is due; `false` if another process holds it.
    pub(super) async fn claim(&mut self) -> Result<bool, StoreError> {
        let is_fresh = |at: Instant| at.elapsed() < self.length / 3;
        if self.claimed_at.is_some_and(is_fresh) {
            return Ok(true);
        }
        let (begun, now) = (Instant::now(), self.claims.clock.now());
        let Claims { store, holder, .. } = &self.claims;
        let is_ours = store
            .claim(self.job, holder, now, now + self.length)
            .await?;
        self.claimed_at = is_ours.then_some(begun);
        Ok(is_ours)
    }

    /// Renews the claim until it is lost.
    pub(super) async fn keep(&mut self) -> Result<(), StoreError> {
        while self.claim().await? {
            tokio::time::sleep(self.length / 3).await;
        }
        Ok(())
    }

    /// Releases the claim before it expires.
    pub(super) async fn release(&mut self) {
        let Claims { store, holder, .. } = &self.claims;
        if self.claimed_at.take().is_some()
            && let Err(error) = store.release(self.job, holder).await
        {
            let error = &error as &dyn Error;
            tracing::debug!(
                error,
                job = self.job,
                "the claim was not released; it expires"
            );
        }
    }
}
