//! `/resolve/{code}`: answers visitors that nginx could not answer from Redis.
//!
//! Answers are for visitors: hardly any body, and no internal details.

use std::any::Any;
use std::error::Error;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_LANGUAGE, ALLOW, AsHeaderName, CONTENT_TYPE, LOCATION, RETRY_AFTER, USER_AGENT,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing;
use shortlink_core::query::with_forwarded;
use shortlink_service::resolve::ResolveError;
use vocabulary::judge::Answer;
use vocabulary::plan::Visitor;
use vocabulary::target::with_click_id;
use vocabulary::{Preview, RedirectStatus};

use super::app::SharedApp;
use super::operation::parameter::{parameters, string};
use super::operation::{NO_STORE, Operation, text_of};
use super::problem::log_panic;
use super::words::redirect_statuses;

parameters! {
    PATH: path "path", "Path", "A code, optionally with a slash and more text, which is ignored.", string;
}

/// The visitor's query, unchanged, from nginx. It is in a header instead of the URL: it may have bytes that URL parsers
/// reject, and the visitor must be redirected nevertheless.
const QUERY: &str = "x-shortlink-query";

/// The click id in the target of an answer, for the visit that nginx records.
const CLICK: &str = "x-shortlink-click";

/// The code of the link, for the visit that nginx records, unless it is that of the request.
const FOLLOWED: &str = "x-shortlink-code";

/// The visitor's country, or region with its country, from nginx.
const PLACE: &str = "x-shortlink-place";

/// The visitor's address, from nginx.
const ADDRESS: &str = "x-shortlink-address";

/// The name of the rule that chose the target, for the visit that nginx records.
const VARIANT: &str = "x-shortlink-variant";

/// The short URL that was asked for, from nginx.
const URL: &str = "x-shortlink-url";

/// Says that the answer is the page of a preview, for the visit that nginx records.
const PREVIEW: &str = "x-shortlink-preview";

/// Says that there is no link, now or later: nginx can redirect such visitors.
const UNKNOWN: &str = "x-shortlink-unknown";

/// The paths of this operation.
pub(super) const PATHS: &str = "/resolve/{*path}";

/// The operation of this file.
pub(super) fn operation() -> Operation {
    let text = "nginx's public server sends this request when Redis has no answer. The internal server rejects it.";
    let get = ("get", routing::get as fn(_) -> _);
    let mut operation = Operation::new(
        get,
        PATHS,
        "followLink",
        "Resolves a link for nginx",
        resolve,
    )
    .text(text)
    .takes(&[PATH])
    .terse();
    for status in redirect_statuses() {
        operation = operation
            .answer(status, "The redirect to the link's target.", [])
            .with(["Location"]);
        // Browsers may cache the others.
        if RedirectStatus::from_code(status).is_some_and(|it| !it.is_permanent()) {
            operation = operation.with(["Cache-Control"]);
        }
    }
    let page = "The page with the link's preview, for the programs of messengers.";
    operation = operation
        .answer(200, page, [text_of("text/html")])
        .with(["Cache-Control"]);
    for (status, text) in [
        (404, "The link does not exist or is not valid yet."),
        (
            410,
            "The link or its campaign is paused, expired or revoked.",
        ),
        (503, "The target of the link is unknown at the moment."),
    ] {
        let answered = operation.answer(status, text, [text_of("text/plain")]);
        operation = answered.with(["Cache-Control"]);
    }
    operation.with(["Retry-After"])
}

/// `GET /resolve/{code}`, with whatever follows the code.
async fn resolve(State(app): State<SharedApp>, uri: Uri, headers: HeaderMap) -> Response<Body> {
    // The path is not decoded: codes have no characters that need encoding.
    let path = uri.path().strip_prefix("/resolve/").unwrap_or_default();
    let code = path.split('/').next().unwrap_or_default();
    let visitor = Behind(&headers);
    let resolved = app.resolver.resolve(code.as_bytes(), &visitor).await;
    let (answer, followed, variant, preview) = match resolved {
        Ok(it) => (Ok(it.answer), it.followed, it.variant, it.preview),
        Err(error) => (Err(error), None, None, None),
    };
    let mut response = respond(&app, &headers, code, answer);
    if let Some(preview) = preview.as_deref().and_then(Preview::parse) {
        let mut url = visitor.header(URL).to_vec();
        // nginx did not know which text is glued behind the code.
        if let (Some(code), Some(slash)) = (&followed, url.iter().rposition(|&it| it == b'/')) {
            url.truncate(slash + 1);
            url.extend_from_slice(code.as_str().as_bytes());
        }
        response = with_page(response, preview, &url);
    }
    let followed = followed.and_then(|it| HeaderValue::from_str(it.as_str()).ok());
    if let Some(followed) = followed {
        response.headers_mut().insert(FOLLOWED, followed);
    }
    let variant = variant.and_then(|it| HeaderValue::from_str(&it).ok());
    if let Some(variant) = variant {
        response.headers_mut().insert(VARIANT, variant);
    }
    response
}

