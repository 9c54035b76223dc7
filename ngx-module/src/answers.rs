//! Counts what visitors got whose requests were handed to the fallback.
//!
//! How a request was handed on is known when that happens, but not how it ends: the fallback may
//! know the link, or be away as well. Only the log phase has the status that the visitor got.

use ngx::ffi::{NGX_OK, ngx_http_request_t, ngx_int_t};
use resolver::Source;
use resolver::counters::Counter;

use crate::state::RequestState;
use crate::{fallback, worker};

/// The log phase.
pub(crate) unsafe extern "C" fn on_log(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid request that was answered.
    unsafe {
        // nginx can be configured to log subrequests too: they answer no visitor.
        if request == (*request).main
            && let Some(mut state) = RequestState::find(request)
            && state.as_ref().source == Source::Fallback
        {
            fallback::leave(state.as_mut());
            let is_unavailable = state.as_ref().is_unavailable;
            worker::count(match (*request).headers_out.status {
                // A doubtful 410 is not the fallback's.
                _ if is_unavailable => Counter::FallbackError,
                301..=303 | 307 | 308 => Counter::FallbackRedirect,
                410 => Counter::FallbackGone,
                404 => Counter::FallbackUnknown,
                500..=599 => Counter::FallbackError,
                // The visitor has gone, mostly.
                _ => Counter::FallbackOther,
            });
        }
    }
    NGX_OK as ngx_int_t
}
