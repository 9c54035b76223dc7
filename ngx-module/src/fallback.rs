//! The answer to a request that was handed to the fallback, when it gives none.

use resolver::vocabulary::BadNews;

use crate::nginx::request::Request;
use crate::nginx::status::Status;
use crate::respond;
use crate::state::RequestState;

/// The content handler of a location with `shortlink_unavailable`.
pub(crate) fn handle(request: &Request) -> Status {
    let state = RequestState::find(request);
    if let Some(state) = state {
        state.is_unavailable.set(true);
    }
    unavailable(request, state.and_then(|state| state.doubtful.get()))
}

/// Answers a request that nothing can answer for certain. A link that was gone is answered 410: it
/// can only have been resumed since. Anything else may be live.
pub(crate) fn unavailable(request: &Request, doubtful: Option<BadNews>) -> Status {
    match doubtful {
        Some(BadNews::Gone) => respond::gone(request),
        Some(BadNews::NotYet | BadNews::Unknown) | None => respond::unavailable(request),
    }
}
