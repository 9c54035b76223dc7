//! Extractors for handlers, with a problem for each kind of invalid request.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Request};
use axum::http::header::{AsHeaderName, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use shortlink_api::json::{NoObject, read_object};
use shortlink_core::short_url::Bases;
use shortlink_core::target::OwnHosts;
use url::Url;
use vocabulary::Code;
use vocabulary::domains::Base;

use super::app::SharedApp;
use super::operation::Taken;
use super::operation::parameter::{of, parameters};
use super::problem::Problem;
use super::words;

/// Time limit of a body. nginx sends it once it has all of it.
pub(super) const BODY_PATIENCE: Duration = Duration::from_secs(30);

parameters! {
    pub(super) CODE: path "code", "Code", "Code of the link.", of::<words::Code>;
}

/// The body: a JSON object.
pub(super) struct JsonObject(pub(super) Map<String, Value>);

impl FromRequest<SharedApp> for JsonObject {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &SharedApp) -> Result<Self, Problem> {
        if !declares_json(request.headers()) {
            return Err(Problem::not_json());
        }
        let body = whole_body(request, app.body_limit_bytes, BODY_PATIENCE).await?;
        read_object(&body).map(Self).map_err(no_object("body"))
    }
}

/// The body: a JSON object that may have a long list.
pub(super) struct LongJsonObject(pub(super) Map<String, Value>);

/// The most bytes of a body with a long list.
const LONG_BODY_BYTES: usize = 2 << 20;

impl FromRequest<SharedApp> for LongJsonObject {
    type Rejection = Problem;

    async fn from_request(mut request: Request, app: &SharedApp) -> Result<Self, Problem> {
        if !declares_json(request.headers()) {
            return Err(Problem::not_json());
        }
        let limit = LONG_BODY_BYTES.max(app.body_limit_bytes);
        DefaultBodyLimit::max(limit).apply(&mut request);
        let body = whole_body(request, limit, BODY_PATIENCE).await?;
        read_object(&body).map(Self).map_err(no_object("body"))
    }
}

/// Described by its operation ([`Operation::takes_json`]).
impl Taken for LongJsonObject {}

/// Describes why a body or a row is no object.
pub(super) fn no_object(what: &str) -> impl FnOnce(NoObject) -> Problem {
    move |reason| match reason {
        NoObject::Other => Problem::invalid("", reason.to_string()),
        NoObject::Malformed(_) => Problem::malformed(format!("The {what} {reason}.")),
    }
}

/// Reads a body, whose limit in bytes the router has set, within a time.
async fn whole_body(
    request: Request,
    limit_bytes: usize,
    patience: Duration,
) -> Result<Bytes, Problem> {
    let body = tokio::time::timeout(patience, Bytes::from_request(request, &())).await;
    let body = body.map_err(|_elapsed| {
        let limit_s = patience.as_secs();
        Problem::malformed(format!("The body did not arrive within {limit_s} seconds."))
    })?;
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::too_large(limit_bytes),
        _ => Problem::malformed("The body broke off."),
    })
}

/// Described by its operation ([`Operation::takes_json`]).
impl Taken for JsonObject {}

