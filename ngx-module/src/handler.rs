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
use resolver::counters::Counter;
use resolver::path::{code_of_path, code_of_text};
use resolver::vocabulary::target::{encoded_query, with_query};
use resolver::vocabulary::{BadNews, RedirectStatus};
use resolver::{Answer, MissReason, Outcome, PathCode, Refusal, Source};

use crate::misses::Standing;
use crate::state::{RequestState, stop_at_termination};
use crate::worker::LookedUp;
use crate::{Shortlink, fallback, misses, respond, variables, worker};

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
    /// The link is live later.
    NotYet,
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
            Answer::NotYet => Self::NotYet,
            Answer::Unknown => Self::Unknown,
            Answer::Miss(reason) => Self::Miss(reason),
            Answer::Redirect {
                status,
                forwards_query,
                target,
            } => {
                // SAFETY: as this function's own; what stands in the request is only read.
                unsafe {
                    let request = state.as_ref().request;
                    let copied = if forwards_query && (*request).args.len > 0 {
                        let mut room = Vec::new();
                        let query = encoded_query((*request).args.as_bytes(), &mut room);
                        // A target that can't be served with the query is served without it.
                        let pieces = with_query(target, query).unwrap_or([target, b"", b"", b""]);
                        copy_pieces(request, &pieces)
                    } else {
                        copy_pieces(request, &[target])
                    };
                    match copied {
                        Some(target) => Self::Redirect { status, target },
                        None => Self::NoMemory,
                    }
                }
            }
        }
    }
}

/// Copies a text that comes in pieces into a request's pool; `None` when there is no memory.
///
/// # Safety
/// The request must be alive.
#[inline]
unsafe fn copy_pieces(request: *mut ngx_http_request_t, pieces: &[&[u8]]) -> Option<ngx_str_t> {
    let length = pieces.iter().map(|piece| piece.len()).sum();
    // SAFETY: the request is alive, so its pool is; the allocation has the length of all pieces
    // together. Allocating does not call back into this module.
    unsafe {
        let data = ngx_pnalloc((*request).pool, length).cast::<u8>();
        if data.is_null() {
            return None;
        }
        let mut end = data;
        for piece in pieces {
            end.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            end = end.add(piece.len());
        }
        Some(ngx_str_t { len: length, data })
    }
}

/// An answer and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    answer: OwnedAnswer,
    source: Source,
}

impl Settled {
    /// Copies an answer for a request.
    ///
    /// # Safety
    /// The state's request must be alive.
    pub(crate) unsafe fn copy(
        answer: Answer<'_>,
        source: Source,
        state: NonNull<RequestState>,
    ) -> Self {
        // SAFETY: as this function's own.
        let answer = unsafe { OwnedAnswer::copy(answer, state) };
        Self { answer, source }
    }

    /// Neither the cache nor Redis can answer.
    pub(crate) fn unavailable() -> Self {
        Self {
            answer: OwnedAnswer::Miss(MissReason::Unavailable),
            source: Source::None,
        }
    }
}

