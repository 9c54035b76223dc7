//! A worker's own state: the edge, its connections and their needs. Made when the worker starts.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Instant;

use ngx::ffi::{
    MADV_HUGEPAGE, NGX_OK, NGX_PROCESS_SINGLE, NGX_PROCESS_WORKER, madvise, ngx_current_msec,
    ngx_cycle_t, ngx_http_conf_ctx_t, ngx_http_core_loc_conf_t, ngx_http_core_module, ngx_int_t,
    ngx_pid, ngx_process, ngx_random, ngx_resolver_t, ngx_time, ngx_uint_t,
};
use ngx::http::HttpModuleMainConf;
use resolver::counters::{Counter, Gauge, WorkerCounters};
use resolver::fallback::Fallback;
use resolver::vocabulary::{BadNews, Code};
use resolver::{Edge, LookUp, NodeId, Now, Outcome, Source, Ticket};

use crate::Shortlink;
use crate::addresses::Addresses;
use crate::fallback;
use crate::handler::Settled;
use crate::journal::Journal;
use crate::links::{self, Links};
use crate::shared;
use crate::spool::Spool;
use crate::state::RequestState;
use crate::tls::Tls;

/// The state of a request that waits: it stops waiting before it is freed.
pub(crate) type Waiting = NonNull<RequestState>;

/// The edge of a worker.
pub(crate) type WorkerEdge = Edge<Waiting>;

/// A worker's own state.
pub(crate) struct Worker {
    pub(crate) edge: WorkerEdge,
    pub(crate) links: Links,
    pub(crate) addresses: Addresses,
    pub(crate) tls: Option<Tls>,
    pub(crate) journal: Journal,
    /// The files for visits that neither Redis nor memory takes.
    pub(crate) spool: Option<Spool>,
    /// The frames that are written to a file next.
    pub(crate) spill: Vec<u8>,
    /// The fallbacks of the configuration.
    pub(crate) fallbacks: Vec<Fallback>,
    /// This worker's counters.
    counters: Option<WorkerCounters<'static>>,
    /// The hash of the code that the last request seemed to name, until its entry is fetched.
    pub(crate) foreseen: Option<u64>,
    started: Instant,
}

/// The result of looking a request's code up.
pub(crate) enum LookedUp {
    /// It is answered.
    Settled(Settled),
    /// It waits.
    Waiting(Ticket),
    /// Redis would have to be asked, but was not to be.
    NotKept,
}

/// The worker's own; null in the master, and where no Redis is configured.
static WORKER: AtomicPtr<Worker> = AtomicPtr::new(ptr::null_mut());

/// Lends the worker's own to `work`; `None` where there is none.
///
/// # Safety
/// `work` may not call anything that can come back here: no call that finishes a request or hands
/// it on. Allocating, posting events, setting timers and socket I/O are harmless.
pub(crate) unsafe fn with<R>(work: impl FnOnce(&mut Worker) -> R) -> Option<R> {
    let worker = WORKER.load(Ordering::Relaxed);
    // SAFETY: the pointer is null or came from a box that is freed only when the process ends. A
    // worker is single-threaded and `work` does not come back here, so this is the only reference.
    unsafe { worker.as_mut() }.map(work)
}

/// Looks a code up on behalf of a request, which waits if that takes time; only in the cache
/// unless `may_ask`.
pub(crate) fn look_up(code: &Code, state: Waiting, may_ask: bool) -> LookedUp {
    // SAFETY: looking up, copying and scheduling call nothing that comes back; the request is
    // alive.
    let looked_up = unsafe {
        with(
            |worker| match worker.edge.look_up_as(code, state, now(), may_ask) {
                LookUp::Answered(answer, source) => {
                    LookedUp::Settled(Settled::copy(answer, source, state))
                }
                LookUp::Waiting(ticket) => {
                    worker.links.post_flush();
                    worker.links.set_timer_for_waiting(&mut worker.edge);
                    LookedUp::Waiting(ticket)
                }
                LookUp::NotKept => LookedUp::NotKept,
            },
        )
    };
    looked_up.unwrap_or_else(|| LookedUp::Settled(Settled::unavailable()))
}

/// Counts something.
#[inline]
pub(crate) fn count(counter: Counter) {
    // SAFETY: counting calls nothing of nginx.
    unsafe {
        with(|worker| {
            if let Some(counters) = &worker.counters {
                counters.count(counter);
            }
        });
    }
}

/// Counts several at once, for who has the worker's own already.
pub(crate) fn count_in(worker: &Worker, counter: Counter, count: u64) {
    if let Some(counters) = &worker.counters {
        counters.add(counter, count);
    }
}

/// Passes on how something is, for who has the worker's own already.
pub(crate) fn set_in(worker: &Worker, gauge: Gauge, value: u64) {
    if let Some(counters) = &worker.counters {
        counters.set(gauge, value);
    }
}

/// Counts a request that was answered, or handed on.
#[inline]
pub(crate) fn count_request(outcome: Outcome, source: Source) {
    // SAFETY: counting calls nothing of nginx.
    unsafe {
        with(|worker| {
            if let Some(counters) = &worker.counters {
                counters.count_request(outcome, source);
            }
        });
    }
}

