//! A worker's own state: what it has for each Redis. Made when the worker starts.

pub(crate) mod addresses;
pub(crate) mod backend;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod edge;
pub(crate) mod journal;
pub(crate) mod spool;
pub(crate) mod visits;

use resolver::counters::Counter;
use resolver::fallback::Ending;
use resolver::vocabulary::{BadNews, ClickId, ClickIds};
use resolver::{Outcome, Source, Ticket};

use crate::nginx::module::Cycle;
use crate::nginx::process::{self, Local};
use crate::nginx::shared;
use crate::settings::Settings;
use crate::settings::redis::RedisNumber;
use crate::worker::backend::Backend;
use crate::worker::connections::Callbacks;
use crate::worker::edge::now;

/// The backends of a worker, in the order of the configuration; `None` for one that no location uses.
type Backends = Vec<Option<Backend>>;

/// A request's wait for a fallback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    redis: RedisNumber,
    /// The fallback's place among those of the Redis.
    index: usize,
    /// Since when, in milliseconds.
    since: u64,
}

/// The worker's own; none in the master.
static BACKENDS: Local<Backends> = Local::new();

/// The maker of click ids. It is apart from the backends, which are lent while answers are copied.
static CLICK_IDS: Local<ClickIds> = Local::new();

/// An id for a click, which no other has; `None` if the system has no random numbers.
pub(crate) fn click_id() -> Option<ClickId> {
    CLICK_IDS.with(ClickIds::make)
}

/// Lends what the worker has for a Redis to `work`; `None` where there is none. `work` may not call anything that can
/// come back here: no call that finishes a request or hands it on, or opens a connection. Allocating, posting events,
/// setting timers, and reading, writing and closing sockets are harmless.
#[inline]
pub(crate) fn with<R>(redis: RedisNumber, work: impl FnOnce(&mut Backend) -> R) -> Option<R> {
    BACKENDS.with(|all| all.get_mut(redis.index())?.as_mut().map(work))?
}

/// The same for each Redis.
pub(crate) fn with_each(mut work: impl FnMut(&mut Backend)) {
    BACKENDS.with(|all| all.iter_mut().flatten().for_each(&mut work));
}

/// Counts something.
#[inline]
pub(crate) fn count(redis: RedisNumber, counter: Counter) {
    with(redis, |backend| {
        if let Some(counters) = &backend.counters {
            counters.count(counter);
        }
    });
}

/// Counts a request that was answered, or handed on.
#[inline]
pub(crate) fn count_request(redis: RedisNumber, outcome: Outcome, source: Source) {
    with(redis, |backend| {
        if let Some(counters) = &backend.counters {
            counters.count_request(outcome, source);
        }
    });
}

/// Counts bad news that is not passed on. `is_unproved` says that Redis was asked, and its data are not proved current.
pub(crate) fn doubt(redis: RedisNumber, news: BadNews, is_unproved: bool) {
    with(redis, |backend| {
        let counter = match news {
            BadNews::Gone => Counter::DoubtfulGone,
            BadNews::NotYet => Counter::DoubtfulNotYet,
            BadNews::Unknown => Counter::DoubtfulUnknown,
        };
        backend.count_some(counter, 1);
        if is_unproved {
            backend.journal.unproved(now().ms);
        }
    });
}

/// Makes a request stop waiting.
pub(crate) fn cancel(redis: RedisNumber, ticket: Ticket) {
    with(redis, |backend| backend.edge.cancel(ticket));
}

/// Lets a request wait for a fallback; `None` if that gets none now.
pub(crate) fn enter_fallback(redis: RedisNumber, index: usize) -> Option<Wait> {
    let since = now().ms;
    let entered = with(redis, |backend| backend.enter_fallback(index, since));
    entered?.then_some(Wait {
        redis,
        index,
        since,
    })
}

/// Notes how a wait for a fallback has ended.
pub(crate) fn leave_fallback(wait: Wait, ending: Ending) {
    with(wait.redis, |backend| {
        backend.leave_fallback(wait.index, ending, wait.since, now().ms);
    });
}

/// Makes the worker's own, if this process answers requests; returns the number of places for a Redis.
pub(crate) fn start(cycle: &Cycle, callbacks: Callbacks) -> usize {
    let (Some(main), Some(log)) = (cycle.main::<Settings>(), cycle.log()) else {
        return 0;
    };
    if !process::is_worker() {
        return 0;
    }
    let places = main.redis.iter().enumerate();
    let backends: Backends = places
        .map(|(index, redis)| {
            let number = RedisNumber::new(index);
            let conf = redis.conf.as_ref().filter(|_| redis.used_in.is_some());
            conf.map(|conf| Backend::new(number, redis, conf, main, callbacks, cycle, log))
        })
        .collect();
    BACKENDS.set(backends);
    if let (Some(first), Some(second)) = (shared::secret(), shared::secret()) {
        let keys = [first, second].map(|[low, high]| {
            let key = u128::from(high) << 64 | u128::from(low);
            key.to_le_bytes()
        });
        CLICK_IDS.set(ClickIds::new(keys));
    }
    main.redis.len()
}

/// The loop of the worker has ended: no request is left to be finished.
pub(crate) fn stop() {
    with_each(Backend::stop);
}
