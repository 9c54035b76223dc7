//! A request comes and is answered.
//!
//! The handler is a content handler: every phase before it (limits, access, rewrite) has run as
//! in any location. Either the answer is known at once, or the request waits for Redis and
//! [`complete`] is called from the link's events.

use std::ptr::NonNull;

use ngx::ffi::{
    NGX_DONE, NGX_ERROR, NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_OK,
    ngx_http_block_reading, ngx_http_discard_request_body, ngx_http_finalize_request,
    ngx_http_named_location, ngx_http_request_t, ngx_http_run_posted_requests,
    ngx_http_test_reading, ngx_int_t, ngx_pnalloc, ngx_str_t, ngx_uint_t,
};
use ngx::http::{HttpModuleLocationConf, HttpModuleMainConf, Request};
use resolver::path::code_of_path;
use resolver::vocabulary::RedirectStatus;
use resolver::{Answer, MissReason, Refusal};

use crate::state::{Outcome, RequestState, Source};
use crate::worker::LookedUp;
use crate::{Shortlink, respond, worker};

/// An answer that no longer lives in the client's input: what is needed of it was copied into the
/// request's pool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OwnedAnswer {
    Redirect {
        status: RedirectStatus,
        target: ngx_str_t,
    },
    Gone,
    Unknown,
    Miss(MissReason),
    /// There was no memory for the copy.
    NoMemory,
}

impl OwnedAnswer {
    /// Copies an answer for a request.
    ///
    /// # Safety
    /// The state's request must be alive.
    pub(crate) unsafe fn copy(answer: Answer<'_>, state: NonNull<RequestState>) -> Self {
        match answer {
            Answer::Gone => Self::Gone,
            Answer::Unknown => Self::Unknown,
            Answer::Miss(reason) => Self::Miss(reason),
            Answer::Redirect { status, target } => {
                // SAFETY: the request is alive, so its pool is; the allocation has the target's
                // length. Allocating does not call back into this module.
                unsafe {
                    let pool = (*state.as_ref().request).pool;
                    let data = ngx_pnalloc(pool, target.len()).cast::<u8>();
                    if data.is_null() {
                        return Self::NoMemory;
                    }
                    data.copy_from_nonoverlapping(target.as_ptr(), target.len());
                    Self::Redirect {
                        status,
                        target: ngx_str_t {
                            len: target.len(),
                            data,
                        },
                    }
                }
            }
        }
    }
}

/// An answer and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    answer: OwnedAnswer,
    source: resolver::Source,
}

impl Settled {
    /// Copies an answer for a request.
    ///
    /// # Safety
    /// The state's request must be alive.
    pub(crate) unsafe fn copy(
        answer: Answer<'_>,
        source: resolver::Source,
        state: NonNull<RequestState>,
    ) -> Self {
        // SAFETY: as this function's own.
        let answer = unsafe { OwnedAnswer::copy(answer, state) };
        Self { answer, source }
    }

    /// Nobody can be asked.
    pub(crate) fn unavailable() -> Self {
        Self {
            answer: OwnedAnswer::Miss(MissReason::Unavailable),
            source: resolver::Source::None,
        }
    }
}

