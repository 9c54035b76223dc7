//! The queue of a listener, and its delivery.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;
use shortlink_core::boxed;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{LiveFilter, LiveId, LiveVisit, LiveVisits};

/// The most visits in a queue. A slow listener loses visits beyond that.
pub(super) const MOST_WAITING: usize = 512;

/// Interval at which a listener is notified of dropped visits, at most.
const TELL_COUNTS_EVERY: Duration = Duration::from_secs(1);

/// A message to a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Visits are delivered from now on: those after this position.
    Begun(LiveId),
    /// Redis cannot be read. Visits that occur meanwhile follow after it resumes.
    Interrupted,
    /// Redis can be read again.
    Resumed,
    /// Visits may be missing between the position from which the listener resumed and the next one.
    Gap,
    /// A visit.
    Visit(Arc<LiveVisit>),
    /// Number of visits dropped because the listener was too slow.
    Lost(u64),
    /// Number of visits dropped by the rate limit.
    LeftOut(u64),
}

/// State of the feed for a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// Nothing has been read for it yet.
    Waiting,
    /// Visits are delivered.
    Reading,
    /// Redis is unreachable.
    Away,
}

/// The queue of a listener.
#[derive(Debug)]
pub(super) struct Queue {
    /// The id of the listener's API key.
    pub(super) key_id: Box<str>,
    /// The listener's filter.
    pub(super) filter: LiveFilter,
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug)]
struct Waiting {
    visits: VecDeque<Arc<LiveVisit>>,
    lost: u64,
    left_out: u64,
    has_gap: bool,
    sight: Sight,
    /// The state that the listener was last notified of.
    told: Sight,
    /// The position after which visits are delivered, or else the position from which the listener
    /// wants to resume.
    joined: Result<LiveId, Option<LiveId>>,
    limiter: DefaultDirectRateLimiter,
}

impl Queue {
    pub(super) fn new(
        key_id: &str,
        filter: LiveFilter,
        after: Option<LiveId>,
        visits_per_s: u32,
    ) -> Self {
        let visits_per_s = NonZeroU32::new(visits_per_s).unwrap_or(NonZeroU32::MIN);
        Self {
            key_id: key_id.into(),
            filter,
            waiting: Mutex::new(Waiting {
                visits: VecDeque::new(),
                lost: 0,
                left_out: 0,
                has_gap: false,
                sight: Sight::Waiting,
                told: Sight::Waiting,
                joined: Err(after),
                limiter: RateLimiter::direct(Quota::per_second(visits_per_s)),
            }),
            changed: Notify::new(),
        }
    }

    /// Returns the position from which a new listener wants to resume; `None` for one that has
    /// joined.
    pub(super) fn newcomer(&self) -> Option<Option<LiveId>> {
        self.waiting.lock().joined.err()
    }

    /// Starts delivery after `at`.
    pub(super) fn join(&self, at: LiveId) {
        self.waiting.lock().joined = Ok(at);
        self.set_sight(Sight::Reading);
    }

    /// Records that Redis is unreachable.
    pub(super) fn interrupt(&self) {
        self.set_sight(Sight::Away);
    }

    /// Records that Redis is reachable again.
    pub(super) fn resume(&self) {
        self.set_sight(Sight::Reading);
    }

    /// Records that visits before the next one may be missing.
    pub(super) fn note_gap(&self) {
        self.waiting.lock().has_gap = true;
        self.changed.notify_one();
    }

    /// Returns true when the queue and the rate limit have space for another visit; otherwise
    /// counts it as dropped.
    pub(super) fn admits(&self) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.visits.len() >= MOST_WAITING {
            waiting.lost += 1;
        } else if waiting.limiter.check().is_ok() {
            return true;
        } else {
            waiting.left_out += 1;
        }
        drop(waiting);
        self.changed.notify_one();
        false
    }

    /// Counts a visit dropped by the limit on enrichment.
    pub(super) fn leave_out(&self) {
        self.waiting.lock().left_out += 1;
        self.changed.notify_one();
    }

    /// Appends a visit to the queue.
    pub(super) fn put(&self, visit: Arc<LiveVisit>) {
        self.waiting.lock().visits.push_back(visit);
        self.changed.notify_one();
    }

    fn set_sight(&self, sight: Sight) {
        self.waiting.lock().sight = sight;
        self.changed.notify_one();
    }
}

impl Waiting {
    /// Returns the next message; `Err` when there is none, with true when counts of dropped visits
    /// are due later.
    fn next(&mut self, may_count: bool) -> Result<Told, bool> {
        if self.sight != self.told {
            let before = std::mem::replace(&mut self.told, self.sight);
            return Ok(match (before, self.sight, self.joined) {
                (Sight::Waiting, Sight::Reading, Ok(at)) => Told::Begun(at),
                (_, Sight::Away, _) => Told::Interrupted,
                _ => Told::Resumed,
            });
        }
        if std::mem::take(&mut self.has_gap) {
            return Ok(Told::Gap);
        }
        if may_count && self.lost > 0 {
            return Ok(Told::Lost(std::mem::take(&mut self.lost)));
        }
        if may_count && self.left_out > 0 {
            return Ok(Told::LeftOut(std::mem::take(&mut self.left_out)));
        }
        let visit = self.visits.pop_front().map(Told::Visit);
        visit.ok_or(self.lost > 0 || self.left_out > 0)
    }
}

/// A listener, until it is dropped.
pub struct Listener {
    feed: Arc<LiveVisits>,
    queue: Arc<Queue>,
    /// Time from which counts of dropped visits may be reported again.
    count_at: Instant,
}

impl Listener {
    pub(super) fn new(feed: Arc<LiveVisits>, queue: Arc<Queue>) -> Self {
        Self {
            feed,
            queue,
            count_at: Instant::now(),
        }
    }

    /// Waits for the next message; `None` when the feed stops. This is cancellation safe: a
    /// cancelled call loses no message.
    #[boxed]
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            if self.feed.parts.stop.is_cancelled() {
                return None;
            }
            let now = Instant::now();
            let next = self.queue.waiting.lock().next(now >= self.count_at);
            let has_counts = match next {
                Ok(told) => {
                    if matches!(told, Told::Lost(_) | Told::LeftOut(_)) {
                        self.count_at = now + TELL_COUNTS_EVERY;
                    }
                    return Some(told);
                }
                Err(has_counts) => has_counts,
            };
            tokio::select! {
                () = self.feed.parts.stop.cancelled() => return None,
                () = self.queue.changed.notified() => {}
                () = tokio::time::sleep_until(self.count_at), if has_counts => {}
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.feed.leave(&self.queue);
    }
}
