//! Stops requests to a server that is reachable but late or failing: Redis, or the fallback.
//!
//! A connection that is lost needs no breaker. One that answers too late, or with errors, makes
//! every visitor wait the whole time budget for nothing: after so many failures in a row it is not
//! asked for a while, then one request tries again.

/// Limits of a breaker. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BreakerLimits {
    /// So many failures in a row open it.
    pub(crate) failures: u32,
    /// First duration for which it stays open; doubled by each failed try.
    pub(crate) first_wait: u64,
    /// The longest that it stays open.
    pub(crate) longest_wait: u64,
    /// Time after which an unanswered try is repeated.
    pub(crate) patience: u64,
}

impl BreakerLimits {
    /// Limits for a connection to Redis, which is given up when it does not answer for so long.
    pub(crate) fn of_redis(patience: u64) -> Self {
        Self {
            failures: 32,
            first_wait: 250,
            longest_wait: 4000,
            patience,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Everything may be asked; so many failures came in a row.
    Closed { failures: u32 },
    /// Nothing may be asked until then, having waited so long.
    Open { until: u64, wait: u64 },
    /// One try is under way, after having waited so long.
    Trying { since: u64, wait: u64 },
}

/// The breaker of one connection, or of the fallback.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    limits: BreakerLimits,
    /// End of the delay for deferrable requests after a failure.
    holds_until: u64,
}

impl Breaker {
    /// Makes a closed one.
    pub(crate) fn new(limits: BreakerLimits) -> Self {
        Self {
            state: State::Closed { failures: 0 },
            limits,
            holds_until: 0,
        }
    }

    /// Reports whether a request may be sent. If it may while the breaker is open, it is the try.
    #[inline]
    pub(crate) fn admits(&mut self, now: u64) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until, wait } if now >= until => {
                self.state = State::Trying { since: now, wait };
                true
            }
            // The request that was the try may have gone away without a report.
            State::Trying { since, wait } if now >= since + self.limits.patience => {
                self.state = State::Trying { since: now, wait };
                true
            }
            State::Open { .. } | State::Trying { .. } => false,
        }
    }

    /// Reports whether deferrable requests must wait: while the breaker is open, and for a moment
    /// after each failure, so that they do not make a slow Redis slower. Unlike [`Breaker::admits`]
    /// this starts no try.
    pub(crate) fn holds(&self, now: u64) -> bool {
        match self.state {
            State::Closed { .. } => now < self.holds_until,
            State::Open { until, .. } => now < until,
            State::Trying { since, .. } => now < since + self.limits.patience,
        }
    }

    /// Reports whether it rejects requests now.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    /// Notes an answer in time.
    #[inline]
    pub(crate) fn succeeded(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    /// Notes an answer that was an error or came too late; says whether this has opened it.
    pub(crate) fn failed(&mut self, now: u64) -> bool {
        self.holds_until = now + self.limits.first_wait;
        let wait = match &mut self.state {
            State::Closed { failures } => {
                *failures += 1;
                if *failures < self.limits.failures {
                    return false;
                }
                self.limits.first_wait
            }
            // Requests that were sent before it opened.
            State::Open { .. } => return false,
            State::Trying { wait, .. } => (*wait * 2).min(self.limits.longest_wait),
        };
        let was_closed = !self.is_open();
        self.state = State::Open {
            until: now + wait,
            wait,
        };
        was_closed
    }

    /// Forgets everything: there is another connection.
    pub(crate) fn reset(&mut self) {
        self.state = State::Closed { failures: 0 };
        self.holds_until = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BreakerLimits = BreakerLimits {
        failures: 32,
        first_wait: 250,
        longest_wait: 4000,
        patience: 200,
    };

    fn opened() -> Breaker {
        let mut breaker = Breaker::new(LIMITS);
        for _ in 1..LIMITS.failures {
            assert!(!breaker.failed(1000));
        }
        assert!(breaker.admits(1000) && !breaker.is_open());
        assert!(breaker.failed(1000));
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_try_closes_it() {
        let mut breaker = opened();
        // Late replies to what was sent before change nothing.
        assert!(!breaker.failed(1001));
        assert!(!breaker.admits(1249));
        assert!(breaker.admits(1250));
        assert!(!breaker.admits(1250), "one try at a time");
        assert!(breaker.is_open());
        breaker.succeeded();
        assert!(breaker.admits(1251) && !breaker.is_open());
    }

    #[test]
    fn a_success_starts_the_count_again() {
        let mut breaker = Breaker::new(LIMITS);
        for _ in 0..10 * LIMITS.failures {
            for _ in 1..LIMITS.failures {
                breaker.failed(0);
            }
            breaker.succeeded();
        }
        assert!(breaker.admits(0));
    }

    #[test]
    fn tries_that_fail_make_it_wait_twice_as_long_up_to_a_bound() {
        let mut breaker = opened();
        let mut now = 1000;
        let mut wait = LIMITS.first_wait;
        for _ in 0..10 {
            assert!(!breaker.admits(now + wait - 1));
            now += wait;
            assert!(breaker.admits(now));
            assert!(!breaker.failed(now), "it was open already");
            wait = (wait * 2).min(LIMITS.longest_wait);
        }
    }

    #[test]
    fn what_can_wait_is_held_back_after_a_failure_and_while_it_is_open() {
        let mut breaker = Breaker::new(LIMITS);
        assert!(!breaker.holds(0));
        breaker.failed(1000);
        assert!(breaker.holds(1249) && !breaker.holds(1250));
        let mut breaker = opened();
        assert!(breaker.holds(1249) && !breaker.holds(1250));
        assert!(breaker.is_open(), "asking is no try");
        assert!(breaker.admits(1250));
        assert!(breaker.holds(1449) && !breaker.holds(1450));
        breaker.reset();
        assert!(!breaker.holds(0));
    }

    #[test]
    fn a_try_that_nobody_tells_of_is_followed_by_another() {
        let mut breaker = opened();
        assert!(breaker.admits(1250));
        assert!(!breaker.admits(1449));
        assert!(breaker.admits(1450));
    }
}
