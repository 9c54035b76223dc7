//! What a worker owns: the client and its link to Redis. One of each, made when the worker starts.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use ngx::ffi::{
    NGX_OK, NGX_PROCESS_SINGLE, NGX_PROCESS_WORKER, ngx_current_msec, ngx_cycle_t, ngx_int_t,
    ngx_pid, ngx_process, ngx_random, ngx_uint_t,
};
use ngx::http::{HttpModule, HttpModuleMainConf};
use resolver::vocabulary::Code;
use resolver::{Client, Ticket, Unavailable};

use crate::Shortlink;
use crate::link::{self, Link};
use crate::state::RequestState;

/// The state of a request that waits: it leaves the queue before it is freed.
pub(crate) type Waiting = NonNull<RequestState>;

/// What a worker owns.
pub(crate) struct Worker {
    pub(crate) client: Client<Waiting>,
    pub(crate) link: Link,
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

/// Asks for a link's record on behalf of a request that will wait.
pub(crate) fn submit(code: &Code, state: Waiting) -> Result<Ticket, Unavailable> {
    // SAFETY: submitting and scheduling call nothing that comes back.
    let submitted = unsafe {
        with(|worker| {
            let ticket = worker.client.submit(code, state, now())?;
            worker.link.schedule(&mut worker.client);
            Ok(ticket)
        })
    };
    submitted.unwrap_or(Err(Unavailable))
}

/// Takes a request out of the waiting queue.
pub(crate) fn cancel(ticket: Ticket) {
    // SAFETY: cancelling calls nothing of nginx.
    unsafe { with(|worker| worker.client.cancel(ticket)) };
}

/// The time of this turn of the loop, in milliseconds; it never goes back.
pub(crate) fn now() -> u64 {
    // SAFETY: written by nginx in this very thread only, before any event is handled.
    unsafe { ngx_current_msec as u64 }
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
        let seed = (ngx_random() as u64) << 32 | ngx_pid as u64;
        let client = Client::new(redis.client.clone(), now(), seed);
        let link = Link::new(&redis.addresses, (*cycle).log);
        let worker = Box::into_raw(Box::new(Worker { client, link }));
        WORKER.store(worker, Ordering::Relaxed);
        // Connects now, so that the first visitor finds the connection made.
        link::drive();
        debug_assert!(Shortlink::module().ctx_index != ngx_uint_t::MAX);
    }
    NGX_OK as ngx_int_t
}

/// Called by nginx in each worker when its loop has ended.
pub(crate) unsafe extern "C" fn stop(_cycle: *mut ngx_cycle_t) {
    // Else nginx takes the socket for one that was forgotten.
    // SAFETY: no request is left to be finished by this.
    unsafe { with(|worker| worker.link.close()) };
}
