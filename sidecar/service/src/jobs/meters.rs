//! Measurements of the background jobs of this process.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use shortlink_core::durations::Durations;

/// The measurements of all jobs of this process.
pub static JOBS: JobMeters = JobMeters {
    steps: Durations::new(),
    results: Mutex::new(BTreeMap::new()),
};

/// Measurements of jobs, by their names.
#[derive(Debug)]
pub struct JobMeters {
    /// The durations of steps.
    pub steps: Durations<&'static str>,
    results: Mutex<BTreeMap<&'static str, JobResults>>,
}

/// Results of the steps of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobResults {
    /// The number of steps that failed.
    pub failures: u64,
    /// The end of the last step that did not fail.
    pub succeeded_at: Option<Timestamp>,
}

impl JobMeters {
    /// Reads the results of all jobs.
    pub fn results(&self) -> Vec<(&'static str, JobResults)> {
        let results = self.results.lock();
        results.iter().map(|(name, of)| (*name, *of)).collect()
    }

    /// Adds a job, so that its counters begin with 0.
    pub(super) fn add(&self, job: &'static str) {
        self.results.lock().entry(job).or_default();
    }

    /// Measures a step that did not fail.
    pub(super) fn succeeded(&self, job: &'static str, took: Duration, now: Timestamp) {
        self.steps.add(job, took);
        self.results.lock().entry(job).or_default().succeeded_at = Some(now);
    }

    /// Measures a step that failed.
    pub(super) fn failed(&self, job: &'static str, took: Duration) {
        self.steps.add(job, took);
        self.results.lock().entry(job).or_default().failures += 1;
    }
}
