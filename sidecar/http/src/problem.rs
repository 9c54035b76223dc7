//! Errors as clients see them: RFC 9457 problem details.
//!
//! A problem describes what a client can do. The internal cause is logged where the problem is
//! created, and not part of it.

use std::any::Any;
use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;

use shortlink_api::encoding;
pub(super) use shortlink_api::faults::FieldError;
use shortlink_api::words::word;
use shortlink_core::api_key::{PolicyError, Scope};
use shortlink_core::link::Refusal;
use shortlink_core::ports::{KeyRefusal, QuotaOwner, StoreError, UsedUp};
use shortlink_core::query::MAX_TEMPLATES;
use shortlink_service::access::ChargeError;
use shortlink_service::campaigns::CampaignError;
use shortlink_service::codes::strategy::DrawError;
use shortlink_service::keys::KeyError;
use shortlink_service::new_link::{LinkError, NoCode};

use super::link_members::PLAN_TOO_LONG;
use super::webhooks::too_many;

/// The seconds after which a client should retry when a dependency is unavailable.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("2");

/// An error as a client sees it. Boxed, since most requests have none.
#[derive(Clone, Debug)]
pub(super) struct Problem(pub(super) Box<Content>);

#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) status: StatusCode,
    /// The last part of the identifier; clients may depend on it.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    detail: String,
    errors: Vec<FieldError>,
    quota: Option<QuotaBody>,
    pub(super) header: Option<(HeaderName, HeaderValue)>,
}

