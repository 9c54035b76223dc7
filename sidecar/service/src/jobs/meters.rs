//! Measurements of the background jobs of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use shortlink_core::durations::Durations;

/// The measurements of all jobs of this process.
pub static JOBS: JobMeters = JobMeters {
    steps: Durations::new(),
    results: Mutex::new(BTreeMap::new()),
    lanes: Mutex::new(BTreeMap::new()),
};

/// Measurements of jobs, by their names.
#[derive(Debug)]
pub struct JobMeters {
    /// The durations of steps.
    pub steps: Durations<&'static str>,
    results: Mutex<BTreeMap<&'static str, JobResults>>,
    /// The lanes of each job that this process holds.
    lanes: Mutex<BTreeMap<&'static str, BTreeSet<u32>>>,
}

/// Results of the steps of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobResults {
    /// The number of steps that failed.
    pub failures: u64,
    /// The end of the last step that did not fail.
    pub succeeded_at: Option<Timestamp>,
    /// The number of links or rows that a job of upkeep has done.
    pub items: u64,
}

impl JobMeters {
    /// Reads the results of all jobs.
    pub fn results(&self) -> Vec<(&'static str, JobResults)> {
        let results = self.results.lock();
        results.iter().map(|(name, of)| (*name, *of)).collect()
    }

    /// Reads the number of lanes of each job that this process holds.
    pub fn lanes(&self) -> Vec<(&'static str, usize)> {
        let lanes = self.lanes.lock();
        lanes
            .iter()
            .map(|(name, held)| (*name, held.len()))
            .collect()
    }

    /// Counts links or rows that a job has done.
    pub fn add_items(&self, job: &'static str, items: u64) {
        self.results.lock().entry(job).or_default().items += items;
    }

    /// Notes whether this process holds a lane.
    pub(super) fn hold(&self, job: &'static str, lane: u32, is_held: bool) {
        let mut lanes = self.lanes.lock();
        let held = lanes.entry(job).or_default();
        if is_held {
            held.insert(lane);
        } else {
            held.remove(&lane);
        }
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
