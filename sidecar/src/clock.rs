//! What time it is: a parameter, so that tests can choose it.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Tells the time of day.
pub trait Clock: Send + Sync {
    /// The present moment, in whole milliseconds, which is as exact as moments are stored.
    fn now(&self) -> Timestamp;

    /// How long ago something began that stays the same while the process lives. It never goes
    /// back, whatever happens to the time of day: what is kept for a while is measured with it.
    fn elapsed(&self) -> Duration;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everybody else is handed"
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