/// Declares problems: a constructor each, with the status, the type, the title and the detail of the problem, and calls
/// that add to it.
macro_rules! problems {
    ($(
        $(#[$about:meta])+
        $constructor:ident($($given:ident: $Given:ty)?):
        $status:ident, $name:literal, $title:literal,
        $detail:expr $(, $(.$more:ident($($argument:tt)*))+)?;
    )+) => {
        /// The types of all problems.
        pub(super) const TYPES: &[&str] = &[$($name),+];

        impl Problem {
            $(
                $(#[$about])+
                pub(super) fn $constructor($($given: $Given)?) -> Self {
                    Self(Box::new(Content {
                        status: StatusCode::$status,
                        name: $name,
                        title: $title,
                        detail: $detail.into(),
                        errors: Vec::new(),
                        quota: None,
                        header: None,
                    }))
                    $($(.$more($($argument)*))+)?
                }
            )+
        }
    };
}

problems! {
    /// 400: the body is not JSON or is unreadable.
    malformed(detail: impl Into<String>):
        BAD_REQUEST, "malformed", "The request can't be read", detail;

    /// 400: a query parameter is invalid.
    query(detail: impl Into<String>): BAD_REQUEST, "query", "A query parameter is not valid", detail;

    /// 401: the key is missing or invalid. Every cause has the same answer.
    unauthorized(): UNAUTHORIZED, "unauthorized", "An API key is required",
        "Send a valid API key as X-Api-Key or as a Bearer token.",
        .with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"shortlink\""));

    /// 403: the key does not allow this.
    forbidden(detail: impl Into<String>):
        FORBIDDEN, "forbidden", "The API key does not allow this", detail;

    /// 403: the quota of the API key or of the campaign is used up.
    over_quota(used_up: &UsedUp): FORBIDDEN, "over-quota", "A quota is used up",
        match used_up.owner {
            QuotaOwner::Key(_) => format!(
                "The policy of this API key allows {} links (maxLinks), and {} were created.",
                used_up.limit, used_up.used
            ),
            QuotaOwner::Campaign(id) => format!(
                "The campaign {id} can have {} links (maxLinks), and {} were created.",
                used_up.limit, used_up.used
            ),
        },
        .of_quota(used_up);

    /// 403: a request with a session does not come from the console.
    not_from_console(): FORBIDDEN, "not-from-console", "The request does not come from the console",
        "With a session of the console only the console itself may change anything: the header \
         X-Shortlink-Console is missing, or the request comes from another site.";

    /// 404.
    not_found(detail: impl Into<String>): NOT_FOUND, "not-found", "Not found", detail;

    /// 404: no stored visit has the click id.
    unknown_click(): NOT_FOUND, "unknown-click-id", "There is no visit with this click id",
        "Visits are stored within seconds, or once Redis is available again: report the row again later.",
        .at("/clickId", "belongs to no stored visit of a link that this API key reaches");

    /// 404: a refund of no conversion.
    unknown_conversion(): NOT_FOUND, "unknown-conversion", "The link has no conversion with this id",
        "Only a conversion that was reported and not erased can be refunded: report it first.",
        .at("/conversionId", "belongs to no conversion of the link");

    /// 405. The router adds which methods are allowed.
    method_not_allowed():
        METHOD_NOT_ALLOWED, "method-not-allowed", "The method is not allowed here",
        "The header Allow lists the allowed methods.";

    /// 409: another link has the code.
    taken(): CONFLICT, "taken", "The code is taken",
        "Another link has or had this code, or a custom code that differs only by case.",
        .at("/customSlug", "is taken");

    /// 409: the link is revoked.
    revoked(): CONFLICT, "revoked", "The link is revoked", "A revoked link can't be changed.";

    /// 409: the campaign is revoked.
    campaign_revoked():
        CONFLICT, "revoked", "The campaign is revoked", "A revoked campaign can't be changed.";

    /// 409: the API key is revoked.
    key_revoked(): CONFLICT, "revoked", "The API key is revoked",
        "A revoked API key can't be changed or rotated.";

    /// 409: the API key has expired.
    key_expired(): CONFLICT, "expired", "The API key has expired",
        "An API key that has expired can't be rotated.";

    /// 409: the API key has a successor.
    key_rotated(): CONFLICT, "rotated", "The API key has been rotated already",
        "Rotate its successor, which successorId names.";

    /// 409: no key would be left that may do everything.
    last_admin(): CONFLICT, "last-admin", "This is the last administrator's key",
        "Create another API key with the scope admin first, or use the command line.";

    /// 409: links are not found by their target.
    targets_not_found(): CONFLICT, "find-by-target-off", "Links cannot be found by their target",
        "The setting links.find_by_target of the sidecar is off, so there is no index of targets.";

    /// 409: visits are where first clicks are not known when they are stored.
    first_clicks_not_known(): CONFLICT, "first-clicks-not-known", "First clicks are unknown",
        "Visits are in ClickHouse (visits.clickhouse), which stores a visit without knowledge of \
         earlier ones of its link. Set clicks to each.";

    /// 409: there are as many webhooks as there can be.
    too_many_webhooks(): CONFLICT, "too-many-webhooks", "There are too many webhooks", too_many();

    /// 409: there are as many templates as there can be.
    too_many_templates(): CONFLICT, "too-many-templates", "There are too many templates",
        format!("There can be at most {MAX_TEMPLATES} templates of UTM parameters. Delete one first.");

    /// 409: the link has a conversion with this id and another value.
    other_conversion(): CONFLICT, "other-conversion", "The conversion was reported with another value",
        "The link has a conversion with this conversionId and another value or currency, which does not change.",
        .at("/conversionId", "belongs to another conversion of the link");

    /// 409: the conversion is of a time whose visits were erased.
    erased_conversion(): CONFLICT, "erased", "The conversion is of an erased time",
        "The visits of the link, and its conversions, were erased up to a later time than this.",
        .at("/at", "is before the erasure");

    /// 409: the position of a feed is one that the database has not reached.
    cursor_ahead(): CONFLICT, "cursor-ahead", "The database has not reached this cursor",
        "The cursor is from a later state of the database, which was restored from a backup \
         since. Visits after the backup get new ids; start again with after=now, or with the \
         cursor that you had at the time of the backup.";

    /// 410: the link that an earlier attempt created has been deleted.
    forgotten(): GONE, "forgotten", "The link does not exist any more",
        "An earlier attempt of this request created a link, which has been deleted since.";

    /// 412: the link has changed since the caller read it.
    other_revision(revision: u64):
        PRECONDITION_FAILED, "other-revision", "The link has another revision",
        format!("The link has the revision {revision}, which If-Match does not name.");

    /// 413.
    too_large(limit_bytes: usize): PAYLOAD_TOO_LARGE, "too-large", "The body is too large",
        format!("A body may have at most {limit_bytes} bytes.");

    /// 413: of a row of a batch.
    row_too_large(limit_bytes: usize): PAYLOAD_TOO_LARGE, "row-too-large", "The row is too large",
        format!("A row may have at most {limit_bytes} bytes.");

    /// 413: a batch exceeds the rate limit of its key at once. Waiting does not help.
    batch_too_large(most: u32): PAYLOAD_TOO_LARGE, "batch-too-large", "The batch is too large",
        format!("The rate limit of this API key allows at most {most} rows at once.");

    /// 415.
    not_json(): UNSUPPORTED_MEDIA_TYPE, "not-json", "The body is not JSON",
        "Send JSON in UTF-8 with the header Content-Type: application/json.";

    /// 415: a batch is sent in another form.
    not_rows():
        UNSUPPORTED_MEDIA_TYPE, "not-rows", "The format of the body is not supported",
        "Send application/json (an array), application/x-ndjson or text/csv.";

    /// 415: a body declares an encoding that is not supported.
    other_charset(name: &str):
        UNSUPPORTED_MEDIA_TYPE, "other-charset", "The encoding of the body is not supported",
        format!("The charset {name} is unknown. Allowed are {}.", encoding::NAMES);

    /// 422: a batch has no rows.
    no_rows():
        UNPROCESSABLE_ENTITY, "no-rows", "The batch has no rows",
        "Send at least one row. The first line of CSV names the columns; curl keeps line ends with --data-binary.";

    /// 422: the rest of a batch is not read, because all its latest rows were refused.
    futile(detail: String): UNPROCESSABLE_ENTITY, "rows-refused", "The batch has only invalid rows", detail;

    /// 422: the body is JSON but invalid.
    validation(errors: Vec<FieldError>): UNPROCESSABLE_ENTITY, "validation", "The request is not valid",
        "The list errors describes each fault of the body.", .because_of(errors);

    /// 422: the idempotency key belongs to another request.
    other_request(): UNPROCESSABLE_ENTITY, "idempotency-key-reused",
        "The Idempotency-Key was used for another request",
        "Repeat the request that it was used for unchanged, or use another key.";

    /// 429: so much must pass until the next attempt.
    rate_limited(retry_after: Duration): TOO_MANY_REQUESTS, "rate-limited", "Too many requests",
        "The rate limit of this API key is exceeded. The header Retry-After has the number of seconds to wait.",
        .with(RETRY_AFTER, whole_seconds(retry_after));

    /// 500: an unexpected failure.
    internal(): INTERNAL_SERVER_ERROR, "internal", "Internal error",
        "The log of the sidecar has the error under this request's X-Request-Id.";

    /// 503: a temporary failure.
    unavailable(detail: &'static str):
        SERVICE_UNAVAILABLE, "unavailable", "The service is temporarily unavailable", detail,
        .with(RETRY_AFTER, RETRY_AFTER_SECONDS);
}

/// A duration as whole seconds, rounded up, so that a client that waits this long succeeds.
fn whole_seconds(duration: Duration) -> HeaderValue {
    HeaderValue::from(duration.as_millis().div_ceil(1000).max(1) as u64)
}

impl Problem {
    /// 400: the cursor is invalid.
    pub(super) fn cursor() -> Self {
        Self::query("cursor must be the nextCursor of an earlier answer.")
    }

    /// 401: the key for signing in is missing or invalid. Every cause has the same answer.
    pub(super) fn wrong_key() -> Self {
        Self::unauthorized().at("/apiKey", "is not a valid API key")
    }

    /// 403: the key lacks a scope.
    pub(super) fn lacks(scope: Scope) -> Self {
        Self::forbidden(format!("The scope {scope} is needed."))
    }

    /// 422: one part of the body is invalid.
    pub(super) fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::validation(Vec::new()).at(pointer, detail)
    }

    /// 422: the winner of an A/B test is none of its variants.
    fn no_variant(names: &[String]) -> Self {
        let names = names.join(", ");
        let detail = format!("must be one of the variants {names}, or empty for longUrl");
        Self::invalid("/variant", detail)
    }

    /// 429: too many attempts to sign in.
    pub(super) fn too_many_sign_ins(error: ChargeError) -> Self {
        let mut problem = Self::from(error);
        problem.0.detail = "Too many attempts to sign in. The header Retry-After has the number \
                            of seconds to wait."
            .into();
        problem
    }

    /// Adds a fault of the body.
    fn at(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.0.errors.push(FieldError {
            pointer: pointer.into(),
            detail: detail.into(),
        });
        self
    }

    /// Moves faults of a member to another one, and describes them anew.
    pub(super) fn moved(mut self, from: &str, to: &str, describe: impl Fn(&str) -> String) -> Self {
        for fault in self.0.errors.iter_mut().filter(|it| it.pointer == from) {
            to.clone_into(&mut fault.pointer);
            fault.detail = describe(&fault.detail);
        }
        self
    }

    /// Adds the quota, and the member of a new link that is at fault if it is not the key.
    fn of_quota(mut self, used_up: &UsedUp) -> Self {
        let of = match used_up.owner {
            QuotaOwner::Key(_) => QuotaOf::Key,
            QuotaOwner::Campaign(_) => QuotaOf::Campaign,
        };
        self.0.quota = Some(QuotaBody {
            of,
            limit: used_up.limit.get(),
            used: used_up.used,
        });
        match of {
            QuotaOf::Key => self,
            QuotaOf::Campaign => self.at("/campaignId", "has used up its maxLinks"),
        }
    }

    fn because_of(mut self, errors: Vec<FieldError>) -> Self {
        self.0.errors = errors;
        self
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// The problem as the bytes of a JSON object, and its status.
    pub(super) fn to_json(&self) -> (StatusCode, String) {
        let body = serde_json::to_string(&self.body());
        (self.0.status, body.unwrap_or_default())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = &error as &dyn Error, "a request failed");
        Self::unavailable(
            "The database does not answer. It is unknown whether the request had an effect.",
        )
    }
}

