//! What waits for one listener, and how the listener gets it.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{LiveFilter, LiveId, LiveVisit, LiveVisits};

/// The most visits that wait for a listener. Whoever reads more slowly than they come loses some.
pub(super) const MOST_WAITING: usize = 512;

/// How often a listener is told at most how many visits it was not told of.
const TELL_COUNTS_EVERY: Duration = Duration::from_secs(1);

/// What a listener is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Visits are read from now on: what stands behind this.
    Begun(LiveId),
    /// Redis can't be read. What comes meanwhile is told when it can be again.
    Interrupted,
    /// Redis can be read again.
    Resumed,
    /// Between the visit that the listener wanted to go on behind and those that are told now
    /// there may have been others.
    Gap,
    /// A visit.
    Visit(Arc<LiveVisit>),
    /// So many visits were not told, since the listener did not read fast enough.
    Lost(u64),
    /// So many visits were not told, since there were too many a second.
    LeftOut(u64),
}

/// How the feed stands with a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// Nothing was read for it yet.
    Waiting,
    /// All is well.
    Reading,
    /// Redis is away.
    Away,
}

/// What waits for a listener.
#[derive(Debug)]
pub(super) struct Queue {
    /// What it wants to be told of.
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
    /// How it stood when the listener was last told.
    told: Sight,
    /// Behind what it is told of visits, or else where it wants to go on.
    joined: Result<LiveId, Option<LiveId>>,
    limiter: DefaultDirectRateLimiter,
}

impl Queue {
    pub(super) fn new(filter: LiveFilter, after: Option<LiveId>, visits_per_s: u32) -> Self {
        let visits_per_s = NonZeroU32::new(visits_per_s).unwrap_or(NonZeroU32::MIN);
        Self {
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

    /// Where a new listener wants to go on; `None` for one that is not new.
    pub(super) fn newcomer(&self) -> Option<Option<LiveId>> {
        self.waiting().joined.err()
    }

    /// From now on it is told of what is read, which stands behind `at`.
    pub(super) fn join(&self, at: LiveId) {
        self.waiting().joined = Ok(at);
        self.set_sight(Sight::Reading);
    }

    /// Redis is away.
    pub(super) fn interrupt(&self) {
        self.set_sight(Sight::Away);
    }

    /// Redis is back.
    pub(super) fn resume(&self) {
        self.set_sight(Sight::Reading);
    }

    /// Something is missing before what comes.
    pub(super) fn note_gap(&self) {
        self.waiting().has_gap = true;
        self.changed.notify_one();
    }

    /// Whether another visit may be told; counts it if not.
    pub(super) fn admits(&self) -> bool {
        let mut waiting = self.waiting();
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

    /// A visit is not told, since there are too many.
    pub(super) fn leave_out(&self) {
        self.waiting().left_out += 1;
        self.changed.notify_one();
    }

    /// Puts a visit behind those that wait.
    pub(super) fn put(&self, visit: Arc<LiveVisit>) {
        self.waiting().visits.push_back(visit);
        self.changed.notify_one();
    }

    fn set_sight(&self, sight: Sight) {
        self.waiting().sight = sight;
        self.changed.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Each step leaves it in order.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// What is told next; `Err` when it is nothing for now, with whether counts wait to be told.
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

/// Somebody who listens; until this is dropped.
pub struct Listener {
    feed: Arc<LiveVisits>,
    queue: Arc<Queue>,
    /// When counts may be told again.
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

    /// Waits for what is to be told next; `None` when all listening ends. What has not been
    /// answered yet when this is given up is answered the next time.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            if self.feed.parts.stop.is_cancelled() {
                return None;
            }
            let now = Instant::now();
            let next = self.queue.waiting().next(now >= self.count_at);
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