/// The content handler of a location with `shortlink`.
pub(crate) unsafe extern "C" fn handle(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls a content handler with a valid request whose phases have run; what is
    // returned is what it finalizes the request with.
    unsafe {
        if (*request).method & (NGX_HTTP_GET | NGX_HTTP_HEAD) as ngx_uint_t == 0 {
            return refuse(request, None, Outcome::Method);
        }
        let discarded = ngx_http_discard_request_body(request);
        if discarded != NGX_OK as ngx_int_t {
            return discarded;
        }
        let Some(conf) = Shortlink::main_conf(Request::from_ngx_http_request(request)) else {
            return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
        };
        let read = match variables::code_set(request, conf.code_variable) {
            Some(text) => code_of_text(text, &conf.rules),
            None => code_of_path((*request).uri.as_bytes(), &conf.rules),
        };
        let path_code = match read {
            Ok(path_code) => path_code,
            Err(Refusal::Malformed) => return refuse(request, None, Outcome::Malformed),
            Err(Refusal::WrongCheck) => {
                let outcome = match misses::standing(request) {
                    Standing::Free => {
                        misses::charge(request);
                        Outcome::WrongCheck
                    }
                    _ => Outcome::Limited,
                };
                return refuse(request, None, outcome);
            }
        };
        let Some(mut state) = RequestState::create(request, Some(path_code), None) else {
            return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
        };
        if path_code.trimmed {
            worker::count(Counter::Trimmed);
        }
        let may_ask = match misses::standing(request) {
            Standing::Free => true,
            Standing::Limited => {
                state.as_mut().is_limited = true;
                false
            }
            Standing::Shut => return limit(state),
        };
        match worker::look_up(&path_code.code, state, may_ask) {
            LookedUp::Waiting(ticket) => {
                state.as_mut().ticket = Some(ticket);
                // A request whose main request was terminated meanwhile is not waited for either.
                if (*(*request).connection).error() != 0 || !stop_at_termination(state) {
                    return NGX_ERROR as ngx_int_t;
                }
                // Notices a client that goes away; nginx then ends the request, and the state's
                // cleanup stops the waiting.
                (*request).read_event_handler = Some(ngx_http_test_reading);
                let main = (*request).main;
                (*main).set_count((*main).count() + 1);
                NGX_DONE as ngx_int_t
            }
            LookedUp::Settled(settled) => answer(state, settled),
            LookedUp::NotKept => limit(state),
        }
    }
}

/// Answers a request that names no code that could be looked up.
unsafe fn refuse(
    request: *mut ngx_http_request_t,
    path_code: Option<PathCode>,
    outcome: Outcome,
) -> ngx_int_t {
    // SAFETY: the caller's request is valid and unanswered.
    unsafe {
        let Some(state) = RequestState::create(request, path_code, None) else {
            return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
        };
        settle(state, outcome, Source::None);
        match outcome {
            Outcome::Method => respond::method_not_allowed(request),
            Outcome::Limited => respond::too_many(request),
            _ => respond::not_found(request),
        }
    }
}

/// Refuses a request whose address is over its limit of misses: the answer is the same whether the
/// link exists or not.
unsafe fn limit(state: NonNull<RequestState>) -> ngx_int_t {
    // SAFETY: the callers' state is alive, and its request unanswered.
    unsafe {
        settle(state, Outcome::Limited, Source::None);
        respond::too_many(state.as_ref().request)
    }
}

/// Notes what became of a request, and counts it.
unsafe fn settle(mut state: NonNull<RequestState>, outcome: Outcome, source: Source) {
    // SAFETY: the caller's state is alive, and there is no other reference to it.
    let state = unsafe { state.as_mut() };
    state.outcome = Some(outcome);
    state.source = source;
    worker::count_request(outcome, source);
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
        // Requests that came together, to learn of many codes before the first of them is charged,
        // gain nothing: each is charged when its reply comes, and those behind the limit are refused. One that
        // was limited before asked for no link that the worker did not hold.
        let result = if !state.as_ref().is_limited && misses::is_limited(request) {
            limit(state)
        } else {
            answer(state, settled)
        };
        ngx_http_finalize_request(request, result);
        ngx_http_run_posted_requests(connection);
    }
}

/// Without a fallback nothing else can be asked: doubtful bad news stands if Redis would have
/// reported a change, and if a link was gone. A stale "unknown" says nothing.
unsafe fn confirmed(request: *mut ngx_http_request_t, settled: Settled) -> OwnedAnswer {
    let OwnedAnswer::Miss(MissReason::Doubtful(news)) = settled.answer else {
        return settled.answer;
    };
    // SAFETY: the caller's request is valid.
    let conf = unsafe { Shortlink::location_conf(Request::from_ngx_http_request(request)) };
    if conf.is_some_and(|conf| conf.fallback.is_some()) {
        return settled.answer;
    }
    match news {
        BadNews::Gone => OwnedAnswer::Gone,
        BadNews::NotYet if settled.source != Source::Stale => OwnedAnswer::NotYet,
        BadNews::Unknown if settled.source != Source::Stale => OwnedAnswer::Unknown,
        BadNews::NotYet | BadNews::Unknown => settled.answer,
    }
}

