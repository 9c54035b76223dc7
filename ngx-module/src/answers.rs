//! Counts the answers to requests that were handed to the fallback.
//!
//! How a request was handed on is known when that happens, but not how it ends: the fallback may
//! know the link, or be away as well. Only the log phase has the status that the visitor got.

use resolver::Source;
use resolver::counters::Counter;

use crate::nginx::request::Request;
use crate::nginx::status::Status;
use crate::state::RequestState;
use crate::worker;

/// The log phase.
pub(crate) fn on_log(request: &Request) -> Status {
    // nginx can be configured to log subrequests too: they answer no visitor.
    if request.is_main()
        && let Some(state) = RequestState::find(request)
        && state.source.get() == Source::Fallback
    {
        let status = state.status(request);
        state.leave_fallback(status);
        let counter = match status {
            // A doubtful 410 is not the fallback's.
            _ if state.is_unavailable.get() => Counter::FallbackError,
            301..=303 | 307 | 308 => Counter::FallbackRedirect,
            200 if state.is_preview(request) => Counter::FallbackRedirect,
            410 => Counter::FallbackGone,
            404 => Counter::FallbackUnknown,
            500..=599 => Counter::FallbackError,
            // The visitor has gone, mostly.
            _ => Counter::FallbackOther,
        };
        worker::count(state.redis, counter);
    }
    Status::OK
}
