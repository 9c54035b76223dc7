//! Durations of named operations, counted for histograms.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

/// The upper bounds of the histogram's buckets, in seconds: those that OpenTelemetry advises for
/// durations of requests and of database operations, together. Longer durations are counted too.
pub const BOUNDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];

/// The database operations of this process, by name.
pub static DATABASE: Durations<&str> = Durations::new();

/// Durations of one thing.
#[derive(Debug, Default)]
struct Histogram {
    /// The count of each bucket; the last one is for durations beyond all bounds.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

/// Durations of several things, each with its name.
#[derive(Debug)]
pub struct Durations<K>(RwLock<BTreeMap<K, Arc<Histogram>>>);

/// The counts of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The number of durations up to each of the [`BOUNDS`], cumulative.
    pub within: [u64; BOUNDS.len()],
    /// The number of durations.
    pub count: u64,
    /// The sum of the durations in seconds.
    pub seconds: f64,
}

impl Histogram {
    fn add(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let place = BOUNDS.partition_point(|bound| *bound < seconds);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn read(&self) -> Counted {
        let mut sum = 0;
        let mut sums = self.counts.iter().map(|count| {
            sum += count.load(Ordering::Relaxed);
            sum
        });
        let within = std::array::from_fn(|_| sums.next().unwrap_or_default());
        Counted {
            within,
            count: sums.next().unwrap_or_default(),
            seconds: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }
}

impl<K> Durations<K> {
    /// None yet.
    pub const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }
}

impl<K: Ord + Clone> Durations<K> {
    /// Counts one. Names must be few: they are never forgotten.
    pub fn add(&self, name: K, duration: Duration) {
        if let Some(histogram) = self.0.read().get(&name) {
            return histogram.add(duration);
        }
        self.0.write().entry(name).or_default().add(duration);
    }

    /// Returns the counts in the order of the names.
    pub fn read(&self) -> Vec<(K, Counted)> {
        let all = self.0.read();
        all.iter()
            .map(|(name, histogram)| (name.clone(), histogram.read()))
            .collect()
    }
}

impl<K> Default for Durations<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_within_their_bounds() {
        let durations = Durations::new();
        for (name, ms) in [("b", 1), ("b", 2), ("b", 60_000), ("a", 100)] {
            durations.add(name, Duration::from_millis(ms));
        }
        let read = durations.read();
        let [("a", a), ("b", b)] = &read[..] else {
            panic!("{read:?}");
        };
        assert_eq!((a.count, a.seconds), (1, 0.1));
        assert_eq!(a.within.map(|count| count == 1), BOUNDS.map(|s| s >= 0.1));
        assert_eq!((b.within[0], b.within[1], b.within[15]), (1, 2, 2));
        assert_eq!((b.count, b.seconds), (3, 60.003));
    }
}
