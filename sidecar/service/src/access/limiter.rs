//! The rate limit of an API key.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use shortlink_core::api_key::RateLimit;
use shortlink_core::clock::Clock;

/// Counts the units taken of a limit.
pub(super) struct Limiter {
    limit: RateLimit,
    bucket: RateLimiter<NotKeyed, InMemoryState, Ticks, StateInformationMiddleware>,
    clock: Ticks,
}

impl Limiter {
    /// Returns a limiter with all units available.
    pub(super) fn new(limit: RateLimit, clock: Arc<dyn Clock>) -> Self {
        let quota = Quota::per_second(limit.per_second()).allow_burst(limit.burst());
        let clock = Ticks(clock);
        let bucket = RateLimiter::direct_with_clock(quota, clock.clone());
        Self {
            limit,
            bucket: bucket.with_middleware(),
            clock,
        }
    }

    /// The limit.
    pub(super) fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Takes units: all or none.
    pub(super) fn take(&self, units: u32) -> Result<(), ChargeError> {
        match NonZeroU32::new(units) {
            Some(units) => self.take_some(units).map(|_left| ()),
            None => Ok(()),
        }
    }

    /// Takes a unit; also returns the state of the limit then.
    pub(super) fn take_one(&self) -> (RateState, Result<(), ChargeError>) {
        let taken = self.take_some(NonZeroU32::MIN);
        let (remaining, wait) = match taken {
            Ok(remaining) => (remaining, Duration::ZERO),
            // None is left, and the first of all comes after this wait.
            Err(ChargeError::Exceeded { retry_after }) => (0, retry_after),
            Err(ChargeError::TooMany { .. }) => (0, Duration::ZERO),
        };
        let (per_second, burst) = (self.limit.per_second().get(), self.limit.burst().get());
        let missing = burst - remaining.min(burst) - u32::from(!wait.is_zero());
        let state = RateState {
            limit: self.limit,
            remaining,
            full_after: wait + Duration::from_secs(missing.into()) / per_second,
        };
        (state, taken.map(|_remaining| ()))
    }

    /// Takes units: all or none; returns how many remain.
    fn take_some(&self, units: NonZeroU32) -> Result<u32, ChargeError> {
        match self.bucket.check_n(units) {
            Ok(Ok(state)) => Ok(state.remaining_burst_capacity()),
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

/// The state of a rate limit after a unit was taken or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateState {
    /// The limit.
    pub limit: RateLimit,
    /// Units that are available at once.
    pub remaining: u32,
    /// Time until all units are available again.
    pub full_after: Duration,
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

    #[test]
    fn the_state_shows_what_remains_and_when_all_is_back() {
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let limit = RateLimit::new(2, 3).expect("a limit");
        let limiter = Limiter::new(limit, Arc::clone(&clock) as _);
        for (remaining, full_after, taken) in [
            (2, 500, Ok(())),
            (1, 1000, Ok(())),
            (0, 1500, Ok(())),
            (
                0,
                1500,
                Err(ChargeError::Exceeded {
                    retry_after: Duration::from_millis(500),
                }),
            ),
        ] {
            let state = RateState {
                limit,
                remaining,
                full_after: Duration::from_millis(full_after),
            };
            assert_eq!(limiter.take_one(), (state, taken));
        }
        clock.advance(SignedDuration::from_millis(1500));
        assert_eq!(limiter.take_one().0.remaining, 2);
    }
}
