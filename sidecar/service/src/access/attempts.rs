//! Rate limit of attempts to sign in.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use shortlink_core::api_key::RateLimit;
use shortlink_core::clock::Clock;

use super::limiter::{ChargeError, Limiter};

/// Attempts per second of an address, after a burst of [`BURST`].
const PER_S: u32 = 1;
const BURST: u32 = 10;

/// The most addresses in memory. An evicted address starts with a full burst.
const MOST_ADDRESSES: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

/// Counts attempts to sign in by the address they come from, so that no address locks others out.
pub struct Attempts {
    clock: Arc<dyn Clock>,
    limiters: Mutex<LruCache<String, Limiter>>,
}

impl Attempts {
    /// Returns a limiter without attempts.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            limiters: Mutex::new(LruCache::new(MOST_ADDRESSES)),
        }
    }

    /// Takes an attempt of an address.
    ///
    /// # Errors
    /// Fails if the address has none left.
    pub fn take(&self, address: &str) -> Result<(), ChargeError> {
        let Some(limit) = RateLimit::new(PER_S, BURST) else {
            return Ok(());
        };
        let mut limiters = self.limiters.lock();
        limiters
            .get_or_insert(address.to_owned(), || {
                Limiter::new(limit, Arc::clone(&self.clock))
            })
            .take(1)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use shortlink_core::testing::ManualClock;

    use super::*;

    #[test]
    fn each_address_has_attempts_of_its_own_and_gets_new_ones() {
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let attempts = Attempts::new(Arc::clone(&clock) as _);
        for _ in 0..BURST {
            assert_eq!(attempts.take("192.0.2.1"), Ok(()));
        }
        assert!(attempts.take("192.0.2.1").is_err());
        assert_eq!(attempts.take("192.0.2.2"), Ok(()));
        clock.advance(SignedDuration::from_secs(1));
        assert_eq!(attempts.take("192.0.2.1"), Ok(()));
        assert!(attempts.take("192.0.2.1").is_err());
    }
}