/// The content handler of a location with `shortlink`.
pub(crate) unsafe extern "C" fn handle(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls a content handler with a valid request whose phases have run; what is
    // returned is what it finalizes the request with.
    unsafe {
        if (*request).method & (NGX_HTTP_GET | NGX_HTTP_HEAD) as ngx_uint_t == 0 {
            if RequestState::create(request, None, Outcome::Method).is_none() {
                return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
            }
            return respond::method_not_allowed(request);
        }
        let discarded = ngx_http_discard_request_body(request);
        if discarded != NGX_OK as ngx_int_t {
            return discarded;
        }
        let Some(conf) = Shortlink::main_conf(Request::from_ngx_http_request(request)) else {
            return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
        };
        let (path_code, outcome) = match code_of_path((*request).uri.as_bytes(), &conf.rules) {
            Ok(found) => (Some(found), Outcome::Waiting),
            Err(Refusal::Malformed) => (None, Outcome::Malformed),
            Err(Refusal::WrongCheck) => (None, Outcome::WrongCheck),
        };
        let Some(mut state) = RequestState::create(request, path_code, outcome) else {
            return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
        };
        let Some(path_code) = path_code else {
            return respond::not_found(request);
        };
        match worker::look_up(&path_code.code, state) {
            LookedUp::Waiting(ticket) => {
                state.as_mut().ticket = Some(ticket);
                // Notices a client that goes away; nginx then ends the request, and the state's
                // cleanup stops the waiting.
                (*request).read_event_handler = Some(ngx_http_test_reading);
                let main = (*request).main;
                (*main).set_count((*main).count() + 1);
                NGX_DONE as ngx_int_t
            }
            LookedUp::Settled(settled) => answer(state, settled),
        }
    }
}

/// Answers a request that waited.
///
/// # Safety
/// The state's request must be alive and waiting. No reference to the worker's state may be held:
/// finishing a request can begin the next one.
pub(crate) unsafe fn complete(mut state: NonNull<RequestState>, settled: Settled) {
    // SAFETY: as this function's own. The connection outlives the request: nginx keeps the
    // structure of a closed connection, and marks it as destroyed.
    unsafe {
        let request = state.as_ref().request;
        let connection = (*request).connection;
        state.as_mut().ticket = None;
        (*request).read_event_handler = Some(ngx_http_block_reading);
        let result = answer(state, settled);
        ngx_http_finalize_request(request, result);
        ngx_http_run_posted_requests(connection);
    }
}

/// Answers a request, or hands it to the fallback; what is returned finalizes it.
unsafe fn answer(mut state: NonNull<RequestState>, settled: Settled) -> ngx_int_t {
    // SAFETY: the callers' request is alive; the reference to the state ends before nginx is
    // called with the request.
    unsafe {
        let request = state.as_ref().request;
        let mut settle = |outcome, source| {
            let state = state.as_mut();
            state.outcome = outcome;
            state.source = source;
        };
        let source = match settled.source {
            resolver::Source::Cache => Source::Cache,
            resolver::Source::Stale => Source::Stale,
            resolver::Source::Redis => Source::Redis,
            resolver::Source::None => Source::None,
        };
        match settled.answer {
            OwnedAnswer::Redirect { status, target } => {
                settle(Outcome::Redirect, source);
                state.as_mut().target = target;
                respond::redirect(request, status, target)
            }
            OwnedAnswer::Gone => {
                settle(Outcome::Gone, source);
                respond::gone(request)
            }
            OwnedAnswer::Unknown => {
                settle(Outcome::Unknown, source);
                respond::not_found(request)
            }
            OwnedAnswer::NoMemory => NGX_ERROR as ngx_int_t,
            OwnedAnswer::Miss(reason) => {
                let Some(conf) = Shortlink::location_conf(Request::from_ngx_http_request(request))
                else {
                    return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
                };
                let outcome = match reason {
                    MissReason::Absent | MissReason::Unreadable => Outcome::Miss,
                    MissReason::Error | MissReason::Unavailable | MissReason::TimedOut => {
                        Outcome::Unavailable
                    }
                };
                if let Some(fallback) = &conf.fallback {
                    settle(outcome, Source::Fallback);
                    let mut name = fallback.name;
                    return ngx_http_named_location(request, &mut name);
                }
                // Without a fallback Redis is all there is: what it does not have does not
                // exist, but what it can't tell nobody knows.
                let source = match outcome {
                    Outcome::Miss => source,
                    _ => Source::None,
                };
                settle(outcome, source);
                match reason {
                    MissReason::Absent => respond::not_found(request),
                    _ => respond::unavailable(request),
                }
            }
        }
    }
}
