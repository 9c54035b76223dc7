//! The window of a file's upload: rows that are sent and not yet answered.
//!
//! nginx does not resume a request whose answer has begun once the service has read more slowly
//! than nginx writes: both sides then wait until nginx gives up. So no more is sent than the
//! service reads at once, but enough for it to work in full chunks of a thousand rows, or fewer
//! of 2 MiB.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The most rows in the window.
const ROWS: u64 = 2000;

/// The most bytes of rows in the window.
const BYTES: u64 = 4 << 20;

/// The rows and bytes that are not yet answered.
#[derive(Debug, Default)]
pub(super) struct Window {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rows_sent: u64,
    bytes_sent: u64,
    rows_answered: u64,
    /// The position of the last answered row.
    bytes_answered: u64,
    is_closed: bool,
}

impl State {
    fn is_full(&self) -> bool {
        self.rows_sent.saturating_sub(self.rows_answered) >= ROWS
            || self.bytes_sent.saturating_sub(self.bytes_answered) >= BYTES
    }
}

impl Window {
    /// Waits until more may be sent, and counts it. Returns false when the upload has ended.
    pub(super) fn enter(&self, rows: u64, bytes: u64) -> bool {
        let mut state = self.state();
        while state.is_full() && !state.is_closed {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.rows_sent += rows;
        state.bytes_sent += bytes;
        !state.is_closed
    }

    /// Notes that one more row is answered, which was found there.
    pub(super) fn answer(&self, place: u64) {
        let mut state = self.state();
        let was_full = state.is_full();
        state.rows_answered += 1;
        state.bytes_answered = place;
        if was_full && !state.is_full() {
            self.changed.notify_one();
        }
    }

    /// Ends the upload, and wakes the thread that waits.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers are changed together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn who_sends_waits_for_answers() {
        let window = Arc::new(Window::default());
        assert!(window.enter(ROWS, 10));
        let waiting = Arc::clone(&window);
        let sender = std::thread::spawn(move || waiting.enter(1, BYTES) && waiting.enter(1, 1));
        // One answer lets the next part through, which has too many bytes for another.
        window.answer(0);
        window.answer(BYTES + 10);
        assert!(sender.join().expect("no panic"));
        assert_eq!(window.state().rows_sent, ROWS + 2);
    }

    #[test]
    fn who_waits_goes_on_at_the_end() {
        let window = Arc::new(Window::default());
        assert!(window.enter(ROWS, 10));
        let waiting = Arc::clone(&window);
        let sender = std::thread::spawn(move || waiting.enter(1, 1));
        window.close();
        assert!(!sender.join().expect("no panic"));
    }
}
