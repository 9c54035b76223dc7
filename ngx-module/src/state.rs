//! The state of a request, for its whole life.
//!
//! A request's state lives in its pool, as the data of a cleanup: a redirect to a named location
//! clears the module's context but not the pool, so that the log and the variables still find the
//! state, and the cleanup takes the request out of the waiting queue when its client goes away.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use ngx::ffi::{
    ngx_http_cleanup_add, ngx_http_request_t, ngx_pool_cleanup_add, ngx_pool_cleanup_t, ngx_str_t,
};
use ngx::http::{HttpModule, HttpModuleLocationConf, Request};
use resolver::vocabulary::{BadNews, Code};
use resolver::{Outcome, PathCode, Source, Ticket};

use crate::conf::VisitAddress;
use crate::fallback::{self, Wait};
use crate::{Shortlink, worker};

/// The state of a request. It never moves and lives as long as the request's pool.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub(crate) request: *mut ngx_http_request_t,
    /// Its outcome; `None` while Redis has not answered yet.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) source: Source,
    /// The code that the path names; `None` when it names none.
    pub(crate) code: Option<Code>,
    /// The target that was answered; in the request's pool.
    pub(crate) target: ngx_str_t,
    /// The place in the waiting queue, while there is one.
    pub(crate) ticket: Option<Ticket>,
    /// True if the client's address was over its limit of misses when the request came.
    pub(crate) is_limited: bool,
    /// True if the request was charged as a miss before the fallback was asked.
    pub(crate) is_charged: bool,
    /// True if the request is no miss, even if the fallback knows no link.
    pub(crate) is_free: bool,
    /// The wait for the fallback.
    pub(crate) fallback: Option<Wait>,
    /// The bad news that the fallback is to confirm.
    pub(crate) doubtful: Option<BadNews>,
    /// The part of the client's address for its visit, as the location with `shortlink` has it: the
    /// fallback that answers may have another.
    pub(crate) visit_address: VisitAddress,
    /// True if the fallback gave no answer, as `shortlink_unavailable` found.
    pub(crate) is_unavailable: bool,
}

impl RequestState {
    /// Makes the state of a request and ties it to the request's pool; `None` when there is no
    /// memory.
    ///
    /// # Safety
    /// `request` must be valid.
    pub(crate) unsafe fn create(
        request: *mut ngx_http_request_t,
        path_code: Option<PathCode>,
        outcome: Option<Outcome>,
    ) -> Option<NonNull<Self>> {
        // SAFETY: the request is valid, so its pool and its table of contexts are. The data that
        // nginx allocates with the cleanup has the size that is asked for and the alignment of a
        // pointer, which is that of the state.
        unsafe {
            const { assert!(align_of::<RequestState>() <= align_of::<*const ()>()) };
            let cleanup = ngx_pool_cleanup_add((*request).pool, size_of::<Self>());
            let cleanup = cleanup.as_mut()?;
            let state = cleanup.data.cast::<Self>();
            let conf = Shortlink::location_conf(Request::from_ngx_http_request(request));
            state.write(Self {
                request,
                outcome,
                source: Source::None,
                code: path_code.map(|found| found.code),
                target: ngx_str_t {
                    len: 0,
                    data: ptr::null_mut(),
                },
                ticket: None,
                is_limited: false,
                is_charged: false,
                is_free: false,
                fallback: None,
                doubtful: None,
                visit_address: conf.and_then(|conf| conf.visit_address).unwrap_or_default(),
                is_unavailable: false,
            });
            cleanup.handler = Some(release);
            *(*request).ctx.add(Shortlink::module().ctx_index) = state.cast();
            NonNull::new(state)
        }
    }

    /// Finds the state of a request, also after a redirect to a named location.
    ///
    /// # Safety
    /// `request` must be valid.
    pub(crate) unsafe fn find(request: *mut ngx_http_request_t) -> Option<NonNull<Self>> {
        // SAFETY: the request is valid, so its pool and its table of contexts are; what stands in
        // our place of the table, and the data of cleanups with our handler, was put there by
        // `create`.
        unsafe {
            let context = *(*request).ctx.add(Shortlink::module().ctx_index);
            if let Some(state) = NonNull::new(context.cast()) {
                return Some(state);
            }
            let mut cleanup = (*(*request).pool).cleanup;
            while let Some(ngx_pool_cleanup_t {
                handler,
                data,
                next,
            }) = cleanup.as_ref()
            {
                let ours = release as unsafe extern "C" fn(*mut c_void);
                if handler.is_some_and(|handler| ptr::fn_addr_eq(handler, ours)) {
                    // Subrequests share the pool of their main request.
                    let state = data.cast::<Self>();
                    if (*state).request == request {
                        return NonNull::new(state);
                    }
                }
                cleanup = *next;
            }
            None
        }
    }
}

/// Has a request stop waiting when nginx terminates it: its pool may live on, with bytes of it that the
/// client has not taken, and a terminated request may not be continued. `false` without memory.
///
/// # Safety
/// The state's request must be alive.
pub(crate) unsafe fn stop_at_termination(state: NonNull<RequestState>) -> bool {
    // SAFETY: as this function's own. nginx keeps these cleanups at the main request, whose pool is
    // that of its subrequests too.
    unsafe {
        let cleanup = ngx_http_cleanup_add(state.as_ref().request, 0);
        let Some(cleanup) = cleanup.as_mut() else {
            return false;
        };
        cleanup.handler = Some(stop_waiting);
        cleanup.data = state.as_ptr().cast();
        true
    }
}

/// Takes the request out of the waiting queue.
unsafe extern "C" fn stop_waiting(data: *mut c_void) {
    // SAFETY: the data is a state, and the pool still lives.
    let state = unsafe { &mut *data.cast::<RequestState>() };
    if let Some(ticket) = state.ticket.take() {
        worker::cancel(ticket);
    }
}

/// Takes the request out of all waiting queues when it ends.
unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: the data is the state that `create` put there, and the pool still lives.
    let state = unsafe { &mut *data.cast::<RequestState>() };
    if let Some(ticket) = state.ticket.take() {
        worker::cancel(ticket);
    }
    // SAFETY: the request's structure lives in this pool.
    unsafe { fallback::leave(state) };
}
