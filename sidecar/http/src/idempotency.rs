//! Requests with an `Idempotency-Key`: however often they are sent, they have one effect.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use shortlink_core::ports::ChunkKey;
use shortlink_service::new_link::{LinkError, NewLink, Stored};
use shortlink_service::repeat::{RepeatError, RowResult, RowsDigest};

use super::app::App;
use super::link_members::{LengthsFrom, not_created};
use super::operation::parameter::parameters;
use super::problem::Problem;

/// The longest `Idempotency-Key`.
const LONGEST_KEY: usize = 255;

parameters! {
    pub(super) IDEMPOTENCY_KEY: header "Idempotency-Key", "IdempotencyKey",
        "Makes the request idempotent for 24 hours: a repetition has no further effect.",
        // Blanks within are a part of the key; HTTP drops those around it.
        |_| json!({ "type": "string", "pattern": format!("^[!-~]([\\t -~]{{0,{}}}[!-~])?$", LONGEST_KEY - 2) });
}

/// The key of a request, if it has one.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = key.to_str().ok().map(str::trim);
    key.filter(|key| (1..=LONGEST_KEY).contains(&key.len()))
        .map(|key| Some(key.to_owned()))
        .ok_or_else(bad_key)
}

/// The header is there, and no key.
pub(super) fn bad_key() -> Problem {
    Problem::malformed(format!(
        "The Idempotency-Key must have 1 to {LONGEST_KEY} visible characters."
    ))
}

/// 422: a request has a key and asks for `dedupe`.
pub(super) fn dedupes_twice() -> Problem {
    let detail = "cannot be combined with an Idempotency-Key, which does the same and more";
    Problem::invalid("/dedupe", detail)
}

/// The outcome of creating a link with an idempotency key.
pub(super) enum Once {
    /// The link, created now or before.
    Made(Box<Stored>),
    /// The problem of this or an earlier attempt.
    Told(Response<Body>),
}

/// The digest of a request, whatever the order of its members.
pub(super) fn digest(members: &Map<String, Value>) -> RowsDigest {
    let mut digest = RowsDigest::default();
    digest.add(b"one link");
    digest.add(Value::from_iter(members.clone()).to_string().as_bytes());
    digest
}

/// Creates a link once per idempotency key. An invalid request does not use the key up: it can be
/// corrected and retried.
pub(super) async fn create_once(
    app: &App,
    key: ChunkKey,
    digest: RowsDigest,
    new: Result<NewLink, Problem>,
    lengths_from: LengthsFrom,
) -> Result<Once, Problem> {
    // A request that is invalid now may have been valid then: a bound in time has passed, or a
    // campaign was revoked.
    let row = match new {
        Err(problem) if app.store.find_chunk(&key).await?.is_none() => return Err(problem),
        row => row,
    };
    let results = create_chunk(app, key, digest, vec![row]).await?;
    match results.into_iter().next() {
        Some(RowResult::Link(stored)) => Ok(Once::Made(stored)),
        Some(RowResult::Problem(problem)) => Ok(Once::Told(told(problem))),
        Some(RowResult::Failed(error)) => Err(not_created(error, lengths_from)),
        None => Err(Problem::internal()),
    }
}

/// Creates links together once per idempotency key.
pub(super) async fn create_chunk(
    app: &App,
    key: ChunkKey,
    digest: RowsDigest,
    links: Vec<Result<NewLink, Problem>>,
) -> Result<Vec<RowResult>, Problem> {
    let rows = links.into_iter();
    let rows = rows.map(|link| link.map_err(|problem| problem.to_json().1));
    let describe = |error: LinkError| Problem::from(error).to_json().1;
    let digest = digest.finish();
    let issuer = &app.links.issuer;
    let made = issuer.create_chunk(key, digest, rows.collect(), describe);
    made.await.map_err(|error| match error {
        RepeatError::Different => Problem::other_request(),
        RepeatError::Store(error) => error.into(),
    })
}

fn told(problem: String) -> Response<Body> {
    let status = status_of(&problem);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let media_type = [(CONTENT_TYPE, "application/problem+json")];
    (status, media_type, problem).into_response()
}

/// The status in a problem.
pub(super) fn status_of(problem: &str) -> u16 {
    let status = serde_json::from_str::<Value>(problem)
        .ok()
        .and_then(|problem| problem.get("status")?.as_u64())
        .and_then(|status| u16::try_from(status).ok());
    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR.as_u16())
}
