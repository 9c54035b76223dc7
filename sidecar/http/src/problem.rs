//! Errors as clients see them: RFC 9457 problem details.
//!
//! A problem describes what a client can do. The internal cause is logged where the problem is
//! created, and not part of it.

mod access;

use std::any::Any;
use std::error::Error;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;

use super::words::{self, TYPE_PREFIX};
pub(super) use shortlink_api::fields::FieldError;
use shortlink_core::link::Refusal;
use shortlink_core::ports::StoreError;
use shortlink_service::campaigns::CampaignError;
use shortlink_service::codes::strategy::DrawError;
use shortlink_service::new_link::{LinkError, NoCode};

/// The seconds after which a client should retry when a dependency is unavailable.
const RETRY_AFTER_SECONDS: &str = "2";

/// An error as a client sees it. Boxed, since most requests have none.
#[derive(Clone, Debug)]
pub(super) struct Problem(Box<Content>);

#[derive(Clone, Debug)]
struct Content {
    status: StatusCode,
    /// The last part of the identifier; clients may depend on it.
    name: &'static str,
    title: &'static str,
    detail: String,
    errors: Vec<FieldError>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    fn new(
        status: StatusCode,
        name: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self(Box::new(Content {
            status,
            name,
            title,
            detail: detail.into(),
            errors: Vec::new(),
            header: None,
        }))
    }

    /// 400: the body is not JSON or is unreadable.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        let title = "The request can't be read";
        Self::new(StatusCode::BAD_REQUEST, "malformed", title, detail)
    }

    /// 400: a query parameter is invalid.
    pub(super) fn query(detail: impl Into<String>) -> Self {
        let title = "A query parameter is not valid";
        Self::new(StatusCode::BAD_REQUEST, "query", title, detail)
    }

    /// 400: the cursor is invalid.
    pub(super) fn cursor() -> Self {
        Self::query("cursor must be the nextCursor of an earlier answer.")
    }

    /// 401: the key is missing or invalid. Every cause has the same answer.
    pub(super) fn unauthorized() -> Self {
        let mut problem = Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "An API key is needed",
            "Send a valid API key as X-Api-Key or as a Bearer token.",
        );
        let challenge = HeaderValue::from_static("Bearer realm=\"shortlink\"");
        problem.0.header = Some((WWW_AUTHENTICATE, challenge));
        problem
    }

    /// 403: the key does not allow this.
    pub(super) fn forbidden(scope: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "The API key does not allow this",
            format!("The scope {scope} is needed."),
        )
    }

    /// 404.
    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    /// 405. The router adds which methods are allowed.
    pub(super) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method-not-allowed",
            "The method is not allowed here",
            "The header Allow names the methods that are.",
        )
    }

    /// 409: another link has the code.
    pub(super) fn taken() -> Self {
        let mut problem = Self::new(
            StatusCode::CONFLICT,
            "taken",
            "The code is taken",
            "Another link has this code, or had it: codes are never given out twice.",
        );
        problem.0.errors.push(FieldError {
            pointer: "/customSlug".to_owned(),
            detail: "is taken".to_owned(),
        });
        problem
    }

    /// 410: the link that an earlier attempt created has been deleted.
    pub(super) fn forgotten() -> Self {
        Self::new(
            StatusCode::GONE,
            "forgotten",
            "The link does not exist any more",
            "An earlier attempt of this request created a link, which has been deleted since.",
        )
    }

    /// 409: the link is revoked.
    pub(super) fn revoked() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "revoked",
            "The link is revoked",
            "A revoked link can't be changed.",
        )
    }

    /// 412: the link has changed since the caller read it.
    pub(super) fn other_revision(revision: u64) -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "other-revision",
            "The link has another revision",
            format!("The link has the revision {revision}, which If-Match does not name."),
        )
    }

    /// 413.
    pub(super) fn too_large(limit_bytes: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "The body is too large",
            format!("A body may have at most {limit_bytes} bytes."),
        )
    }

    /// 415.
    pub(super) fn not_json() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not-json",
            "The body is not JSON",
            "Send JSON with the header Content-Type: application/json.",
        )
    }

    /// 422: the body is JSON but invalid.
    pub(super) fn validation(errors: Vec<FieldError>) -> Self {
        let mut problem = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "validation",
            "The request is not valid",
            "The list of errors says what is wrong with which part of the body.",
        );
        problem.0.errors = errors;
        problem
    }

    /// 415: a batch is sent in another form.
    pub(super) fn not_rows() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not-rows",
            "The body is in no form that rows can be read from",
            "Send application/json (an array), application/x-ndjson or text/csv.",
        )
    }

    /// 422: the idempotency key belongs to another request.
    pub(super) fn other_request() -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency-key-reused",
            "The Idempotency-Key was used for another request",
            "Repeat the request that it was used for unchanged, or use another key.",
        )
    }

    /// The problem as the bytes of a JSON object, and its status.
    pub(super) fn to_json(&self) -> (StatusCode, String) {
        let body = serde_json::to_string(&self.body());
        (self.0.status, body.unwrap_or_default())
    }

    /// 500: an unexpected failure.
    pub(super) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "Something went wrong here",
            "The log has more under this request's X-Request-Id.",
        )
    }

    /// 503: a temporary failure.
    pub(super) fn unavailable(detail: &'static str) -> Self {
        let mut problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "The service is not available for the moment",
            detail,
        );
        let seconds = HeaderValue::from_static(RETRY_AFTER_SECONDS);
        problem.0.header = Some((RETRY_AFTER, seconds));
        problem
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = &error as &dyn Error, "a request failed");
        Self::unavailable(
            "The database does not answer. Whether the request had an effect is not known.",
        )
    }
}

