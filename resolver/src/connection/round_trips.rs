//! Round-trip times of replies.

use std::collections::VecDeque;

/// Commands that leave in one write have one time of departure.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    /// Commands that were put in line, left, and were answered, since the connection was made.
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// The number of the last command of each write that is not answered whole, and when it left.
    departures: VecDeque<(u64, u64)>,
    /// Time of the last received bytes, in microseconds.
    pub(super) now: u64,
}

impl RoundTrips {
    pub(super) fn wrote(&mut self, micros: u64) {
        self.departures.push_back((self.asked, micros));
    }

    pub(super) fn round_trip(&mut self) -> u64 {
        while let Some(&(last, departed)) = self.departures.front() {
            if self.answered <= last {
                return self.now.saturating_sub(departed);
            }
            self.departures.pop_front();
        }
        0
    }
}