/// Declares extractors of what a path names, with its parameter, the problem of an unknown one, and the function that
/// finds who has created it: to a caller that reaches only its own links, those of others are unknown.
macro_rules! in_path {
    ($(#[$about:meta])+ $visibility:vis $Named:ident($Id:ty): $PARAMETER:expr, $unknown:path $(, $creator:path)?) => {
        $(#[$about])+
        $visibility struct $Named($visibility $Id);

        impl axum::extract::FromRequestParts<SharedApp> for $Named {
            type Rejection = Problem;

            async fn from_request_parts(
                parts: &mut axum::http::request::Parts,
                app: &SharedApp,
            ) -> Result<Self, Problem> {
                // Text that cannot be an id names nothing, like an unknown id.
                let path = axum::extract::Path::<String>::from_request_parts(parts, app).await;
                let id = path.ok().and_then(|axum::extract::Path(id)| id.parse().ok());
                let id: $Id = id.ok_or_else($unknown)?;
                $(if let Some(caller) = $crate::auth::restricted(parts)? {
                    let creator = $creator(app, &id).await?;
                    $crate::auth::check_reach(caller, creator.as_deref(), $unknown)?;
                })?
                Ok(Self(id))
            }
        }

        impl $crate::operation::Taken for $Named {
            fn describe(operation: $crate::operation::Operation) -> $crate::operation::Operation {
                operation.takes(&[$PARAMETER]).problems([$unknown()])
            }
        }
    };
}
pub(super) use in_path;

in_path! {
    /// The code in the path.
    pub(super) CodeInPath(Code): CODE, no_such_link, creator
}

/// The API key that a link was created with, if there is such a link.
pub(super) async fn creator(app: &SharedApp, code: &Code) -> Result<Option<String>, Problem> {
    Ok(app.store.find_link(code).await?.map(|link| link.created_by))
}

/// 404: the link in the path is unknown.
pub(super) fn no_such_link() -> Problem {
    Problem::not_found("There is no link with this code.")
}

/// The short domains that nginx announces. The sidecar itself has no list of them.
pub(super) struct Domains {
    /// The bases of short URLs; none if nginx announces none that are valid.
    pub(super) bases: Bases,
    /// The hosts that targets may not have.
    pub(super) own: OwnHosts,
}

impl FromRequestParts<SharedApp> for Domains {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _app: &SharedApp) -> Result<Self, Problem> {
        let text = |name| header(&parts.headers, name).unwrap_or_default();
        let mut own = OwnHosts::default();
        let mut bases = Vec::new();
        for base in Base::parse_all(text("x-shortlink-base")) {
            let Some(url) = origin(&base.url) else {
                continue;
            };
            own.add(url.host_str().unwrap_or_default());
            bases.push(Base {
                url: url.origin().ascii_serialization(),
                ..base
            });
        }
        for domain in text("x-shortlink-domains").split(',') {
            own.add(domain.trim());
        }
        Ok(Self {
            bases: Bases::new(bases),
            own,
        })
    }
}

/// nginx sets these headers, so they are no parameters of operations.
impl Taken for Domains {}

/// Parses `http://host`, `https://host:port` and the like, with at most a slash after the host and
/// port.
fn origin(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_origin = matches!(url.scheme(), "http" | "https")
        && url.host().is_some()
        && url.username().is_empty()
        && url.password().is_none()
        && url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none();
    is_origin.then_some(url)
}

/// The text of a header.
pub(super) fn header(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The media type of a body, without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let essence = header(headers, CONTENT_TYPE)?.split(';').next()?;
    Some(essence.trim().to_ascii_lowercase())
}

/// The encoding that `Content-Type` declares, in lower case.
pub(super) fn charset(headers: &HeaderMap) -> Option<String> {
    let parameters = header(headers, CONTENT_TYPE)?.split(';').skip(1);
    parameters.map(str::trim).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim_matches('"').to_ascii_lowercase();
        name.eq_ignore_ascii_case("charset").then_some(value)
    })
}

/// Returns true if `Content-Type` declares JSON, which has no other encoding than UTF-8.
fn declares_json(headers: &HeaderMap) -> bool {
    let is_utf8 = |charset: String| matches!(charset.trim(), "utf-8" | "utf8" | "us-ascii");
    media_type(headers).is_some_and(|it| is_json(&it)) && charset(headers).is_none_or(is_utf8)
}

/// `application/json` or a type that ends with `+json`.
fn is_json(media_type: &str) -> bool {
    media_type == "application/json"
        || (media_type.starts_with("application/") && media_type.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn a_body_that_does_not_end_is_not_waited_for() {
        let begin = stream::iter([Ok::<_, std::io::Error>("{")]);
        let body = Body::from_stream(futures_util::StreamExt::chain(begin, stream::pending()));
        let read = whole_body(Request::new(body), 1024, Duration::from_millis(50)).await;
        let (_, problem) = read.expect_err("a problem").to_json();
        assert!(problem.contains("did not arrive within"), "{problem}");
    }
}
