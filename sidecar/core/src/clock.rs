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

/// Rounds a moment down to the precision of the store.
pub fn whole_milliseconds(moment: Timestamp) -> Timestamp {
    // A moment's milliseconds are always in range of a moment.
    Timestamp::from_millisecond(moment.as_millisecond()).unwrap_or(moment)
}
