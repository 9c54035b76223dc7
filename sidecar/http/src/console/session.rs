//! `/console/session`: signing in with an API key, and out again.

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
use shortlink_service::access::Caller;
use shortlink_service::sessions::LIFE;

use super::super::app::SharedApp;
use super::super::audit::circumstances;
use super::super::auth;
use super::super::extract::{JsonObject, header};
use super::super::operation::NO_STORE;
use super::super::problem::Problem;
use super::{SECURE_COOKIE_NAME, cookie_name, require_console};

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
    app.sign_ins.take(address).map_err(|error| {
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
        Some(presented) => app.access.recognise(&presented).await?,
        None => None,
    };
    let Some(caller) = caller else {
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
    let cookie = cookie(&token, LIFE.as_secs(), &headers);
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
    let Some(caller) = app.access.recognise(&session.presented).await? else {
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
    let cookie = cookie("", 0, headers);
    let ended = async {
        if let Some(session) = super::session(&parts, &app).await? {
            app.sessions.end(session, circumstances(headers)).await?;
        }
        Ok::<(), Problem>(())
    };
    // The browser forgets it in any case, also while the database takes no changes.
    if let Err(problem) = ended.await {
        return Ok(([(SET_COOKIE, cookie)], problem).into_response());
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)], [NO_STORE]).into_response())
}

fn cookie(token: &str, max_age_s: i64, headers: &HeaderMap) -> String {
    let name = cookie_name(headers);
    let secure = if name == SECURE_COOKIE_NAME {
        "; Secure"
    } else {
        ""
    };
    format!("{name}={token}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}")
}

/// The address of the client, as nginx reports it.
fn client(headers: &HeaderMap) -> &str {
    header(headers, "x-real-ip").unwrap_or_default()
}
