//! The bounds of the fallback: how many requests of a worker wait for it, and when none is sent.
//!
//! A request that waits for the fallback holds two connections of its worker. A fallback that hangs
//! would take all of them, and with them the live links that need no fallback. So only a share of
//! the worker's connections waits for it; and after several failures in a row it gets one request a
//! second, until one is answered.

use crate::breaker::{Breaker, BreakerLimits};

/// Interval of attempts while the fallback fails, in milliseconds.
const TRY_EVERY: u64 = 1000;

/// A client that leaves without an answer after this time is a failure, in milliseconds: the sidecar
/// answers sooner.
const TOO_LATE: u64 = 1000;

/// Bounds of a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallbackLimits {
    /// The most requests that wait, in percent of the worker's connections.
    pub waiting_percent: u32,
    /// So many failures in a row stop requests; 0 for no such limit.
    pub failures: u32,
}

impl FallbackLimits {
    /// The largest share of connections: each request that waits holds two.
    pub const MOST_PERCENT: u32 = 50;

    /// The largest number of failures.
    pub const MOST_FAILURES: u32 = 1000;
}

impl Default for FallbackLimits {
    fn default() -> Self {
        Self {
            waiting_percent: 10,
            failures: 5,
        }
    }
}

/// Reason for which the fallback gets no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many requests as may wait for it do.
    Full,
    /// It has failed too often in a row.
    Failing,
}

/// End of a request that was sent to the fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was answered.
    Answered,
    /// It was answered with an error of the server, or not in time.
    Failed,
    /// The client left before.
    Left,
}

/// A fallback, as one worker uses it.
#[derive(Debug)]
pub struct Fallback {
    most: usize,
    waiting: usize,
    breaker: Option<Breaker>,
}

impl Fallback {
    /// Makes one for a worker with so many connections.
    pub fn new(limits: FallbackLimits, connections: usize) -> Self {
        let most = connections * limits.waiting_percent as usize / 100;
        let breaker = (limits.failures > 0).then(|| {
            Breaker::new(BreakerLimits {
                failures: limits.failures,
                first_wait: TRY_EVERY,
                longest_wait: TRY_EVERY,
                patience: TRY_EVERY,
            })
        });
        Self {
            most: most.max(1),
            waiting: 0,
            breaker,
        }
    }

    /// Lets a request wait for it; [`Fallback::leave`] must follow.
    ///
    /// # Errors
    /// Fails when it gets no request now.
    pub fn enter(&mut self, now: u64) -> Result<(), Refused> {
        if self.waiting >= self.most {
            return Err(Refused::Full);
        }
        if self.breaker.as_mut().is_some_and(|it| !it.admits(now)) {
            return Err(Refused::Failing);
        }
        self.waiting += 1;
        Ok(())
    }

    /// Notes the end of a request that has waited since a time; reports whether the fallback gets
    /// no requests from now on.
    pub fn leave(&mut self, ending: Ending, since: u64, now: u64) -> bool {
        self.waiting = self.waiting.saturating_sub(1);
        let Some(breaker) = &mut self.breaker else {
            return false;
        };
        match ending {
            Ending::Answered => breaker.succeeded(),
            Ending::Left if now < since + TOO_LATE => {}
            Ending::Left | Ending::Failed => return breaker.failed(now),
        }
        false
    }

    /// Returns the number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Reports whether it gets only attempts.
    pub fn is_failing(&self) -> bool {
        self.breaker.as_ref().is_some_and(Breaker::is_open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fallback() -> Fallback {
        Fallback::new(FallbackLimits::default(), 256)
    }

    #[test]
    fn only_a_share_of_the_connections_waits() {
        let mut fallback = fallback();
        for _ in 0..25 {
            assert_eq!(fallback.enter(0), Ok(()));
        }
        assert_eq!(fallback.enter(0), Err(Refused::Full));
        assert!(!fallback.leave(Ending::Answered, 0, 5));
        assert_eq!(fallback.waiting(), 24);
        assert_eq!(fallback.enter(5), Ok(()));
        let mut least = Fallback::new(FallbackLimits::default(), 5);
        assert_eq!(least.enter(0), Ok(()));
        assert_eq!(least.enter(0), Err(Refused::Full));
    }

    #[test]
    fn after_failures_in_a_row_it_gets_one_request_a_second() {
        let mut fallback = fallback();
        for request in 1..=5 {
            assert_eq!(fallback.enter(0), Ok(()));
            assert_eq!(fallback.leave(Ending::Failed, 0, 100), request == 5);
        }
        assert!(fallback.is_failing());
        for second in 0..4 {
            let now = 100 + second * TRY_EVERY;
            assert_eq!(fallback.enter(now + TRY_EVERY - 1), Err(Refused::Failing));
            assert_eq!(fallback.enter(now + TRY_EVERY), Ok(()));
        }
        // An attempt that is answered late is an answer all the same.
        assert!(!fallback.leave(Ending::Answered, 0, 4200));
        assert!(!fallback.is_failing());
        assert_eq!(fallback.enter(4200), Ok(()));
    }

    #[test]
    fn a_client_that_leaves_is_a_failure_only_after_a_long_wait() {
        for (waits, is_failing) in [(TOO_LATE - 1, false), (TOO_LATE, true)] {
            let mut fallback = fallback();
            for _ in 0..5 {
                assert_eq!(fallback.enter(0), Ok(()));
            }
            for _ in 0..5 {
                fallback.leave(Ending::Left, 0, waits);
            }
            assert_eq!(fallback.is_failing(), is_failing);
        }
    }

    #[test]
    fn without_a_limit_of_failures_only_those_that_wait_are_bounded() {
        let limits = FallbackLimits {
            waiting_percent: 50,
            failures: 0,
        };
        let mut fallback = Fallback::new(limits, 4);
        for _ in 0..100 {
            assert_eq!(fallback.enter(0), Ok(()));
            assert!(!fallback.leave(Ending::Failed, 0, 0));
        }
        assert!(!fallback.is_failing());
    }
}
