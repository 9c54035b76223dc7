//! Runs background jobs: one runner for all of them.
//!
//! A job is a sequence of bounded steps. The runner claims the job if one process at a time may do
//! it, renews the claim while a step runs, pauses between steps, backs off after errors and panics,
//! logs each kind of failure once a minute at most, measures each step, and stops between two steps
//! or soon after shutdown. Commands run the same jobs in the foreground, until there is nothing left to do.

mod failures;
pub mod lanes;
mod lease;
mod meters;

use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use failures::Failures;
pub use lanes::{Lane, Members};
pub use lease::Claims;
use lease::{Hold, Lease};
pub use meters::{JOBS, JobMeters};
use shortlink_core::clock::Clock;
use shortlink_core::ports::StoreError;

/// The longest pause between two steps while work is waiting.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The interval at which a command tries to claim a job that another process holds.
const CLAIM_EVERY: Duration = Duration::from_millis(250);

/// The longest time for which a command tries to claim a job while SQL fails.
const STORE_PATIENCE: Duration = Duration::from_secs(15);

/// Work in bounded steps.
///
/// A step may be cut off at any `await`: when the claim is lost, soon after shutdown, and when the
/// process is killed.
/// So progress is stored, and a repeated step does no harm.
///
/// Boxed futures, so that each job is compiled where it is defined, and not with what starts it.
#[async_trait]
pub trait Job: Send {
    /// The error of a step.
    type Error: Error + From<StoreError> + Send + Sync + 'static;

    /// The name in logs, in metrics, and of the claim.
    const NAME: &'static str;

    /// The message of the log when a step fails.
    const FAILURE: &'static str;

    /// The level of that message.
    const LEVEL: Level = Level::WARN;

    /// The time for which a claim is valid that is not renewed; `None` if every process runs the
    /// job. A claim is renewed after a third of it, and released before a pause that would make it
    /// older than two thirds. A waiting process measures it by its own monotonic clock.
    const LEASE: Option<Duration> = None;

    /// The time that a step may go on after shutdown.
    const GRACE: Duration = Duration::from_secs(1);

    /// The part of the job that this is.
    fn lane(&self) -> Lane {
        Lane::default()
    }

    /// Prepares the first step after the job was claimed: finds where the last holder stopped.
    async fn begin(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Does a bounded part of the work.
    async fn step(&mut self) -> Result<Next, Self::Error>;

    /// Ends the work before the claim is released, and at shutdown: notes where to continue. Does
    /// not run once the claim is lost, because another process may have finished the work.
    async fn end(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The time of the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once.
    Now,
    /// After a pause as long as this step, so that the job takes at most half of the database.
    Rest,
    /// After a pause half as long as this step: for jobs that callers wait for.
    ShortRest,
    /// After the interval of the job: nothing is left to do.
    Idle,
}

/// The end of a job in the foreground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do.
    Done,
    /// It was asked to stop; the next run continues.
    Stopped,
    /// Another process holds the job.
    Claimed,
}

/// A job and the claim to it.
pub struct Run<J> {
    /// The job.
    pub job: J,
    clock: Arc<dyn Clock>,
    lease: Option<Lease>,
    has_begun: bool,
}

impl<J: Job> Run<J> {
    /// Prepares to run a job.
    pub fn new(job: J, claims: &Claims) -> Self {
        let lease = |length| Lease::new(claims.clone(), job.lane().task(J::NAME), length);
        Self {
            clock: Arc::clone(&claims.clock),
            lease: J::LEASE.map(lease),
            has_begun: false,
            job,
        }
    }

