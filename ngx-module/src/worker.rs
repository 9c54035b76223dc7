//! A worker's own state: the edge, its connections and their needs. Made when the worker starts.

pub(crate) mod addresses;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod edge;
pub(crate) mod journal;
pub(crate) mod spool;
pub(crate) mod visits;

use std::time::Instant;

use resolver::counters::{Counter, Gauge, WorkerCounters};
use resolver::fallback::{Ending, Fallback, Refused};
use resolver::vocabulary::BadNews;
use resolver::{Edge, NodeId, Outcome, Source, Ticket};

use crate::nginx::module::Cycle;
use crate::nginx::process::{self, Local};
use crate::nginx::shared;
use crate::settings::redis::Tls;
use crate::settings::{BoundedFallback, Settings};
use crate::worker::addresses::Addresses;
use crate::worker::connections::{Callbacks, Connections};
use crate::worker::edge::{WorkerEdge, now};
use crate::worker::journal::Journal;
use crate::worker::spool::Spool;

/// A worker's own state.
pub(crate) struct Worker {
    pub(crate) edge: WorkerEdge,
    pub(crate) connections: Connections,
    pub(crate) addresses: Addresses,
    pub(crate) tls: Option<Tls>,
    pub(crate) journal: Journal,
    /// The files for visits that neither Redis nor memory takes.
    spool: Option<Spool>,
    /// The frames that are written to a file next.
    spill: Vec<u8>,
    /// The fallbacks of the configuration.
    fallbacks: Vec<Fallback>,
    /// This worker's counters.
    counters: Option<WorkerCounters<'static>>,
    /// The hash of the code that the last request seemed to name, until its entry is fetched.
    pub(crate) foreseen: Option<u64>,
    started: Instant,
}

/// A request's wait for a fallback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The fallback's place among those of the configuration.
    index: usize,
    /// Since when, in milliseconds.
    since: u64,
}

/// The worker's own; none in the master, and where no Redis is configured.
static WORKER: Local<Worker> = Local::new();

/// Lends the worker's own to `work`; `None` where there is none. `work` may not call anything that can come back
/// here: no call that finishes a request or hands it on, or opens a connection. Allocating, posting events, setting
/// timers, and reading, writing and closing sockets are harmless.
#[inline]
pub(crate) fn with<R>(work: impl FnOnce(&mut Worker) -> R) -> Option<R> {
    WORKER.with(work)
}

/// Counts something.
#[inline]
pub(crate) fn count(counter: Counter) {
    with(|worker| {
        if let Some(counters) = &worker.counters {
            counters.count(counter);
        }
    });
}

/// Counts a request that was answered, or handed on.
#[inline]
pub(crate) fn count_request(outcome: Outcome, source: Source) {
    with(|worker| {
        if let Some(counters) = &worker.counters {
            counters.count_request(outcome, source);
        }
    });
}

/// Counts bad news that is not passed on. `is_unproved` says that Redis was asked, and its data are not proved current.
pub(crate) fn doubt(news: BadNews, is_unproved: bool) {
    with(|worker| {
        let counter = match news {
            BadNews::Gone => Counter::DoubtfulGone,
            BadNews::NotYet => Counter::DoubtfulNotYet,
            BadNews::Unknown => Counter::DoubtfulUnknown,
        };
        worker.count_some(counter, 1);
        if is_unproved {
            worker.journal.unproved(now().ms);
        }
    });
}

/// Makes a request stop waiting.
pub(crate) fn cancel(ticket: Ticket) {
    with(|worker| worker.edge.cancel(ticket));
}

/// Lets a request wait for a fallback; `None` if that gets none now.
pub(crate) fn enter_fallback(index: usize) -> Option<Wait> {
    let now = now().ms;
    let entered = with(|worker| {
        let refused = match worker.fallbacks.get_mut(index)?.enter(now) {
            Ok(()) => return Some(Wait { index, since: now }),
            Err(refused) => refused,
        };
        let counter = match refused {
            Refused::Full => {
                worker.journal.fallback_full(now);
                Counter::FallbackFull
            }
            Refused::Failing => Counter::FallbackFailing,
        };
        worker.count_some(counter, 1);
        None
    });
    entered.flatten()
}