impl From<CampaignError> for Problem {
    fn from(error: CampaignError) -> Self {
        match error {
            CampaignError::Revoked => Self::campaign_revoked(),
            CampaignError::NeverValid => {
                Self::invalid("/validUntil", "must be later than validSince")
            }
            CampaignError::PlanTooLong => Self::invalid("/rules", PLAN_TOO_LONG),
            CampaignError::NoVariant { names } => Self::no_variant(&names),
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
                Refusal::NeverValid => Self::invalid("", "the link would end before it begins"),
                Refusal::PlanTooLong => Self::invalid("/rules", PLAN_TOO_LONG),
                Refusal::OfCampaign => {
                    Self::invalid("", "the link's campaign defines its target and redirect")
                }
                Refusal::NoVariant { names } => Self::no_variant(&names),
                Refusal::OfNoCampaign => Self::invalid("/parameters", "is for links of campaigns"),
            },
            LinkError::Forgotten { .. } => Self::forgotten(),
            LinkError::Store(error) => error.into(),
            LinkError::OverQuota(used_up) => Self::over_quota(&used_up),
            LinkError::Exhausted { .. } => {
                tracing::error!(
                    error = &error as &dyn Error,
                    "codes are running out; codes.longest_body_length must grow"
                );
                Self::unavailable("No free code was found.")
            }
            LinkError::NoCode(ref reason) => match &**reason {
                NoCode::Full { .. } => {
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

impl From<ChargeError> for Problem {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::Exceeded { retry_after } => Self::rate_limited(retry_after),
            ChargeError::TooMany { most } => Self::batch_too_large(most),
        }
    }
}

impl From<PolicyError> for Problem {
    /// Points to no member, since the request did not specify the rejected value.
    fn from(error: PolicyError) -> Self {
        Self::forbidden(format!("The policy: {error}."))
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        let refusal = match error {
            KeyError::Store(error) => return error.into(),
            KeyError::Refused(refusal) => refusal,
        };
        tracing::info!(
            error = &refusal as &dyn Error,
            "a change of an API key was refused"
        );
        refusal.into()
    }
}

impl From<KeyRefusal> for Problem {
    fn from(refusal: KeyRefusal) -> Self {
        match refusal {
            KeyRefusal::Scope(scope) => Self::forbidden(format!(
                "Only a key that has the scope {scope} itself may do this."
            )),
            KeyRefusal::Revoked => Self::key_revoked(),
            KeyRefusal::Expired => Self::key_expired(),
            KeyRefusal::Rotated => Self::key_rotated(),
            KeyRefusal::OwnLinksOnly => Self::invalid(
                "/policy/ownLinksOnly",
                "cannot be combined with the scopes admin, keys:admin and webhooks:admin",
            ),
            KeyRefusal::LastAdmin => Self::last_admin(),
        }
    }
}

/// The prefix of identifiers of problems.
pub(crate) const TYPE_PREFIX: &str = "urn:shortlink:problem:";

word! {
    /// Identifier of a problem.
    pub(crate) ProblemType: {
        let types: BTreeSet<String> =
            TYPES.iter().map(|name| format!("{TYPE_PREFIX}{name}")).collect();
        schemars::json_schema!({ "type": "string", "format": "uri", "enum": types })
    }
}

/// A problem as JSON.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct ProblemBody<'a> {
    /// Identifier of the problem; clients may depend on it.
    #[schemars(with = "ProblemType")]
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
    /// The quota that is used up; only of the type `over-quota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "QuotaBody")]
    quota: Option<&'a QuotaBody>,
}

/// A quota that is used up.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Quota")]
struct QuotaBody {
    of: QuotaOf,
    /// Number of links that can be created (`maxLinks`).
    limit: u64,
    /// Number of links that were created, including those that have ended or were deleted.
    used: u64,
}

/// Owner of a quota.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum QuotaOf {
    Key,
    Campaign,
}

impl Problem {
    /// The problem as it is sent.
    pub(super) fn body(&self) -> ProblemBody<'_> {
        ProblemBody {
            r#type: format!("{TYPE_PREFIX}{}", self.0.name),
            title: self.0.title,
            status: self.0.status.as_u16(),
            detail: &self.0.detail,
            errors: &self.0.errors,
            quota: self.0.quota.as_ref(),
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