impl From<CampaignError> for Problem {
    fn from(error: CampaignError) -> Self {
        match error {
            CampaignError::Revoked => Self::new(
                StatusCode::CONFLICT,
                "revoked",
                "The campaign is revoked",
                "A revoked campaign can't be changed.",
            ),
            CampaignError::Store(error) => error.into(),
        }
    }
}

impl From<Vec<FieldError>> for Problem {
    fn from(errors: Vec<FieldError>) -> Self {
        Self::validation(errors)
    }
}

impl From<LinkError> for Problem {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Taken { .. } => Self::taken(),
            LinkError::Refused { refusal, .. } => match refusal {
                Refusal::Revoked => Self::revoked(),
                Refusal::OtherRevision { revision } => Self::other_revision(revision),
                Refusal::NeverValid => Self::validation(vec![FieldError {
                    pointer: String::new(),
                    detail: "the link would end before it begins".to_owned(),
                }]),
                Refusal::OfCampaign => Self::validation(vec![FieldError {
                    pointer: String::new(),
                    detail: "the link's campaign defines its target and redirect".to_owned(),
                }]),
                Refusal::OfNoCampaign => Self::validation(vec![FieldError {
                    pointer: "/parameters".to_owned(),
                    detail: "is for links of campaigns".to_owned(),
                }]),
            },
            LinkError::Forgotten { .. } => Self::forgotten(),
            LinkError::Store(error) => error.into(),
            LinkError::Exhausted { .. } => {
                tracing::error!(
                    error = &error as &dyn Error,
                    "codes are running out; codes.longest_body_length must grow"
                );
                Self::unavailable("No free code was found.")
            }
            LinkError::NoCode(ref reason) => match &**reason {
                NoCode::Full => {
                    tracing::error!("codes are running out; codes.longest_body_length must grow");
                    Self::unavailable("No free code is left of the lengths that are allowed.")
                }
                NoCode::Store(error) => error.clone().into(),
                NoCode::Draw(DrawError::Store(error)) => error.clone().into(),
                NoCode::Draw(_) => {
                    tracing::error!(error = &error as &dyn Error, "a request failed");
                    Self::internal()
                }
            },
            LinkError::Stopped => Self::unavailable("The service is about to stop."),
        }
    }
}

/// A problem as JSON.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct ProblemBody<'a> {
    /// Identifier of the problem; clients may depend on it.
    #[schemars(with = "words::ProblemType")]
    pub(super) r#type: String,
    /// Title of all problems of this type.
    title: &'a str,
    /// HTTP status of the answer.
    status: u16,
    /// Description of this occurrence, for human readers.
    detail: &'a str,
    /// All faults of the body.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schemars(with = "Vec<FieldError>")]
    errors: &'a [FieldError],
}

impl Problem {
    /// The status of the answer.
    pub(super) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The last part of its type.
    pub(super) fn name(&self) -> &'static str {
        self.0.name
    }

    /// The title of all problems of its type.
    pub(super) fn title(&self) -> &'static str {
        self.0.title
    }

    /// The additional header of the answer, if any.
    pub(super) fn header(&self) -> Option<&HeaderName> {
        self.0.header.as_ref().map(|(name, _)| name)
    }

    /// The problem as it is sent.
    pub(super) fn body(&self) -> ProblemBody<'_> {
        ProblemBody {
            r#type: format!("{TYPE_PREFIX}{}", self.0.name),
            title: self.0.title,
            status: self.0.status.as_u16(),
            detail: &self.0.detail,
            errors: &self.0.errors,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        let mut response = (self.0.status, axum::Json(self.body())).into_response();
        let content = *self.0;
        let headers = response.headers_mut();
        let media_type = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, media_type);
        if let Some((name, value)) = content.header {
            headers.insert(name, value);
        }
        response
    }
}

/// Answers a request whose handler has panicked.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer that calls this hands the payload over"
)]
pub(super) fn of_panic(payload: Box<dyn Any + Send>) -> Response<axum::body::Body> {
    log_panic(&*payload);
    Problem::internal().into_response()
}

/// Logs the panic of a handler.
pub(super) fn log_panic(payload: &(dyn Any + Send)) {
    let message = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or_default();
    tracing::error!(message, "a handler has panicked");
}