    /// Runs the job at an interval until `shutdown`.
    pub async fn forever(mut self, every: Duration, shutdown: CancellationToken) {
        let mut failures = Failures::<J>::default();
        JOBS.add(J::NAME);
        while !shutdown.is_cancelled() {
            let begun = Instant::now();
            let turn = AssertUnwindSafe(self.turn(&shutdown)).catch_unwind().await;
            let took = begun.elapsed();
            let rest = match turn {
                Ok(Turn::Done(next)) => {
                    JOBS.succeeded(J::NAME, took, self.clock.now());
                    failures.end();
                    self.rest(next, every, took).await
                }
                Ok(Turn::Claimed) => J::LEASE.map_or(every, |lease| every.clamp(lease / 3, lease)),
                Ok(Turn::Stopped) => break,
                Ok(Turn::Unclaimed(error)) => {
                    self.fail(&mut failures, &error.into(), took).await;
                    failures.back_off(every)
                }
                Ok(Turn::Failed(error)) => {
                    self.fail(&mut failures, &error, took).await;
                    failures.back_off(every)
                }
                Err(panic) => {
                    JOBS.failed(J::NAME, took);
                    failures.log_panic(&*panic);
                    // The state after a panic must not be noted as progress.
                    self.has_begun = false;
                    self.release().await;
                    failures.back_off(every)
                }
            };
            if !rest.is_zero() {
                pause(rest, &shutdown).await;
            }
        }
        self.stop().await;
    }

    /// Runs the job until nothing is left to do or `shutdown`. Waits for `patience` if another
    /// process holds it. Reports after each step, and `None` when it begins to wait.
    ///
    /// # Errors
    /// Fails if a step does, or if SQL fails to grant the claim for as long as patience lasts.
    pub async fn finish(
        &mut self,
        patience: Duration,
        shutdown: &CancellationToken,
        report: &mut (dyn FnMut(Option<&J>) + Send),
    ) -> Result<Outcome, J::Error> {
        let mut waiting_since: Option<Instant> = None;
        let mut failing_since: Option<Instant> = None;
        let outcome = loop {
            if shutdown.is_cancelled() {
                break Ok(Outcome::Stopped);
            }
            let begun = Instant::now();
            let turn = self.turn(shutdown).await;
            if !matches!(turn, Turn::Unclaimed(_)) {
                failing_since = None;
            }
            let rest = match turn {
                Turn::Done(next) => {
                    waiting_since = None;
                    report(Some(&self.job));
                    if next == Next::Idle {
                        break Ok(Outcome::Done);
                    }
                    self.rest(next, Duration::ZERO, begun.elapsed()).await
                }
                Turn::Claimed => {
                    if waiting_since.is_none() && !patience.is_zero() {
                        report(None);
                    }
                    if waiting_since.get_or_insert(begun).elapsed() >= patience {
                        break Ok(Outcome::Claimed);
                    }
                    CLAIM_EVERY
                }
                Turn::Unclaimed(error) => {
                    let since = *failing_since.get_or_insert(begun);
                    if since.elapsed() >= patience.min(STORE_PATIENCE) {
                        break Err(error.into());
                    }
                    if since == begun {
                        let error = &error as &dyn Error;
                        tracing::warn!(
                            error,
                            job = J::NAME,
                            "the job can't be claimed; trying again"
                        );
                    }
                    CLAIM_EVERY
                }
                Turn::Stopped => break Ok(Outcome::Stopped),
                Turn::Failed(error) => break Err(error),
            };
            if !rest.is_zero() {
                pause(rest, shutdown).await;
            }
        };
        self.stop().await;
        outcome
    }

    /// Claims the job and does a step, but not for long beyond `shutdown`.
    async fn turn(&mut self, shutdown: &CancellationToken) -> Turn<J::Error> {
        tokio::select! {
            biased;
            turn = self.attempt() => turn,
            () = grace::<J>(shutdown) => Turn::Stopped,
        }
    }

    /// Claims the job and does a step. If the claim expires meanwhile, the step is cut off, and the
    /// job begins again once it is claimed back.
    async fn attempt(&mut self) -> Turn<J::Error> {
        loop {
            if !self.job.lane().is_ours() {
                return self.pass_on().await;
            }
            let claimed = claim(&mut self.lease).await;
            self.count_lane();
            match claimed {
                Ok(Hold::Kept) => {}
                Ok(Hold::New) => self.has_begun = false,
                Ok(Hold::Others) => {
                    // The notes of the job are another process' now.
                    self.has_begun = false;
                    return Turn::Claimed;
                }
                Err(error) => return Turn::Unclaimed(error),
            }
            tokio::select! {
                biased;
                () = keep(&mut self.lease) => self.has_begun = false,
                next = step(&mut self.job, &mut self.has_begun) => {
                    return next.map_or_else(Turn::Failed, Turn::Done);
                }
            }
        }
    }

