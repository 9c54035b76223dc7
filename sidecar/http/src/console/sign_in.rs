//! `/console/sign-in`: signing in at a provider of OpenID Connect.
//!
//! The browser goes to the provider by a link, and returns with a code. The secrets of the sign-in are meanwhile in a
//! cookie that only sidecars of this database can read, so the browser may return to any of them. A sign-in that fails
//! shows its reason on the sign-in page, which reads it from the same cookie: no address contains the groups of a person,
//! and no other site can write on that page.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{AppendHeaders, IntoResponse, Response};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use shortlink_core::causes::causes;
use shortlink_core::sign_in::{Identity, ProviderError, Started};
use shortlink_service::keys::Entered;
use shortlink_service::sessions::PeopleLimits;
use subtle::ConstantTimeEq;
use url::form_urlencoded;

use super::super::app::{App, OpenId, SharedApp};
use super::super::audit::circumstances;
use super::super::operation::NO_STORE;
use super::counters::{Kind, Outcome};
use super::session::client;
use super::{Cookie, SESSION};

/// The time that a user has to sign in at the provider.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// The purposes of sealed cookies.
const STARTED: &str = "console sign-in 1";
const FAULT: &str = "console sign-in fault 1";

/// The most groups that the sign-in page shows, the most characters of one, and the most bytes of all: browsers keep cookies
/// of 4 KB.
const MOST_GROUPS: usize = 20;
const LONGEST_GROUP: usize = 60;
const MOST_BYTES_OF_GROUPS: usize = 2000;

/// The most bytes of the page to return to.
const LONGEST_PAGE: usize = 1000;

/// The cookie of a sign-in that is in progress or has failed. Browsers send it also when they return from the provider.
const COOKIE: Cookie = Cookie {
    name: "shortlink_sign_in",
    same_site: "Lax",
};

/// A sign-in in progress.
#[derive(Deserialize, Serialize)]
struct Progress {
    state: String,
    nonce: String,
    verifier: String,
    page: String,
    /// Seconds since 1970.
    until: i64,
}

/// The reason that a sign-in has failed, as the sign-in page shows it.
#[derive(Deserialize, Serialize)]
struct Fault {
    /// The name of the [`Outcome`].
    reason: String,
    /// The person's groups, when none of them gives a role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
}

/// The ways to sign in.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ways {
    provider: Option<ProviderBody>,
    /// False if the form for API keys is hidden.
    api_key: bool,
    fault: Option<Fault>,
}

#[derive(Serialize)]
struct ProviderBody {
    name: String,
    /// The address of the link that starts the sign-in.
    url: String,
}

/// `GET /console/sign-in/ways`
pub(super) async fn ways(State(app): State<SharedApp>, headers: HeaderMap) -> Response {
    let fault = COOKIE.value(&headers);
    let fault = fault.and_then(|value| app.sessions.open(FAULT, value));
    let fault = fault.and_then(|text| serde_json::from_str(&text).ok());
    let has_fault = fault.is_some();
    let body = Ways {
        provider: app.openid.as_ref().map(|openid| ProviderBody {
            name: openid.name.clone(),
            url: openid.at("/console/sign-in/start"),
        }),
        api_key: app
            .openid
            .as_ref()
            .is_none_or(|openid| openid.shows_api_key),
        fault,
    };
    let answer = ([NO_STORE], Json(body)).into_response();
    match has_fault {
        // It is shown once.
        true => (set([own_cookie("", 0, &headers)]), answer).into_response(),
        false => answer,
    }
}

/// `GET /console/sign-in/start`
pub(super) async fn start(
    State(app): State<SharedApp>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(openid) = &app.openid else {
        return to_console("");
    };
    // Another site could use up the attempts of the address.
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return to_console("");
    }
    if let Some(refused) = take_attempt(&app, &headers) {
        return refused;
    }
    let (started, url) = match openid.provider.start().await {
        Ok(started) => started,
        Err(error) => return provider_failed(&app, &headers, &error),
    };
    let Started {
        state,
        nonce,
        verifier,
    } = started;
    let progress = Progress {
        state,
        nonce,
        verifier,
        page: page(parameter(&query, "return").unwrap_or_default()),
        until: (app.clock.now() + PATIENCE).as_second(),
    };
    let text = serde_json::to_string(&progress).unwrap_or_default();
    match app.sessions.seal(STARTED, &text) {
        Some(sealed) => {
            let cookie = own_cookie(&sealed, PATIENCE.as_secs(), &headers);
            (set([cookie]), redirect(&url)).into_response()
        }
        None => failed(&app, &headers, Outcome::Unavailable, Vec::new()),
    }
}

