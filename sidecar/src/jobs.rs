//! Runs background jobs: one runner for all of them.
//!
//! A job is a sequence of bounded steps. The runner claims the job if one process at a time may do
//! it, renews the claim while a step runs, pauses between steps, backs off after errors, logs a
//! failure once until it changes or ends, measures each step, and stops between two steps at
//! shutdown. Commands run the same jobs in the foreground, until there is nothing left to do.

mod lease;
mod meters;

use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::core::ports::StoreError;
pub use lease::Claims;
use lease::Lease;
pub use meters::{JOBS, JobMeters};

/// The longest pause between two steps while work is waiting.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The first pause after an error. It doubles after every further error, up to the interval of the
/// job or [`LONGEST_BACK_OFF`], whichever is longer.
const FIRST_BACK_OFF: Duration = Duration::from_millis(200);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(5);

/// The interval at which a command tries to claim a job that another process holds.
const CLAIM_EVERY: Duration = Duration::from_millis(250);

/// Work in bounded steps.
///
/// A step may be cut off at any `await`: when the claim is lost, and when the process is killed.
/// So progress is stored, and a repeated step does no harm.
pub trait Job: Send {
    /// The error of a step.
    type Error: Error + From<StoreError> + Send + 'static;

    /// The name in logs, in metrics, and of the claim.
    const NAME: &'static str;

    /// The message of the log when a step fails.
    const FAILURE: &'static str;

    /// The time for which a claim is valid that is not renewed; `None` if every process runs the
    /// job. A claim is renewed after a third of it, so clocks of two processes may differ by half of
    /// it before both run the job at the same time, and even then only until the next renewal.
    const LEASE: Option<Duration> = None;

    /// Prepares the first step after the job was claimed: finds where the last holder stopped.
    fn begin(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async { Ok(()) }
    }

    /// Does a bounded part of the work.
    fn step(&mut self) -> impl Future<Output = Result<Next, Self::Error>> + Send;

    /// Ends the work before the claim is released, and at shutdown: notes where to continue.
    fn end(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async { Ok(()) }
    }
}

/// The time of the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once.
    Now,
    /// After a pause as long as this step, so that the job takes at most half of the database.
    Rest,
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
        Self {
            job,
            clock: Arc::clone(&claims.clock),
            lease: J::LEASE.map(|length| Lease::new(claims.clone(), J::NAME, length)),
            has_begun: false,
        }
    }

    /// Runs the job at an interval until `shutdown`.
    pub async fn forever(mut self, every: Duration, shutdown: CancellationToken) {
        let (mut failures, mut logged) = (0, None);
        JOBS.add(J::NAME);
        while !shutdown.is_cancelled() {
            let begun = Instant::now();
            let turn = self.turn().await;
            let took = begun.elapsed();
            let rest = match turn {
                Ok(None) => J::LEASE.map_or(every, |lease| every.clamp(lease / 3, lease)),
                Ok(Some(next)) => {
                    JOBS.succeeded(J::NAME, took, self.clock.now());
                    failures = 0;
                    if logged.take().is_some() {
                        tracing::info!(job = J::NAME, "the job works again");
                    }
                    self.rest(next, every, took).await
                }
                Err(error) => {
                    JOBS.failed(J::NAME, took);
                    let text = Some(chain(&error));
                    if logged != text {
                        let error = &error as &dyn Error;
                        tracing::warn!(error, job = J::NAME, "{}", J::FAILURE);
                        logged = text;
                    }
                    self.release().await;
                    let back_off = FIRST_BACK_OFF * 2_u32.saturating_pow(failures);
                    failures = (failures + 1).min(16);
                    back_off.min(every.max(LONGEST_BACK_OFF))
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
    /// Fails if a step does.
    pub async fn finish(
        &mut self,
        patience: Duration,
        shutdown: &CancellationToken,
        report: &mut (dyn FnMut(Option<&J>) + Send),
    ) -> Result<Outcome, J::Error> {
        let mut waiting_since: Option<Instant> = None;
        let outcome = loop {
            if shutdown.is_cancelled() {
                break Ok(Outcome::Stopped);
            }
            let begun = Instant::now();
            let rest = match self.turn().await {
                Ok(Some(next)) => {
                    waiting_since = None;
                    report(Some(&self.job));
                    match next {
                        Next::Now => continue,
                        Next::Rest => begun.elapsed().min(LONGEST_REST),
                        Next::Idle => break Ok(Outcome::Done),
                    }
                }
                Ok(None) => {
                    if waiting_since.is_none() && !patience.is_zero() {
                        report(None);
                    }
                    if waiting_since.get_or_insert(begun).elapsed() >= patience {
                        break Ok(Outcome::Claimed);
                    }
                    CLAIM_EVERY
                }
                Err(error) => break Err(error),
            };
            pause(rest, shutdown).await;
        };
        self.stop().await;
        outcome
    }

    /// Runs a step; `None` if another process holds the claim.
    async fn turn(&mut self) -> Result<Option<Next>, J::Error> {
        let Some(lease) = &mut self.lease else {
            return step(&mut self.job, &mut self.has_begun).await.map(Some);
        };
        if lease.claim().await? {
            tokio::select! {
                biased;
                lost = lease.keep() => lost?,
                next = step(&mut self.job, &mut self.has_begun) => return next.map(Some),
            }
        }
        // The notes of the job are another process' now.
        self.has_begun = false;
        Ok(None)
    }

    /// Returns the pause before the next step, and releases the claim if the pause outlasts it.
    async fn rest(&mut self, next: Next, every: Duration, took: Duration) -> Duration {
        match next {
            Next::Now => Duration::ZERO,
            Next::Rest => took.min(LONGEST_REST),
            Next::Idle => {
                if J::LEASE.is_some_and(|lease| every >= lease / 2) {
                    self.release().await;
                }
                every.saturating_sub(took)
            }
        }
    }

    /// Ends the work of a claim and releases it, so that another process can continue.
    async fn release(&mut self) {
        if self.lease.is_some() {
            self.stop().await;
        }
    }

    async fn stop(&mut self) {
        if std::mem::take(&mut self.has_begun)
            && let Err(error) = self.job.end().await
        {
            let error = &error as &dyn Error;
            tracing::warn!(error, job = J::NAME, "the last step of a job is done again");
        }
        if let Some(lease) = &mut self.lease {
            lease.release().await;
        }
    }
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

/// Writes an error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Into a string nothing fails.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