    /// Leaves the lane to another process.
    async fn pass_on(&mut self) -> Turn<J::Error> {
        let Some(lease) = &mut self.lease else {
            return Turn::Claimed;
        };
        if lease.is_held() {
            self.release().await;
            return Turn::Claimed;
        }
        match lease.watch().await {
            Ok(()) => Turn::Claimed,
            Err(error) => Turn::Unclaimed(error),
        }
    }

    /// Notes whether this process holds the lane.
    fn count_lane(&self) {
        if let Some(lease) = &self.lease {
            JOBS.hold(J::NAME, self.job.lane().slice.number, lease.is_held());
        }
    }

    /// Counts and logs a failure, and lets another process try.
    async fn fail(&mut self, failures: &mut Failures<J>, error: &J::Error, took: Duration) {
        JOBS.failed(J::NAME, took);
        failures.log(error);
        self.release().await;
    }

    /// Returns the pause before the next step, and releases the claim if the pause outlasts it.
    async fn rest(&mut self, next: Next, every: Duration, took: Duration) -> Duration {
        let rest = match next {
            Next::Now => Duration::ZERO,
            Next::Rest => took.min(LONGEST_REST),
            Next::ShortRest => (took / 2).min(LONGEST_REST),
            Next::Idle => every.saturating_sub(took),
        };
        if !rest.is_zero()
            && self
                .lease
                .as_ref()
                .is_some_and(|lease| lease.ends_within(rest))
        {
            self.release().await;
        }
        rest
    }

    /// Ends the work of a claim and releases it, so that another process can continue.
    async fn release(&mut self) {
        if self.lease.is_some() {
            self.stop().await;
        }
    }

    /// Ends the work, unless another process may have taken it over, and releases the claim.
    async fn stop(&mut self) {
        if std::mem::take(&mut self.has_begun)
            && let Err(error) = self.end().await
        {
            let error = &error as &dyn Error;
            tracing::warn!(error, job = J::NAME, "the last step of a job is repeated");
        }
        if let Some(lease) = &mut self.lease {
            lease.release().await;
        }
        self.count_lane();
    }

    async fn end(&mut self) -> Result<(), J::Error> {
        if let Some(lease) = &mut self.lease
            && lease.renew().await? != Hold::Kept
        {
            tracing::debug!(
                job = J::NAME,
                "the claim is lost, and with it the last step"
            );
            return Ok(());
        }
        tokio::select! {
            biased;
            () = keep(&mut self.lease) => Ok(()),
            ended = self.job.end() => ended,
        }
    }
}

/// The result of an attempt to do a step.
enum Turn<E> {
    /// The step was done.
    Done(Next),
    /// Another process holds the job.
    Claimed,
    /// SQL failed to grant the claim.
    Unclaimed(StoreError),
    /// The step was cut off at shutdown.
    Stopped,
    /// The step failed.
    Failed(E),
}

/// Claims a job; one without a lease is always this process'.
async fn claim(lease: &mut Option<Lease>) -> Result<Hold, StoreError> {
    match lease {
        Some(lease) => lease.claim().await,
        None => Ok(Hold::Kept),
    }
}

/// Renews the claim to a job until it is lost.
async fn keep(lease: &mut Option<Lease>) {
    match lease {
        Some(lease) => lease.keep().await,
        None => std::future::pending().await,
    }
}

/// Waits until the last step of a job must end.
async fn grace<J: Job>(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(J::GRACE).await;
}

async fn step<J: Job>(job: &mut J, has_begun: &mut bool) -> Result<Next, J::Error> {
    if !*has_begun {
        job.begin().await?;
        *has_begun = true;
    }
    job.step().await
}

/// Waits, but not beyond `shutdown`.
async fn pause(time: Duration, shutdown: &CancellationToken) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(time) => {}
    }
}

#[cfg(test)]
mod tests;