/// `GET /console/sign-in/callback`: the browser returns from the provider.
pub(super) async fn callback(
    State(app): State<SharedApp>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(openid) = &app.openid else {
        return to_console("");
    };
    if let Some(refused) = take_attempt(&app, &headers) {
        return refused;
    }
    let address = client(&headers);
    let Some(progress) = progress(&app, &headers, parameter(&query, "state").as_deref()) else {
        tracing::warn!(
            address,
            "a sign-in was refused: its state is not that of a sign-in that this browser has begun within 10 minutes"
        );
        return failed(&app, &headers, Outcome::State, Vec::new());
    };
    let code = match (parameter(&query, "error"), parameter(&query, "code")) {
        (Some(error), _) if error == "access_denied" => {
            return failed(&app, &headers, Outcome::Cancelled, Vec::new());
        }
        (Some(error), _) => {
            let text = parameter(&query, "error_description").unwrap_or_default();
            let error = ProviderError::Refused(format!("{error} ({text})"));
            return provider_failed(&app, &headers, &error);
        }
        (None, None) => {
            let error = ProviderError::Refused("it sent no code".to_owned());
            return provider_failed(&app, &headers, &error);
        }
        (None, Some(code)) => code,
    };
    let started = Started {
        state: progress.state,
        nonce: progress.nonce,
        verifier: progress.verifier,
    };
    match openid.provider.finish(&started, code).await {
        Ok(identity) => enter(&app, openid, &headers, &identity, &progress.page).await,
        Err(error) => provider_failed(&app, &headers, &error),
    }
}

/// Takes one of the attempts of the client's address; the answer if it has none left.
fn take_attempt(app: &App, headers: &HeaderMap) -> Option<Response> {
    let address = client(headers);
    app.sign_ins.take(address).err()?;
    tracing::debug!(address, "a sign-in was refused: there were too many");
    Some(failed(app, headers, Outcome::Limited, Vec::new()))
}

/// Begins a session of a person, if one of their groups gives a role.
async fn enter(
    app: &SharedApp,
    openid: &OpenId,
    headers: &HeaderMap,
    identity: &Identity,
    page: &str,
) -> Response {
    let address = client(headers);
    let (subject, judged) = (&*identity.subject, openid.rules.judge(identity));
    let entered = app
        .keys
        .enter(&app.sessions, identity, &judged, circumstances(headers))
        .await;
    match entered {
        Ok(Entered::Session { key, token }) => {
            app.sign_in_counters.count(Kind::Person, Outcome::Ok);
            let (key_id, name) = (&*key.id, &*key.name);
            tracing::info!(address, key_id, name, "signed in at the console");
            let PeopleLimits { life, .. } = app.sessions.limits();
            let session = SESSION.set(&token, life.as_secs(), headers);
            let cookies = set([own_cookie("", 0, headers), session]);
            (cookies, to_console(page)).into_response()
        }
        Ok(Entered::NoRole) => {
            let claim = &*openid.rules.claim;
            let Some(groups) = judged.groups else {
                tracing::warn!(
                    address,
                    subject,
                    claim,
                    "a sign-in was refused: the provider sends no groups in this claim (sign_in.groups_claim)"
                );
                return failed(app, headers, Outcome::NoGroups, Vec::new());
            };
            let shown = groups.join(", ");
            tracing::warn!(
                address,
                subject,
                groups = shown,
                "a sign-in was refused: no group has a role (sign_in.roles)"
            );
            failed(app, headers, Outcome::NoRole, groups)
        }
        Ok(Entered::Blocked) => {
            tracing::warn!(
                address,
                subject,
                "a sign-in was refused: the person is blocked"
            );
            failed(app, headers, Outcome::Blocked, Vec::new())
        }
        Err(error) => {
            let error = causes(&error);
            tracing::warn!(address, subject, error, "a sign-in could not be stored");
            failed(app, headers, Outcome::Unavailable, Vec::new())
        }
    }
}

