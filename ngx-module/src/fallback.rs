//! Requests that are handed to the fallback: their bounds, and the answer when it gives none.

use std::ptr::NonNull;

use ngx::ffi::{ngx_http_request_t, ngx_int_t, ngx_uint_t};
use resolver::counters::{Counter, Gauge};
use resolver::fallback::{Ending, Fallback, Refused};
use resolver::vocabulary::BadNews;

use crate::conf::BoundedFallback;
use crate::respond;
use crate::state::RequestState;
use crate::worker::{self, Worker, now};

/// The status that nginx logs when a client has left.
const CLIENT_LEFT: ngx_uint_t = 499;

/// A request's wait for a fallback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The fallback's place among those of the configuration.
    index: usize,
    /// Since when, in milliseconds.
    since: u64,
}

/// Makes the fallbacks of a worker with so many connections.
pub(crate) fn all(fallbacks: &[BoundedFallback], connections: usize) -> Vec<Fallback> {
    let make = |bounded: &BoundedFallback| Fallback::new(bounded.limits, connections);
    fallbacks.iter().map(make).collect()
}

/// Lets a request wait for a fallback; `None` if that gets none now.
pub(crate) fn enter(index: usize) -> Option<Wait> {
    let now = now().ms;
    // SAFETY: nothing of nginx is called.
    unsafe {
        worker::with(|worker| {
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
            worker::count_in(worker, counter, 1);
            None
        })
        .flatten()
    }
}

/// Notes that a request does not wait for the fallback any more, if it did.
///
/// # Safety
/// The state's request must be alive, at least its structure.
pub(crate) unsafe fn leave(state: &mut RequestState) {
    let Some(Wait { index, since }) = state.fallback.take() else {
        return;
    };
    // SAFETY: as this function's own.
    let status = unsafe { (*state.request).headers_out.status };
    let ending = match status {
        _ if state.is_unavailable => Ending::Failed,
        500..=599 => Ending::Failed,
        // Nothing was sent.
        0 | CLIENT_LEFT => Ending::Left,
        _ => Ending::Answered,
    };
    let now = now().ms;
    // SAFETY: nothing of nginx is called but its log.
    unsafe {
        worker::with(|worker| {
            let fallback = worker.fallbacks.get_mut(index);
            if fallback.is_some_and(|it| it.leave(ending, since, now)) {
                worker.journal.fallback_failing(now);
                worker::count_in(worker, Counter::FallbackBreakerOpened, 1);
            }
        });
    }
}

/// Passes on how many requests wait.
pub(crate) fn measure(worker: &Worker) {
    let waiting = worker
        .fallbacks
        .iter()
        .map(Fallback::waiting)
        .sum::<usize>();
    let failing = worker.fallbacks.iter().filter(|it| it.is_failing()).count();
    worker::set_in(worker, Gauge::FallbackWaiting, waiting as u64);
    worker::set_in(worker, Gauge::FallbackBreakerOpen, failing as u64);
}

/// The content handler of a location with `shortlink_unavailable`.
pub(crate) unsafe extern "C" fn handle(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls a content handler with a valid request; what is returned is what it
    // finalizes the request with.
    unsafe {
        let doubtful = match RequestState::find(request) {
            Some(mut state) => {
                state.as_mut().is_unavailable = true;
                state.as_ref().doubtful
            }
            None => None,
        };
        unavailable(request, doubtful)
    }
}

/// Answers a request that nothing can answer for certain. A link that was gone is answered 410: it
/// can only have been resumed since. Anything else may be live.
///
/// # Safety
/// `request` must be valid and unanswered.
pub(crate) unsafe fn unavailable(
    request: *mut ngx_http_request_t,
    doubtful: Option<BadNews>,
) -> ngx_int_t {
    // SAFETY: as this function's own.
    unsafe {
        match doubtful {
            Some(BadNews::Gone) => respond::gone(request),
            Some(BadNews::NotYet | BadNews::Unknown) | None => respond::unavailable(request),
        }
    }
}

/// Has a request wait for the fallback.
///
/// # Safety
/// The state must be alive, and there may be no other reference to it.
pub(crate) unsafe fn wait(mut state: NonNull<RequestState>, wait: Wait, doubtful: Option<BadNews>) {
    // SAFETY: as this function's own.
    let state = unsafe { state.as_mut() };
    state.fallback = Some(wait);
    state.doubtful = doubtful;
}
