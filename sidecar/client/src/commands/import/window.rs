//! The window of a file's upload: rows that are sent and not yet answered.
//!
//! nginx does not resume a request whose answer has begun once the service has read more slowly
//! than nginx writes: both sides then wait until nginx gives up. So no more is sent than the
//! service reads at once, but enough for it to work in full chunks of a thousand rows, or fewer
//! of 2 MiB.

use tokio::runtime::Handle;
use tokio::sync::watch;

/// The most rows in the window.
const ROWS: u64 = 2000;

/// The most bytes of rows in the window.
const BYTES: u64 = 4 << 20;

/// The answers so far.
#[derive(Debug, Default)]
pub(super) struct Answered {
    /// The number of answered rows.
    pub(super) rows: u64,
    /// The position of the last one.
    pub(super) bytes: u64,
}

/// The side that sends, on a thread of its own.
#[derive(Debug)]
pub(super) struct Window {
    runtime: Handle,
    answers: watch::Receiver<Answered>,
    rows: u64,
    bytes: u64,
}

impl Window {
    /// Begins. The upload ends when the sender of answers is dropped.
    pub(super) fn new(runtime: Handle, answers: watch::Receiver<Answered>) -> Self {
        Self {
            runtime,
            answers,
            rows: 0,
            bytes: 0,
        }
    }

    /// Waits until more may be sent, and counts it. Returns false when the upload has ended.
    pub(super) fn enter(&mut self, rows: u64, bytes: u64) -> bool {
        let has_room = |answered: &Answered| {
            self.rows.saturating_sub(answered.rows) < ROWS
                && self.bytes.saturating_sub(answered.bytes) < BYTES
        };
        let waited = self
            .runtime
            .block_on(self.answers.wait_for(has_room))
            .map(drop);
        let has_ended = waited.is_err() || self.answers.has_changed().is_err();
        self.rows += rows;
        self.bytes += bytes;
        !has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> (watch::Sender<Answered>, Window) {
        let (answered, answers) = watch::channel(Answered::default());
        (answered, Window::new(Handle::current(), answers))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sender_waits_for_answers() {
        let (answered, mut window) = window();
        let sender = std::thread::spawn(move || {
            let is_open = window.enter(ROWS, 10) && window.enter(1, BYTES) && window.enter(1, 1);
            (is_open, window.rows)
        });
        // One answer lets the next part through, which has too many bytes for another.
        answered.send_modify(|answered| answered.rows = 1);
        std::thread::yield_now();
        assert!(!sender.is_finished());
        answered.send_modify(|answered| {
            *answered = Answered {
                rows: 2,
                bytes: BYTES,
            }
        });
        assert_eq!(sender.join().expect("no panic"), (true, ROWS + 2));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sender_stops_waiting_at_the_end() {
        let (answered, mut window) = window();
        let sender = std::thread::spawn(move || window.enter(ROWS, 10) && window.enter(1, 1));
        drop(answered);
        assert!(!sender.join().expect("no panic"));
    }
}
