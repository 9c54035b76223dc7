//! Polling with a deadline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The limit for anything that is expected to happen soon. Generous: machines are slow.
pub const SOON: Duration = Duration::from_secs(20);

/// Polls until there is something, and returns it.
///
/// # Panics
/// When there is nothing within `limit`; `what` says what was waited for.
pub fn eventually<T>(what: &str, limit: Duration, ask: impl FnMut() -> Option<T>) -> T {
    within(limit, ask).unwrap_or_else(|| panic!("not within {limit:?}: {what}"))
}

/// Polls until there is something, which it returns, or nothing has come within
/// `limit`.
pub fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        // A last look after the deadline: the machine may have stalled since the one before.
        let is_last = Instant::now() >= deadline;
        let found = ask();
        if found.is_some() || is_last {
            return found;
        }
        // The one pause of all tests: between two looks at the same thing.
        thread::sleep(Duration::from_millis(5));
    }
}

/// Polls until the answer is yes.
///
/// # Panics
/// As [`eventually`].
pub fn until(what: &str, limit: Duration, mut ask: impl FnMut() -> bool) {
    eventually(what, limit, || ask().then_some(()));
}

/// Says that something is over when it is dropped, which is also when the test fails: to threads
/// that go on until then.
#[derive(Debug)]
pub struct OverAtEnd<'a>(pub &'a AtomicBool);

impl Drop for OverAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Lets time pass where the passing of time is what a test is about.
pub fn pass(time: Duration) {
    let end = Instant::now() + time;
    until("time passes", time + SOON, || Instant::now() >= end);
}