/// Counts bad news that is not passed on. `is_unproved` says that Redis was asked, and its data are
/// not proved current.
pub(crate) fn doubt(news: BadNews, is_unproved: bool) {
    // SAFETY: counting and logging call nothing that comes back.
    unsafe {
        with(|worker| {
            let counter = match news {
                BadNews::Gone => Counter::DoubtfulGone,
                BadNews::NotYet => Counter::DoubtfulNotYet,
                BadNews::Unknown => Counter::DoubtfulUnknown,
            };
            count_in(worker, counter, 1);
            if is_unproved {
                worker.journal.unproved(now().ms);
            }
        });
    }
}

/// Makes a request stop waiting.
pub(crate) fn cancel(ticket: Ticket) {
    // SAFETY: cancelling calls nothing of nginx.
    unsafe { with(|worker| worker.edge.cancel(ticket)) };
}

/// The time of this turn of the loop; its milliseconds never go back.
#[inline]
pub(crate) fn now() -> Now {
    // SAFETY: written by nginx in this very thread only, before any event is handled.
    unsafe {
        Now {
            ms: ngx_current_msec as u64,
            unix: ngx_time() as u64,
        }
    }
}

impl Worker {
    /// Microseconds since the worker started.
    pub(crate) fn micros(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Sees to it that what is to be sent is sent at the end of this turn, and that no deadline
    /// is missed.
    pub(crate) fn schedule(&mut self) {
        self.links.post_flush();
        self.links.set_timer(&mut self.edge);
        if let Some(deadline) = self.spool_deadline() {
            self.links.look_at(deadline);
        }
    }

    /// Passes on how things are; to be called once a second or so.
    pub(crate) fn measure(&mut self) {
        self.edge.measure();
        fallback::measure(self);
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

/// Called by nginx in each worker before it handles events.
pub(crate) unsafe extern "C" fn start(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    // SAFETY: nginx calls this with the worker's valid cycle, whose configuration and log live as
    // long as the worker.
    unsafe {
        // Cache manager, cache loader and the master answer no requests.
        if ngx_process != NGX_PROCESS_WORKER as ngx_uint_t
            && ngx_process != NGX_PROCESS_SINGLE as ngx_uint_t
        {
            return NGX_OK as ngx_int_t;
        }
        // Without an `http` block there is no configuration to look at.
        let http = *(*cycle).conf_ctx.add(ngx::ffi::ngx_http_module.index);
        if http.is_null() {
            return NGX_OK as ngx_int_t;
        }
        let Some(conf) = Shortlink::main_conf(&*cycle) else {
            return NGX_OK as ngx_int_t;
        };
        let Some(redis) = &conf.redis else {
            return NGX_OK as ngx_int_t;
        };
        let log = (*cycle).log;
        let seed = (ngx_random() as u64) << 32 | ngx_pid as u64;
        let resolver = resolver_of(http.cast());
        let counters = conf.counters.and_then(|zone| zone.claim_counters());
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
                ask_for_large_pages(address, length);
            }
        }
        let worker = Box::into_raw(Box::new(Worker {
            edge,
            links: Links::new(log),
            addresses: Addresses::new(redis.addresses.clone(), resolver),
            tls: redis.tls.clone(),
            journal: Journal::new(log),
            spool,
            spill: Vec::new(),
            fallbacks: fallback::all(&conf.fallbacks, (*cycle).connection_n),
            counters,
            foreseen: None,
            started: Instant::now(),
        }));
        WORKER.store(worker, Ordering::Relaxed);
        with(|worker| worker.measure_spool());
        // Connects now, so that the first visitor finds the connection made.
        links::drive();
    }
    NGX_OK as ngx_int_t
}

/// Asks the system to keep memory in large pages, if it has them: the cache is read all over, and
/// with small ones nearly every read would have to find out first where the page is.
fn ask_for_large_pages(address: usize, length: usize) {
    /// The size of a large page on most systems; where it is another, nothing is lost.
    const LARGE: usize = 2 << 20;
    let begin = address.next_multiple_of(LARGE);
    let end = (address + length) / LARGE * LARGE;
    if begin < end {
        // SAFETY: the range lies within memory of this process. This is advice: it changes neither
        // what stands there nor who may touch it.
        unsafe { madvise(begin as *mut c_void, end - begin, MADV_HUGEPAGE as i32) };
    }
}

/// Returns the `resolver` of the `http` block; null if there is none.
unsafe fn resolver_of(http: *const ngx_http_conf_ctx_t) -> *mut ngx_resolver_t {
    // SAFETY: the context is the `http` block's, whose configuration of nginx' own module exists.
    unsafe {
        let core = *(*http).loc_conf.add(ngx_http_core_module.ctx_index);
        let resolver = (*core.cast::<ngx_http_core_loc_conf_t>()).resolver;
        // nginx makes one without servers where there is no directive.
        match resolver.as_ref() {
            Some(found) if found.connections.nelts > 0 => resolver,
            _ => ptr::null_mut(),
        }
    }
}

/// Called by nginx in each worker when its loop has ended.
pub(crate) unsafe extern "C" fn stop(_cycle: *mut ngx_cycle_t) {
    // Else nginx takes the sockets for ones that were forgotten.
    // SAFETY: no request is left to be finished by this.
    unsafe {
        with(|worker| {
            worker.addresses.stop();
            worker.links.close_all();
            worker.leave_visits();
            worker.measure();
        });
    }
}
