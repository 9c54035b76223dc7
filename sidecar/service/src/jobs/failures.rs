//! Failures of one job: when to log them, and when to try again.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::marker::PhantomData;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use super::Job;

/// The first pause after an error. It doubles after every further error, up to the interval of the
/// job or [`LONGEST_BACK_OFF`], whichever is longer.
const FIRST_BACK_OFF: Duration = Duration::from_millis(200);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(5);

/// The time after which a failure that lasts is logged again.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The most kinds of failures that are distinguished: messages of some may vary.
const MOST_KINDS: usize = 8;

/// The failures of a job since its last success.
pub(super) struct Failures<J> {
    count: u32,
    /// The times at which each kind was logged. Its key is the message without the causes, which
    /// names the operation that failed.
    logged: BTreeMap<String, Instant>,
    job: PhantomData<fn(&J)>,
}

impl<J> Default for Failures<J> {
    fn default() -> Self {
        Self {
            count: 0,
            logged: BTreeMap::new(),
            job: PhantomData,
        }
    }
}

impl<J: Job> Failures<J> {
    /// Logs an error unless one of its kind was logged within the last minute.
    pub(super) fn log(&mut self, error: &J::Error) {
        if !self.is_due(error.to_string()) {
            return;
        }
        let error = error as &dyn Error;
        if J::LEVEL == Level::ERROR {
            tracing::error!(error, job = J::NAME, "{}", J::FAILURE);
        } else {
            tracing::warn!(error, job = J::NAME, "{}", J::FAILURE);
        }
    }

    /// Logs a panic unless one of its kind was logged within the last minute.
    pub(super) fn log_panic(&mut self, panic: &(dyn Any + Send)) {
        let message = panic.downcast_ref::<&str>().copied();
        let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let panic = message.unwrap_or("unknown");
        if self.is_due(format!("panic: {panic}")) {
            tracing::error!(panic, job = J::NAME, "{}", J::FAILURE);
        }
    }

    /// Returns the pause before the next attempt of a job with an interval.
    pub(super) fn back_off(&mut self, every: Duration) -> Duration {
        let back_off = FIRST_BACK_OFF * 2_u32.saturating_pow(self.count);
        self.count = (self.count + 1).min(16);
        back_off.min(every.max(LONGEST_BACK_OFF))
    }

    /// Notes a success.
    pub(super) fn end(&mut self) {
        self.count = 0;
        if !self.logged.is_empty() {
            self.logged.clear();
            tracing::info!(job = J::NAME, "the job works again");
        }
    }

    fn is_due(&mut self, kind: String) -> bool {
        self.logged.retain(|_, at| at.elapsed() < LOG_EVERY);
        if self.logged.contains_key(&kind) || self.logged.len() >= MOST_KINDS {
            return false;
        }
        self.logged.insert(kind, Instant::now());
        true
    }
}