/// The visitor behind nginx, by the headers of the request.
struct Behind<'a>(&'a HeaderMap);

impl Behind<'_> {
    fn header(&self, name: impl AsHeaderName) -> &[u8] {
        self.0.get(name).map_or(b"", HeaderValue::as_bytes)
    }
}

impl Visitor for Behind<'_> {
    fn user_agent(&self) -> &[u8] {
        self.header(USER_AGENT)
    }

    fn accept_language(&self) -> &[u8] {
        self.header(ACCEPT_LANGUAGE)
    }

    fn country(&self) -> &[u8] {
        let place = self.header(PLACE);
        place.split(|&byte| byte == b'-').next().unwrap_or_default()
    }

    fn region(&self) -> &[u8] {
        let place = self.header(PLACE);
        let dash = place.iter().position(|&byte| byte == b'-');
        dash.map_or(b"", |dash| &place[dash + 1..])
    }

    fn query(&self) -> &[u8] {
        self.header(QUERY)
    }

    fn address(&self) -> &[u8] {
        self.header(ADDRESS)
    }
}

fn respond(
    app: &SharedApp,
    headers: &HeaderMap,
    code: &str,
    answer: Result<Answer<String>, ResolveError>,
) -> Response<Body> {
    match answer {
        Ok(Answer::Redirect {
            status,
            forwards_query,
            has_click_id,
            target,
            ..
        }) => {
            let query = headers.get(QUERY).map(HeaderValue::as_bytes);
            let query = query.filter(|_| forwards_query).unwrap_or_default();
            if !has_click_id {
                return redirect(status, &target, query, code);
            }
            let id = app.click_ids.make();
            let made = with_click_id(target.as_bytes(), id);
            let Some((target, _)) = made else {
                return unavailable();
            };
            let target = String::from_utf8_lossy(&target);
            let Ok(id) = HeaderValue::from_bytes(&id.to_text()) else {
                return unavailable();
            };
            let answer = redirect(status, &target, query, code);
            ([(CLICK, id)], answer).into_response()
        }
        Ok(Answer::Gone) => plain(StatusCode::GONE, "This link is no longer valid.\n"),
        Ok(Answer::NotYet) => not_found(),
        Ok(Answer::Unknown) => {
            ([(HeaderName::from_static(UNKNOWN), "1")], not_found()).into_response()
        }
        Ok(Answer::Miss(_)) => unavailable(),
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

/// Rejects methods other than GET and HEAD, without a body.
pub(super) async fn not_allowed() -> Response<Body> {
    let headers = [NO_STORE, (ALLOW, "GET, HEAD")];
    (StatusCode::METHOD_NOT_ALLOWED, headers).into_response()
}

/// Answers a request whose handler has panicked: never as if the link were unknown.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer that calls this hands the payload over"
)]
pub(super) fn panicked(payload: Box<dyn Any + Send>) -> Response<Body> {
    log_panic(&*payload);
    unavailable()
}

fn redirect(status: RedirectStatus, target: &str, query: &[u8], code: &str) -> Response<Body> {
    let answered = StatusCode::from_u16(status.code());
    let forwarded = with_forwarded(target, query);
    let location = HeaderValue::from_str(forwarded.as_deref().unwrap_or(target));
    let (Ok(answered), Ok(location)) = (answered, location) else {
        tracing::error!(code, "the response header is invalid");
        return unavailable();
    };
    let mut response = answered.into_response();
    response.headers_mut().insert(LOCATION, location);
    if status.is_permanent() {
        return response;
    }
    ([NO_STORE], response).into_response()
}

/// Replaces a redirect by the page of a preview, as nginx does. Other answers stay.
fn with_page(mut redirect: Response<Body>, preview: Preview<'_>, url: &[u8]) -> Response<Body> {
    let Some(target) = redirect.headers_mut().remove(LOCATION) else {
        return redirect;
    };
    let target = String::from_utf8_lossy(target.as_bytes());
    let page = preview.page(&String::from_utf8_lossy(url), &target);
    let marks = [
        NO_STORE,
        (CONTENT_TYPE, Preview::PAGE_TYPE),
        (HeaderName::from_static(PREVIEW), "1"),
    ];
    let mut response = (marks, page).into_response();
    // The click id.
    for (name, value) in redirect.headers() {
        if !response.headers().contains_key(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "There is no such link.\n")
}

fn unavailable() -> Response<Body> {
    let body = "Please try again in a moment.\n";
    let answer = plain(StatusCode::SERVICE_UNAVAILABLE, body);
    ([(RETRY_AFTER, "2")], answer).into_response()
}

fn plain(status: StatusCode, body: &'static str) -> Response<Body> {
    (status, [NO_STORE], body).into_response()
}
