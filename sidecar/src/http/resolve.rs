//! `/resolve/{code}`: where nginx sends visitors on when Redis could not say where to.
//!
//! Answers are for phones: hardly any body, and nothing of what is inside.

use std::any::Any;
use std::error::Error;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ALLOW, CACHE_CONTROL, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use axum::response::IntoResponse;

use super::app::SharedApp;
use super::problem::log_panic;
use crate::core::query::with_forwarded;
use crate::service::resolve::{Redirect, Resolution};

/// Where nginx puts the visitor's query, as it came. Not behind the path: a visitor may send bytes
/// there that no reader of URLs takes, and must be redirected all the same.
const QUERY: &str = "x-shortlink-query";

const NO_STORE: (HeaderName, &str) = (CACHE_CONTROL, "no-store");

/// `GET /resolve/{code}`, with whatever follows the code.
pub(super) async fn resolve(
    State(app): State<SharedApp>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        let headers = [NO_STORE, (ALLOW, "GET, HEAD")];
        return (StatusCode::METHOD_NOT_ALLOWED, headers).into_response();
    }
    // The path as it came: an encoded character is none that a code could have.
    let path = uri.path().strip_prefix("/resolve/").unwrap_or_default();
    let code = path.split('/').next().unwrap_or_default();
    match app.resolver.resolve(code.as_bytes()).await {
        Ok(Resolution::Redirect(to)) => {
            let query = headers.get(QUERY).map(HeaderValue::as_bytes);
            redirect(&to, query.unwrap_or_default(), code)
        }
        Ok(Resolution::Gone) => (
            StatusCode::GONE,
            [NO_STORE],
            "This link is no longer valid.\n",
        )
            .into_response(),
        Ok(Resolution::Unknown) => (
            StatusCode::NOT_FOUND,
            [NO_STORE],
            "There is no such link.\n",
        )
            .into_response(),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn Error,
                code,
                "a link was not resolved"
            );
            unavailable()
        }
    }
}

/// What is answered when the handler has panicked: never that there is no link.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer that calls this hands the payload over"
)]
pub(super) fn panicked(payload: Box<dyn Any + Send>) -> Response<Body> {
    log_panic(&*payload);
    unavailable()
}

fn redirect(to: &Redirect, query: &[u8], code: &str) -> Response<Body> {
    let status = StatusCode::from_u16(to.status.code());
    let forwarded = to.forward_query.then(|| with_forwarded(&to.target, query));
    let forwarded = forwarded.flatten();
    let target = forwarded.as_deref().unwrap_or(&to.target);
    let location = HeaderValue::from_str(target);
    let (Ok(status), Ok(location)) = (status, location) else {
        tracing::error!(code, "the response header is invalid");
        return unavailable();
    };
    let mut response = status.into_response();
    response.headers_mut().insert(LOCATION, location);
    if !to.status.is_permanent() {
        let (name, value) = NO_STORE;
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

fn unavailable() -> Response<Body> {
    let headers = [NO_STORE, (RETRY_AFTER, "2")];
    let body = "Please try again in a moment.\n";
    (StatusCode::SERVICE_UNAVAILABLE, headers, body).into_response()
}
