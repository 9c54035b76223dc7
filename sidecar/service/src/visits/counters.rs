//! Counters of this process for visits.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

/// The most domains that are counted separately. nginx knows some tens; only a server that answers
/// to any name could report more, as many as clients make up.
const MAX_DOMAINS: usize = 100;

/// Name under which further domains are counted.
const OTHERS: &str = "others";

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub struct VisitCounters {
    /// Visits that were stored.
    pub stored: AtomicU64,
    /// Visits that were delivered again after they were stored.
    pub repeated: AtomicU64,
    /// Events that were invalid and went to quarantine.
    pub quarantined: AtomicU64,
    /// Events from the future, which were stored with the time of their arrival.
    pub ahead: AtomicU64,
    /// Visits that arrived after the visits of their links were erased, and were dropped.
    pub erased: AtomicU64,
    /// Links that expired because they reached their limit of visits.
    pub ended: AtomicU64,
    /// Delivery receipts that were accepted.
    pub receipts: AtomicU64,
    /// Visits that were deleted at the end of their retention.
    pub forgotten: AtomicU64,
    /// Stored visits by domain.
    domains: Mutex<BTreeMap<String, u64>>,
}

impl VisitCounters {
    /// Counts visits that were stored for their domains.
    pub(super) fn count_domains<'v>(&self, visits: impl Iterator<Item = &'v str>) {
        let mut domains = self.domains.lock();
        for host in visits {
            if let Some(count) = domains.get_mut(host) {
                *count += 1;
                continue;
            }
            let name = if domains.len() < MAX_DOMAINS {
                host
            } else {
                OTHERS
            };
            *domains.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Returns the number of stored visits of each domain.
    pub fn domains(&self) -> Vec<(String, u64)> {
        let domains = self.domains.lock();
        let pairs = domains.iter();
        pairs.map(|(name, count)| (name.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_that_are_made_up_are_counted_together() {
        let counters = VisitCounters::default();
        counters.count_domains(["s.example.com", "a.example", "s.example.com"].into_iter());
        let made_up: Vec<String> = (0..1000).map(|i| format!("{i}.example")).collect();
        counters.count_domains(made_up.iter().map(String::as_str));
        counters.count_domains(["s.example.com"].into_iter());
        let domains = counters.domains();
        assert_eq!(domains.len(), MAX_DOMAINS + 1);
        let of = |name: &str| domains.iter().find(|(found, _)| found == name).cloned();
        assert_eq!(of("s.example.com"), Some(("s.example.com".to_owned(), 3)));
        assert_eq!(of(OTHERS), Some((OTHERS.to_owned(), 1000 - 98)));
    }
}
