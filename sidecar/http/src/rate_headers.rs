//! The headers that show a client the state of its API key's rate limit, those of
//! draft-ietf-httpapi-ratelimit-headers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use shortlink_service::access::RateState;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

/// The state that the answer to a request shows, once the request is charged.
#[derive(Clone, Default)]
pub(super) struct ShownRate(Arc<OnceLock<RateState>>);

impl ShownRate {
    /// Has the answer show a state; the first one counts.
    pub(super) fn set(&self, state: RateState) {
        // A request is charged once.
        let _ = self.0.set(state);
    }

    /// Adds the headers to an answer, if its request was charged and the key has a limit.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        let Some(state) = self.0.get() else { return };
        let burst = state.limit.burst().get();
        // The window in which an empty bucket fills.
        let window = burst.div_ceil(state.limit.per_second().get());
        let (remaining, reset) = (state.remaining, seconds(state.full_after));
        for (name, value) in [
            (POLICY, format!("\"key\";q={burst};w={window}")),
            (STATE, format!("\"key\";r={remaining};t={reset}")),
        ] {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