/// Notes how a wait for a fallback has ended.
pub(crate) fn leave_fallback(wait: Wait, ending: Ending) {
    let now = now().ms;
    with(|worker| {
        let fallback = worker.fallbacks.get_mut(wait.index);
        if fallback.is_some_and(|it| it.leave(ending, wait.since, now)) {
            worker.journal.fallback_failing(now);
            worker.count_some(Counter::FallbackBreakerOpened, 1);
        }
    });
}

impl Worker {
    /// Counts several at once.
    pub(crate) fn count_some(&self, counter: Counter, count: u64) {
        if let Some(counters) = &self.counters {
            counters.add(counter, count);
        }
    }

    /// Passes on how something is.
    fn set(&self, gauge: Gauge, value: u64) {
        if let Some(counters) = &self.counters {
            counters.set(gauge, value);
        }
    }

    /// A clock of the microseconds since the worker started.
    pub(crate) fn clock(&self) -> impl Fn() -> u64 + use<> {
        let started = self.started;
        move || started.elapsed().as_micros() as u64
    }

    /// Writes what the edge has to send; the node whose connection broke, if one did.
    pub(crate) fn flush(&mut self) -> Option<NodeId> {
        let micros = self.clock()();
        self.connections.flush(&mut self.edge, micros)
    }

    /// Sees to it that what is to be sent is sent at the end of this turn, and that no deadline is missed.
    pub(crate) fn schedule(&mut self) {
        self.connections.post_flush();
        self.connections.set_timer(&mut self.edge);
        if let Some(deadline) = self.spool_deadline() {
            self.connections.look_at(deadline);
        }
    }

    /// Passes on how things are; to be called once a second or so.
    pub(crate) fn measure(&mut self) {
        self.edge.measure();
        let waiting = self.fallbacks.iter().map(Fallback::waiting).sum::<usize>();
        let failing = self.fallbacks.iter().filter(|it| it.is_failing()).count();
        self.set(Gauge::FallbackWaiting, waiting as u64);
        self.set(Gauge::FallbackBreakerOpen, failing as u64);
    }

    /// Says in the log that a server is lost, once an outage.
    pub(crate) fn log_outage(&mut self, node: NodeId, reason: &str) {
        self.journal.outage(&self.edge, node, reason, now().ms);
    }

    /// Says in the log that a server is back.
    pub(crate) fn log_recovery(&mut self, node: NodeId) {
        self.journal.recovery(&self.edge, node, now().ms);
    }
}

/// Makes the worker's own, if this process answers requests and Redis is configured.
pub(crate) fn start(cycle: &Cycle, callbacks: Callbacks) {
    if !process::is_worker() {
        return;
    }
    let (Some(conf), Some(log)) = (cycle.main::<Settings>(), cycle.log()) else {
        return;
    };
    let Some(redis) = &conf.redis else {
        return;
    };
    let seed = process::seed();
    let counters = conf.counters.and_then(|zone| zone.claim());
    let mut edge = Edge::new(redis.edge_settings(conf.cache), now().ms, seed);
    if let Some(counters) = counters {
        edge.count_in(counters);
    }
    // Two workers that had one origin would give one name to two events.
    let origin = shared::secret().map_or(seed, |secret| secret[0]);
    let mut spool = None;
    if let Some(visits) = &conf.visits {
        edge.keep_visits(&visits.settings, origin);
        spool = visits.spool.as_ref().map(|conf| Spool::new(conf, origin));
    }
    if let Some(cache) = edge.cache() {
        for (address, length) in cache.extents() {
            process::ask_for_large_pages(address, length);
        }
    }
    let limits = |bounded: &BoundedFallback| Fallback::new(bounded.limits, cycle.connections());
    WORKER.set(Worker {
        edge,
        connections: Connections::new(callbacks, log),
        addresses: Addresses::new(redis.addresses.clone(), cycle.resolver()),
        tls: redis.tls.clone(),
        journal: Journal::new(log),
        spool,
        spill: Vec::new(),
        fallbacks: conf.fallbacks.iter().map(limits).collect(),
        counters,
        foreseen: None,
        started: Instant::now(),
    });
    with(|worker| worker.measure_spool());
}

/// The loop of the worker has ended: no request is left to be finished.
pub(crate) fn stop() {
    with(|worker| {
        worker.addresses.stop();
        // Else nginx takes the sockets for ones that were forgotten.
        worker.connections.close_all();
        worker.leave_visits();
        worker.measure();
    });
}
