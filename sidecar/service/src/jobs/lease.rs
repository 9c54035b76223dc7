//! Claims of jobs in SQL.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use shortlink_core::clock::Clock;
use shortlink_core::ports::StoreError;
use shortlink_store::{Claim, Store};
use tokio::time::Instant;

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
    task: String,
    length: Duration,
    /// The time of the last claim; `None` while another process may hold the job.
    claimed_at: Option<(Instant, Timestamp)>,
    /// The stamp of another process' claim, and when it was seen first. A claim whose stamp stays the same
    /// for the length of a lease is not renewed any more: no two clocks are compared.
    seen: Option<(i64, Instant)>,
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// This process has held the job since its last claim.
    Kept,
    /// This process holds the job; another may have held it since the last claim.
    New,
    /// Another process holds the job.
    Others,
}

impl Lease {
    pub(super) fn new(claims: Claims, task: String, length: Duration) -> Self {
        Self {
            claims,
            task,
            length,
            claimed_at: None,
            seen: None,
        }
    }

    /// Claims the job, or renews the claim when it is due.
    pub(super) async fn claim(&mut self) -> Result<Hold, StoreError> {
        if self.age().is_some_and(|age| age < self.length / 3) {
            return Ok(Hold::Kept);
        }
        self.renew().await
    }

    /// Claims the job or renews the claim.
    pub(super) async fn renew(&mut self) -> Result<Hold, StoreError> {
        let (begun, now) = (Instant::now(), self.claims.clock.now());
        let Claims { store, holder, .. } = &self.claims;
        let expired = self
            .seen
            .filter(|(_, since)| since.elapsed() >= self.length);
        let expired = expired.map(|(stamp, _)| stamp);
        // Milliseconds: each renewal has another stamp.
        let stamp = (now + self.length).as_millisecond();
        let is_ours = match store.claim(&self.task, holder, stamp, expired).await? {
            Claim::Ours => {
                self.seen = None;
                true
            }
            Claim::Others(stamp) => {
                self.see(stamp, begun);
                false
            }
        };
        // Of an expired claim it is unknown who has held the job in between.
        let is_kept = self.is_valid();
        self.claimed_at = is_ours.then_some((begun, now));
        Ok(match (is_ours, is_kept) {
            (true, true) => Hold::Kept,
            (true, false) => Hold::New,
            (false, _) => Hold::Others,
        })
    }

    /// Looks at the claim of another process, so that it is known when it expires.
    pub(super) async fn watch(&mut self) -> Result<(), StoreError> {
        let begun = Instant::now();
        let stamp = self.claims.store.claimed(&self.task).await?;
        self.see(stamp, begun);
        Ok(())
    }

    fn see(&mut self, stamp: Option<i64>, at: Instant) {
        let known = self.seen.filter(|(known, _)| Some(*known) == stamp);
        self.seen = known.or(stamp.map(|stamp| (stamp, at)));
    }

    /// Reports whether this process may hold the claim.
    pub(super) fn is_held(&self) -> bool {
        self.claimed_at.is_some()
    }

    /// Renews the claim until it is lost or has expired. A renewal that fails is tried again.
    pub(super) async fn keep(&mut self) {
        while let Some((at, _)) = self.claimed_at.filter(|_| self.is_valid()) {
            tokio::time::sleep_until(at + self.length / 3).await;
            if !self.is_valid() {
                return;
            }
            match tokio::time::timeout_at(at + self.length, self.renew()).await {
                Ok(Ok(Hold::Kept)) => {}
                Ok(Ok(Hold::New | Hold::Others)) | Err(_) => return,
                Ok(Err(error)) => {
                    log_failed_renewal(&self.task, &error);
                    let next = Instant::now() + self.length / 10;
                    tokio::time::sleep_until(next.min(at + self.length)).await;
                }
            }
        }
    }

    /// Reports whether the claim expires before, or soon after, the end of a pause.
    pub(super) fn ends_within(&self, pause: Duration) -> bool {
        self.age()
            .is_some_and(|age| age + pause > self.length / 3 * 2)
    }

    /// Releases the claim before it expires.
    pub(super) async fn release(&mut self) {
        let Claims { store, holder, .. } = &self.claims;
        if self.claimed_at.take().is_some()
            && let Err(error) = store.release(&self.task, holder).await
        {
            let error = &error as &dyn Error;
            tracing::debug!(
                error,
                job = self.task,
                "the claim was not released; it expires"
            );
        }
    }

    fn is_valid(&self) -> bool {
        self.age().is_some_and(|age| age < self.length)
    }

    /// Returns the time since the last claim, by the clock that has advanced further: one of them
    /// stands still while the machine does.
    fn age(&self) -> Option<Duration> {
        let (at, moment) = self.claimed_at?;
        let by_clock = self.claims.clock.now().duration_since(moment);
        Some(at.elapsed().max(by_clock.try_into().unwrap_or_default()))
    }
}

fn log_failed_renewal(job: &str, error: &StoreError) {
    let error = error as &dyn Error;
    tracing::debug!(error, job, "the claim is not renewed yet; trying again");
}
