//! All that a worker has for one Redis: the edge, its connections and their needs.

use std::time::Instant;

use resolver::counters::{Counter, Gauge, WorkerCounters};
use resolver::fallback::{Ending, Fallback, Refused};
use resolver::{Edge, NodeId};

use crate::nginx::log::Log;
use crate::nginx::module::Cycle;
use crate::nginx::process;
use crate::nginx::shared;
use crate::settings::redis::{BoundedFallback, Redis, RedisConf, RedisNumber, Tls};
use crate::settings::{MainConf, SpoolConf};
use crate::worker::addresses::Addresses;
use crate::worker::connections::{Callbacks, Connections};
use crate::worker::edge::{WorkerEdge, now};
use crate::worker::journal::Journal;
use crate::worker::spool::Spool;

/// All that a worker has for one Redis.
pub(crate) struct Backend {
    pub(crate) edge: WorkerEdge,
    pub(crate) connections: Connections,
    pub(crate) addresses: Addresses,
    pub(crate) tls: Option<Tls>,
    pub(crate) journal: Journal,
    /// The files for visits that neither Redis nor memory takes.
    pub(crate) spool: Option<Spool>,
    /// The frames that are written to a file next.
    pub(crate) spill: Vec<u8>,
    /// The fallbacks of its locations.
    fallbacks: Vec<Fallback>,
    /// This worker's counters.
    pub(crate) counters: Option<WorkerCounters<'static>>,
    /// The hash of the code that the last request seemed to name, until its entry is fetched.
    pub(crate) foreseen: Option<u64>,
    started: Instant,
}

impl Backend {
    /// Makes it, without connections.
    pub(crate) fn new(
        number: RedisNumber,
        redis: &Redis,
        conf: &RedisConf,
        main: &MainConf,
        callbacks: Callbacks,
        cycle: &Cycle,
        log: Log,
    ) -> Self {
        let seed = process::seed();
        let counters = redis.counters.and_then(|zone| zone.claim());
        let mut edge = Edge::new(conf.edge_settings(main.cache), now().ms, seed);
        if let Some(counters) = counters {
            edge.count_in(counters);
        }
        // Two edges that had one origin would give one name to two events.
        let origin = shared::secret().map_or(seed, |secret| secret[0]);
        let mut spool = None;
        if let Some(visits) = &main.visits {
            edge.keep_visits(&visits.settings, origin);
            let conf = visits.spool.as_ref().zip(redis.spool.clone());
            spool = conf
                .map(|(&SpoolConf { size, .. }, directory)| Spool::new(directory, size, origin));
        }
        if let Some(cache) = edge.cache() {
            for (address, length) in cache.extents() {
                process::ask_for_large_pages(address, length);
            }
        }
        let limits = |bounded: &BoundedFallback| Fallback::new(bounded.limits, cycle.connections());
        let this = Self {
            edge,
            connections: Connections::new(number, callbacks, log),
            addresses: Addresses::new(conf.addresses.clone(), cycle.resolver()),
            tls: conf.tls.clone(),
            journal: Journal::new(&redis.name, log),
            spool,
            spill: Vec::new(),
            fallbacks: redis.fallbacks.iter().map(limits).collect(),
            counters,
            foreseen: None,
            started: Instant::now(),
        };
        this.measure_spool();
        this
    }

    /// Counts several at once.
    pub(crate) fn count_some(&self, counter: Counter, count: u64) {
        if let Some(counters) = &self.counters {
            counters.add(counter, count);
        }
    }

    /// Passes on how something is.
    pub(crate) fn set(&self, gauge: Gauge, value: u64) {
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

    /// Lets a request wait for a fallback; `false` if that gets none now.
    pub(crate) fn enter_fallback(&mut self, index: usize, now: u64) -> bool {
        let Some(fallback) = self.fallbacks.get_mut(index) else {
            return false;
        };
        let counter = match fallback.enter(now) {
            Ok(()) => return true,
            Err(Refused::Full) => {
                self.journal.fallback_full(now);
                Counter::FallbackFull
            }
            Err(Refused::Failing) => Counter::FallbackFailing,
        };
        self.count_some(counter, 1);
        false
    }

    /// Notes how a wait for a fallback has ended, which began at `since`.
    pub(crate) fn leave_fallback(&mut self, index: usize, ending: Ending, since: u64, now: u64) {
        let fallback = self.fallbacks.get_mut(index);
        if fallback.is_some_and(|it| it.leave(ending, since, now)) {
            self.journal.fallback_failing(now);
            self.count_some(Counter::FallbackBreakerOpened, 1);
        }
    }

    /// Says in the log that a server is lost, once an outage.
    pub(crate) fn log_outage(&mut self, node: NodeId, reason: &str) {
        self.journal.outage(&self.edge, node, reason, now().ms);
    }

    /// Says in the log that a server is back.
    pub(crate) fn log_recovery(&mut self, node: NodeId) {
        self.journal.recovery(&self.edge, node, now().ms);
    }

    /// The worker ends.
    pub(crate) fn stop(&mut self) {
        self.addresses.stop();
        // Else nginx takes the sockets for ones that were forgotten.
        self.connections.close_all();
        self.leave_visits();
        self.measure();
    }
}
