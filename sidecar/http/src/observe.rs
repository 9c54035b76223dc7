//! Traces, counts and logs requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use shortlink_core::trace::{self, Sampling, Trace};
use tracing::Instrument;
use tracing::field::Empty;

use super::app::SharedApp;
use super::rate_headers::ShownRate;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: &str = "traceparent";

/// Headers of all answers of the API, unless they have their own: they show links, recipients and visitors to their
/// caller only.
const PRIVATE: [(HeaderName, HeaderValue); 3] = [
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// The maximum length of a client's request id.
const MAX_REQUEST_ID_LENGTH: usize = 128;

/// Answers a request of the API. Log lines of the request carry its trace, and the answer carries the
/// request id: that of nginx, else that of the trace.
pub(super) async fn of_api(
    State(app): State<SharedApp>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_of_api = request.uri().path().starts_with("/v1/");
    let rate = ShownRate::default();
    request.extensions_mut().insert(rate.clone());
    let (mut response, trace, id) = observed(&app, request, next).await;
    app.answers.api.count(response.status());
    if is_of_api {
        rate.add_to(response.headers_mut());
        for (name, value) in PRIVATE {
            response.headers_mut().entry(name).or_insert(value);
        }
    }
    let id = id.or_else(|| HeaderValue::try_from(trace.id().to_string()).ok());
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Answers a visitor that nginx has passed on.
pub(super) async fn of_visitor(
    State(app): State<SharedApp>,
    request: Request,
    next: Next,
) -> Response {
    let (response, ..) = observed(&app, request, next).await;
    app.answers.visitors.count(response.status());
    response
}

/// Answers a request, and returns its trace and its request id, if it has one, as well.
async fn observed(
    app: &SharedApp,
    request: Request,
    next: Next,
) -> (Response, Trace, Option<HeaderValue>) {
    let (trace, id) = origin(request.headers(), app.sampling);
    let method = known(request.method());
    // The route, not the path: clients choose paths freely.
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", trace_id = %trace.id(), request_id = Empty);
    // The id of the trace is not repeated.
    if let Some(id) = id.as_ref().and_then(|id| id.to_str().ok())
        && id != trace.id().to_string()
    {
        span.record("request_id", id);
    }
    let answered = async {
        let begun = Instant::now();
        let active = Active::new(&app.requests.active);
        let response = next.run(request).await;
        drop(active);
        let duration = begun.elapsed();
        let status = response.status().as_u16();
        tracing::debug!(
            http.request.method = method,
            http.route = route,
            http.response.status_code = status,
            http.server.request.duration = duration.as_secs_f64(),
            "answered"
        );
        let name = (route, method, status);
        app.requests.durations.add(name, duration);
        response
    };
    let response = trace::within(trace, answered.instrument(span)).await;
    (response, trace, id)
}

/// Counts a request as in progress until it is answered or its client disconnects.
struct Active<'a>(&'a AtomicU64);

impl<'a> Active<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the trace of a request, and the request id if it has one.
fn origin(headers: &HeaderMap, sampling: Sampling) -> (Trace, Option<HeaderValue>) {
    let id = headers.get(REQUEST_ID).filter(|id| is_id(id)).cloned();
    let text = |value: Option<&HeaderValue>| Some(value?.to_str().ok()?.to_owned());
    let trace = text(headers.get(TRACEPARENT))
        .and_then(|text| Trace::of_traceparent(&text))
        .or_else(|| Trace::of_request_id(&text(id.as_ref())?, sampling))
        .unwrap_or_else(|| Trace::random(sampling));
    (trace, id)
}

/// The method as a metric's label. All unknown methods share one, which bounds their number.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    }
}

/// Returns whether a request id may be logged unchanged.
fn is_id(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=MAX_REQUEST_ID_LENGTH).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
}
