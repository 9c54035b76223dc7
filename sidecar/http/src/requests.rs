//! Counts and durations of requests.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use shortlink_core::durations::Durations;

/// The classes of statuses, as `/metrics` names them.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Counts of answers to one kind of client, by class of status.
#[derive(Debug, Default)]
pub struct AnswerCounts([AtomicU64; CLASSES.len()]);

/// Counts of all answers since the process started.
#[derive(Debug, Default)]
pub struct AnswerCounters {
    /// To callers of the API.
    pub api: AnswerCounts,
    /// To visitors that nginx has sent on.
    pub visitors: AnswerCounts,
}

impl AnswerCounts {
    /// Counts an answer.
    pub(super) fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2);
        self.0[class.min(CLASSES.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of answers of each class.
    pub(super) fn by_class(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        CLASSES.into_iter().zip(counts)
    }
}

/// Measurements of requests.
#[derive(Debug, Default)]
pub struct Requests {
    /// The number of requests in progress.
    pub(super) active: AtomicU64,
    /// Durations of requests, by route, method and status.
    pub(super) durations: Durations<(String, &'static str, u16)>,
}
