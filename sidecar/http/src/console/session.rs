//! `/console/session`: signing in with an API key, and out again, also for people ([`super::sign_in`]).

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;
use shortlink_api::fields::Fields;
use shortlink_api::kinds::Text;
use shortlink_api::members::{Required, Usage, read};
use shortlink_core::api_key::{PresentedKey, Scope};
use shortlink_service::access::{Caller, Credentials};
use shortlink_service::sessions::LIFE;

use super::super::app::{App, SharedApp};
use super::super::audit::circumstances;
use super::super::auth;
use super::super::extract::{JsonObject, header};
use super::super::operation::NO_STORE;
use super::super::problem::Problem;
use super::counters::{Kind, Outcome};
use super::{SESSION, require_console};

/// The longest wait for the provider at a sign-out.
const PROVIDER_PATIENCE: Duration = Duration::from_secs(2);

/// The end of a session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndBody {
    /// The page at the provider to go to.
    leads_to: String,
}

/// A session as the console receives it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionBody {
    key_id: String,
    key_name: String,
    scopes: Vec<Scope>,
    expires_at: Timestamp,
}

impl SessionBody {
    /// Describes a session that ends then, or with its key.
    fn new(caller: &Caller, until: Timestamp) -> Self {
        let key = caller.key();
        Self {
            key_id: key.id.clone(),
            key_name: key.name.clone(),
            scopes: key.scopes.clone(),
            expires_at: key.expires_at.map_or(until, |expiry| expiry.min(until)),
        }
    }
}

/// `POST /console/session`
pub(super) async fn begin(
    State(app): State<SharedApp>,
    headers: HeaderMap,
    JsonObject(members): JsonObject,
) -> Result<impl IntoResponse, Problem> {
    require_console(&headers)?;
    let address = client(&headers);
    let count = |outcome| app.sign_in_counters.count(Kind::Key, outcome);
    app.sign_ins.take(address).map_err(|error| {
        count(Outcome::Limited);
        tracing::debug!(address, "a sign-in was refused: there were too many");
        Problem::too_many_sign_ins(error)
    })?;
    let mut fields = Fields::new(members);
    let text = read::<Required<Text>>(&mut fields, "apiKey", Usage::New);
    let text = fields.required("apiKey", text);
    fields.finish()?;
    let text = text.ok_or_else(Problem::internal)?;
    let text = text.trim();
    let caller = match PresentedKey::parse(text) {
        Some(presented) => app.access.recognise(&Credentials::Key(presented)).await?,
        None => None,
    };
    let Some(caller) = caller else {
        count(Outcome::WrongKey);
        tracing::warn!(address, "a sign-in at the console was refused: a wrong key");
        return Err(Problem::wrong_key());
    };
    caller.charge(1)?;
    let (token, until) = app.sessions.begin(text).ok_or_else(Problem::internal)?;
    tracing::info!(
        address,
        key_id = caller.key().id,
        "signed in at the console"
    );
    let (key_id, detail) = (caller.key().id.clone(), circumstances(&headers));
    // A database that takes no changes is no reason to refuse its operator; the log has the line above.
    if let Err(error) = app.sessions.record_begin(key_id, detail).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "the audit log lacks a sign-in");
    }
    count(Outcome::Ok);
    let cookie = SESSION.set(&token, LIFE.as_secs(), &headers);
    Ok((
        StatusCode::CREATED,
        [(SET_COOKIE, cookie)],
        [NO_STORE],
        Json(SessionBody::new(&caller, until)),
    ))
}

/// `GET /console/session`: 204 without a session, which is not an error.
pub(super) async fn show(State(app): State<SharedApp>, parts: Parts) -> Result<Response, Problem> {
    let nobody = || (StatusCode::NO_CONTENT, [NO_STORE]).into_response();
    let Some(session) = super::session(&parts, &app).await? else {
        return Ok(nobody());
    };
    let Some(caller) = app.access.recognise(&session.credentials).await? else {
        return Ok(nobody());
    };
    caller.charge(1)?;
    let body = SessionBody::new(&caller, session.until);
    Ok(([NO_STORE], Json(body)).into_response())
}

/// `GET /console/admission`: nginx asks before it buffers a part of an upload.
pub(super) async fn admit(
    State(app): State<SharedApp>,
    parts: Parts,
) -> Result<impl IntoResponse, Problem> {
    auth::admit(&parts, &app, Scope::LinksWrite).await?;
    Ok((StatusCode::NO_CONTENT, [NO_STORE]))
}

/// `DELETE /console/session`: the browser forgets the session, and every sidecar rejects it from now on.
pub(super) async fn end(State(app): State<SharedApp>, parts: Parts) -> Result<Response, Problem> {
    let headers = &parts.headers;
    require_console(headers)?;
    let cookie = SESSION.set("", 0, headers);
    let ended = async {
        let Some(session) = super::session(&parts, &app).await? else {
            return Ok(false);
        };
        let is_person = matches!(session.credentials, Credentials::Person(_));
        app.sessions.end(session, circumstances(headers)).await?;
        Ok::<bool, Problem>(is_person)
    };
    // The browser forgets it in any case, also while the database takes no changes.
    let leads_to = match ended.await {
        Err(problem) => return Ok(([(SET_COOKIE, cookie)], problem).into_response()),
        Ok(false) => None,
        Ok(true) => sign_out_there(&app).await,
    };
    Ok(match leads_to {
        None => (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)], [NO_STORE]).into_response(),
        Some(leads_to) => {
            let body = Json(EndBody { leads_to });
            ([(SET_COOKIE, cookie)], [NO_STORE], body).into_response()
        }
    })
}

/// The page of the provider that ends the session of the person there.
async fn sign_out_there(app: &App) -> Option<String> {
    let provider = &app.openid.as_ref()?.provider;
    // The session here has ended, whatever the provider does.
    let found = tokio::time::timeout(PROVIDER_PATIENCE, provider.sign_out()).await;
    found.ok()?.ok()?
}

/// The address of the client, as nginx reports it.
pub(super) fn client(headers: &HeaderMap) -> &str {
    header(headers, "x-real-ip").unwrap_or_default()
}
