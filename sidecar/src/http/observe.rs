//! Gives each request of the API an id, and counts and logs how it went.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::SharedApp;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The most characters that somebody else's request id may have.
const MAX_REQUEST_ID_LENGTH: usize = 128;

/// Takes the request id that nginx has given, puts it into everything that is logged meanwhile
/// and into the answer, counts the answer and logs it.
pub(super) async fn observe(
    State(app): State<SharedApp>,
    request: Request,
    next: Next,
) -> Response {
    let id = request.headers().get(REQUEST_ID).filter(|id| is_id(id));
    let id = id.cloned();
    let method = request.method().clone();
    // The route, not the path: paths are whatever somebody has typed.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str)
        .to_owned();
    let span = tracing::info_span!(
        "request",
        id = id
            .as_ref()
            .and_then(|id| id.to_str().ok())
            .unwrap_or_default()
    );
    async move {
        let begun = Instant::now();
        let mut response = next.run(request).await;
        app.answers.api.count(response.status());
        tracing::debug!(
            %method,
            route,
            status = response.status().as_u16(),
            duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            "answered"
        );
        if let Some(id) = id {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        response
    }
    .instrument(span)
    .await
}

/// Whether an id may go into the log as it is.
fn is_id(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=MAX_REQUEST_ID_LENGTH).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
}
