//! The clock: a parameter, so that tests can set the time.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Provides the time.
pub trait Clock: Send + Sync {
    /// The present moment, in whole milliseconds, which is as exact as moments are stored.
    fn now(&self) -> Timestamp;

    /// Returns the time since an origin that is fixed while the process lives. It is monotonic
    /// whatever happens to the time of day, so it measures lifetimes of cached values.
    fn elapsed(&self) -> Duration;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that all other code is given"
    )]
    fn now(&self) -> Timestamp {
        whole_milliseconds(Timestamp::now())
    }

    fn elapsed(&self) -> Duration {
        static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGINNING.elapsed()
    }
}

fn whole_milliseconds(moment: Timestamp) -> Timestamp {
    // A moment's milliseconds are always in range of a moment.
    Timestamp::from_millisecond(moment.as_millisecond()).unwrap_or(moment)
}

/// A clock that stands still until a test moves it.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct ManualClock(std::sync::Mutex<Timestamp>);

#[cfg(test)]
impl ManualClock {
    pub(crate) fn at(moment: &str) -> Self {
        Self(std::sync::Mutex::new(moment.parse().expect("a moment")))
    }

    pub(crate) fn advance(&self, by: jiff::SignedDuration) {
        let mut now = self.0.lock().expect("no holder panics");
        *now += by;
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().expect("no holder panics")
    }

    fn elapsed(&self) -> Duration {
        let since_1970 = self.now().duration_since(Timestamp::UNIX_EPOCH);
        since_1970.try_into().expect("a moment after 1970")
    }
}