/// Answers a request, or hands it to the fallback; what is returned finalizes it.
unsafe fn answer(mut state: NonNull<RequestState>, settled: Settled) -> ngx_int_t {
    // SAFETY: the callers' request is alive; no reference to the state is held when nginx is
    // called with the request.
    unsafe {
        let request = state.as_ref().request;
        let source = settled.source;
        let answer = confirmed(request, settled);
        match answer {
            OwnedAnswer::Redirect { status, target } => {
                if state.as_ref().is_limited {
                    worker::count(Counter::LimitedRedirect);
                }
                state.as_mut().target = target;
                settle(state, Outcome::Redirect, source);
                respond::redirect(request, status, target)
            }
            OwnedAnswer::Gone => {
                settle(state, Outcome::Gone, source);
                respond::gone(request)
            }
            // An address over its limit learns what is cached, and its request does not reach SQL.
            OwnedAnswer::Unknown
            | OwnedAnswer::NotYet
            | OwnedAnswer::Miss(
                MissReason::Absent | MissReason::Doubtful(BadNews::Unknown | BadNews::NotYet),
            ) if state.as_ref().is_limited => limit(state),
            OwnedAnswer::Unknown | OwnedAnswer::NotYet => {
                // A guesser asks for no code a second time: one that the cache knows as unknown
                // stands in a message.
                if let (OwnedAnswer::Unknown, Source::Redis) = (answer, source) {
                    misses::charge(request);
                }
                settle(state, Outcome::Unknown, source);
                respond::not_found(request)
            }
            OwnedAnswer::NoMemory => NGX_ERROR as ngx_int_t,
            OwnedAnswer::Miss(reason) => {
                let Some(conf) = Shortlink::location_conf(Request::from_ngx_http_request(request))
                else {
                    return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
                };
                let doubtful = match reason {
                    MissReason::Doubtful(news) => Some(news),
                    _ => None,
                };
                let outcome = match reason {
                    MissReason::Absent
                    | MissReason::Unreadable
                    | MissReason::Unexpandable(_)
                    | MissReason::Doubtful(_) => Outcome::Miss,
                    MissReason::Error | MissReason::Unavailable | MissReason::TimedOut => {
                        Outcome::Unavailable
                    }
                };
                if let MissReason::Absent = reason {
                    misses::charge(request);
                    state.as_mut().is_charged = true;
                }
                let Some(fallback) = &conf.fallback else {
                    // Only Redis decides: a link that it does not have does not exist. If it does
                    // not answer, the link is uncertain.
                    let source = match outcome {
                        Outcome::Miss => source,
                        _ => Source::None,
                    };
                    settle(state, outcome, source);
                    return match reason {
                        MissReason::Absent => respond::not_found(request),
                        _ => respond::unavailable(request),
                    };
                };
                if let Some(news) = doubtful {
                    // A code that the cache knows is no guess, as above.
                    state.as_mut().is_free = source == Source::Cache;
                    worker::doubt(news, source != Source::Stale);
                }
                if let Some(wait) = fallback::enter(fallback.index) {
                    fallback::wait(state, wait, doubtful);
                    settle(state, outcome, Source::Fallback);
                    let mut name = fallback.name;
                    return ngx_http_named_location(request, &mut name);
                }
                match doubtful {
                    Some(BadNews::Gone) => settle(state, Outcome::Gone, source),
                    _ => settle(state, Outcome::Unavailable, Source::None),
                }
                fallback::unavailable(request, doubtful)
            }
        }
    }
}
