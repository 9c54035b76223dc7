//! Extractors for handlers, with a problem for each kind of invalid request.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::{AsHeaderName, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use shortlink_core::short_url::Bases;
use shortlink_core::target::OwnHosts;
use url::Url;
use vocabulary::Code;
use vocabulary::domains::Base;

use super::app::SharedApp;
use super::operation::parameter::{of, parameters, string};
use super::operation::{Operation, Taken};
use super::problem::Problem;
use super::words;

parameters! {
    pub(super) CODE: path "code", "Code", "Code of the link.", of::<words::Code>;
    pub(super) BASE: header "X-Shortlink-Base", "Base",
        "Beginnings of short URLs, from `shortlink_domains`. nginx sets it.", string;
    pub(super) DOMAINS: header "X-Shortlink-Domains", "Domains",
        "The short domains, which targets must not be on. nginx sets it.", string;
}

/// The body: a JSON object.
pub(super) struct JsonObject(pub(super) Map<String, Value>);

impl FromRequest<SharedApp> for JsonObject {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &SharedApp) -> Result<Self, Problem> {
        if !media_type(request.headers()).is_some_and(|it| is_json(&it)) {
            return Err(Problem::not_json());
        }
        // The router has set the limit.
        let body = Bytes::from_request(request, app).await;
        let body = body.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Problem::too_large(app.body_limit_bytes),
            _ => Problem::malformed("The body broke off."),
        })?;
        match serde_json::from_slice(&body) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            Ok(_) => Err(Problem::invalid("", "must be a JSON object")),
            Err(error) => Err(Problem::malformed(format!(
                "The body is not valid JSON: line {}, column {}.",
                error.line(),
                error.column()
            ))),
        }
    }
}

/// Described by its operation ([`Operation::takes_json`]).
impl Taken for JsonObject {}

/// Declares extractors of what a path names, with its parameter and the problem of an unknown one.
macro_rules! in_path {
    ($(#[$about:meta])+ $visibility:vis $Named:ident($Id:ty): $PARAMETER:expr, $unknown:path) => {
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
                id.map(Self).ok_or_else($unknown)
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
    pub(super) CodeInPath(Code): CODE, no_such_link
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

impl Taken for Domains {
    fn describe(operation: Operation) -> Operation {
        operation.takes(&[BASE, DOMAINS])
    }
}

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

/// `application/json` or a type that ends with `+json`.
fn is_json(media_type: &str) -> bool {
    media_type == "application/json"
        || (media_type.starts_with("application/") && media_type.ends_with("+json"))
}
