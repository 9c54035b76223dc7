//! The rate limit of an API key.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use shortlink_core::api_key::RateLimit;
use shortlink_core::clock::Clock;

/// Counts the units taken of a limit.
pub(super) struct Limiter {
    limit: RateLimit,
    bucket: RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Duration>>,
    clock: Ticks,
}

impl Limiter {
    /// Returns a limiter with all units available.
    pub(super) fn new(limit: RateLimit, clock: Arc<dyn Clock>) -> Self {
        let quota = Quota::per_second(limit.per_second()).allow_burst(limit.burst());
        let clock = Ticks(clock);
        Self {
            limit,
            bucket: RateLimiter::direct_with_clock(quota, clock.clone()),
            clock,
        }
    }

    /// The limit.
    pub(super) fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Takes units: all or none.
    pub(super) fn take(&self, units: u32) -> Result<(), ChargeError> {
        let Some(units) = NonZeroU32::new(units) else {
            return Ok(());
        };
        match self.bucket.check_n(units) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(not_until)) => {
                let now = governor::clock::Clock::now(&self.clock);
                Err(ChargeError::Exceeded {
                    retry_after: not_until.wait_time_from(now),
                })
            }
            Err(_never) => Err(ChargeError::TooMany {
                most: self.limit.burst().get(),
            }),
        }
    }
}

/// The reason units are not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChargeError {
    /// Too many units were taken in too short a time.
    #[error("the rate limit of the API key is exceeded")]
    Exceeded {
        /// Time until as many units are available.
        retry_after: Duration,
    },
    /// More units are requested than are ever available at once.
    #[error("the rate limit of the API key never allows more than {most} at once")]
    TooMany {
        /// The most units that are available at once.
        most: u32,
    },
}

/// The clock as the bucket reads it.
#[derive(Clone)]
struct Ticks(Arc<dyn Clock>);

impl governor::clock::Clock for Ticks {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use shortlink_core::testing::ManualClock;

    use super::*;

    #[test]
    fn units_are_taken_from_a_bucket_that_fills_again() {
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let limit = RateLimit::new(2, 5).expect("a limit");
        let limiter = Limiter::new(limit, Arc::clone(&clock) as _);
        let exceeded = |milliseconds| {
            Err(ChargeError::Exceeded {
                retry_after: Duration::from_millis(milliseconds),
            })
        };
        assert_eq!(limiter.take(6), Err(ChargeError::TooMany { most: 5 }));
        assert_eq!(limiter.take(4), Ok(()));
        // All or none: the remaining unit is still available.
        assert_eq!(limiter.take(3), exceeded(1000));
        assert_eq!(limiter.take(1), Ok(()));
        assert_eq!(limiter.take(0), Ok(()));
        assert_eq!(limiter.take(1), exceeded(500));
        clock.advance(SignedDuration::from_millis(499));
        assert_eq!(limiter.take(1), exceeded(1));
        clock.advance(SignedDuration::from_millis(1));
        assert_eq!(limiter.take(1), Ok(()));
        // The limiter never refills beyond its burst.
        clock.advance(SignedDuration::from_secs(3600));
        assert_eq!(limiter.take(5), Ok(()));
        assert_eq!(limiter.take(1), exceeded(500));
    }
}