/// The sign-in that the browser has begun, if the state is the one of that.
fn progress(app: &App, headers: &HeaderMap, state: Option<&str>) -> Option<Progress> {
    let sealed = COOKIE.value(headers)?;
    let text = app.sessions.open(STARTED, sealed)?;
    let progress: Progress = serde_json::from_str(&text).ok()?;
    let is_same: bool = progress.state.as_bytes().ct_eq(state?.as_bytes()).into();
    let until = Timestamp::from_second(progress.until).ok()?;
    (is_same && app.clock.now() < until).then_some(progress)
}

fn provider_failed(app: &App, headers: &HeaderMap, error: &ProviderError) -> Response {
    let (address, text) = (client(headers), error.to_string());
    // The provider or the address has part of the text.
    let text: String = text.chars().take(1000).collect();
    tracing::warn!(address, error = text, "a sign-in failed");
    let outcome = match error {
        ProviderError::Away(_) => Outcome::ProviderAway,
        ProviderError::Refused(_) => Outcome::ProviderRefused,
        ProviderError::Token(_) => Outcome::Token,
    };
    failed(app, headers, outcome, Vec::new())
}

/// Leads to the sign-in page, which shows the reason.
fn failed(app: &App, headers: &HeaderMap, outcome: Outcome, groups: Vec<String>) -> Response {
    app.sign_in_counters.count(Kind::Person, outcome);
    let groups = groups.into_iter().take(MOST_GROUPS);
    let groups = groups.map(|it| it.chars().take(LONGEST_GROUP).collect::<String>());
    let groups = groups.scan(0, |bytes, group| {
        *bytes += group.len();
        (*bytes <= MOST_BYTES_OF_GROUPS).then_some(group)
    });
    let fault = Fault {
        reason: outcome.name().to_owned(),
        groups: groups.collect(),
    };
    let text = serde_json::to_string(&fault).unwrap_or_default();
    let sealed = app.sessions.seal(FAULT, &text).unwrap_or_default();
    let cookie = own_cookie(&sealed, PATIENCE.as_secs(), headers);
    (set([cookie]), to_console("")).into_response()
}

/// A parameter of a query.
fn parameter(query: &Option<String>, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_ref()?.as_bytes());
    pairs
        .find(|(it, _)| it == name)
        .map(|(_, value)| value.into_owned())
}

/// The wanted page of the console as the end of an address on this host; empty for the first one.
fn page(wanted: String) -> String {
    let is_path = wanted.starts_with('/')
        && wanted.len() <= LONGEST_PAGE
        && wanted
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_path { wanted } else { String::new() }
}

fn to_console(page: &str) -> Response {
    redirect(&format!("/console{page}"))
}

fn redirect(to: &str) -> Response {
    match HeaderValue::from_str(to) {
        Ok(to) => (StatusCode::SEE_OTHER, [(LOCATION, to)], [NO_STORE]).into_response(),
        Err(_no_header) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

fn own_cookie(value: &str, max_age_s: i64, headers: &HeaderMap) -> String {
    COOKIE.set(value, max_age_s, headers)
}

/// Headers that set cookies.
fn set<const N: usize>(cookies: [String; N]) -> AppendHeaders<[(HeaderName, String); N]> {
    AppendHeaders(cookies.map(|cookie| (SET_COOKIE, cookie)))
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn a_sign_in_returns_to_a_page_of_the_console_alone() {
        for (wanted, expected) in [
            ("/links?state=live#x", "/links?state=live#x"),
            ("", ""),
            ("links", ""),
            ("https://evil.example/", ""),
            // Behind /console, this is a path of the same host.
            ("//evil.example", "//evil.example"),
            ("/\\evil.example", ""),
            ("/a b", ""),
            ("/a\r\nSet-Cookie: x=y", ""),
            ("/é", ""),
            (&format!("/{}", "a".repeat(1000)), ""),
        ] {
            assert_eq!(page(wanted.to_owned()), expected, "{wanted:?}");
        }
    }
}
