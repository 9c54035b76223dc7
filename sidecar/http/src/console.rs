//! `/console`: the console for browsers, and signing in to it.
//!
//! The pages are static and call the API like any other client, except for the session, which the API
//! accepts in place of a key ([`session()`]).

mod assets;
mod counters;
mod session;
mod sign_in;

use axum::Router;
use axum::http::header::{COOKIE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::response::Redirect;
use axum::routing::get;
use shortlink_service::sessions::Session;
use url::Url;

use super::app::{App, SharedApp};
use super::extract::header;
use super::problem::Problem;

pub use counters::SignInCounters;

/// A cookie of the console. Over https its name begins with `__Host-`, with which browsers take it from this host only,
/// and only with `Secure`.
struct Cookie {
    name: &'static str,
    same_site: &'static str,
}

/// The cookie that holds a session.
const SESSION: Cookie = Cookie {
    name: "shortlink_session",
    same_site: "Strict",
};

impl Cookie {
    /// The value in a request.
    fn value<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let wanted = self.name_of(headers);
        headers
            .get_all(COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    }

    /// The header that sets it.
    fn set(&self, value: &str, max_age_s: i64, headers: &HeaderMap) -> String {
        let (name, same_site) = (self.name_of(headers), self.same_site);
        let secure = if is_https(headers) { "; Secure" } else { "" };
        format!(
            "{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite={same_site}{secure}"
        )
    }

    fn name_of(&self, headers: &HeaderMap) -> String {
        let prefix = if is_https(headers) { "__Host-" } else { "" };
        format!("{prefix}{}", self.name)
    }
}

/// The header that marks requests of the console; a page of another origin cannot send it.
const MARK: &str = "x-shortlink-console";

/// The console's routes, and the redirect from the root of the server.
pub(super) fn routes() -> Router<SharedApp> {
    Router::new()
        .route("/", get(|| async { Redirect::temporary("/console") }))
        .route(
            "/console/session",
            get(session::show).post(session::begin).delete(session::end),
        )
        .route("/console/admission", get(session::admit))
        .route("/console/sign-in/ways", get(sign_in::ways))
        .route("/console/sign-in/start", get(sign_in::start))
        .route("/console/sign-in/callback", get(sign_in::callback))
        .route("/console/assets/{version}/{*path}", get(assets::asset))
        .route("/console", get(assets::page))
        .route("/console/", get(assets::page))
        .route("/console/{*page}", get(assets::page))
}

/// Returns the session of a request, if it has not ended. A request that a page of another origin triggers has none.
///
/// # Errors
/// Fails if the request could change something and does not come from the console, or if the store does.
pub(super) async fn session(parts: &Parts, app: &App) -> Result<Option<Session>, Problem> {
    let Some(token) = SESSION.value(&parts.headers) else {
        return Ok(None);
    };
    let is_reading = matches!(parts.method, Method::GET | Method::HEAD);
    // `none` is a user who has typed the address.
    let site = header(&parts.headers, "sec-fetch-site");
    if is_reading && site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Ok(None);
    }
    let session = app.sessions.find(token).await?;
    if session.is_some() && !is_reading {
        require_console(&parts.headers)?;
    }
    Ok(session)
}

/// Rejects requests that pages of other origins trigger. Browsers withhold the cookie from other
/// sites, but another port of the same host is the same site.
fn require_console(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).map(|value| value.to_str().ok());
    let is_marked = headers.contains_key(MARK);
    let is_same_site = match text("sec-fetch-site") {
        None => true,
        Some(site) => site == Some("same-origin"),
    };
    let is_same_origin = match text(ORIGIN.as_str()) {
        None => true,
        Some(origin) => is_of_host(origin, text(HOST.as_str()).flatten()),
    };
    if is_marked && is_same_site && is_same_origin {
        Ok(())
    } else {
        Err(Problem::not_from_console())
    }
}

/// Returns whether an origin's host and port are those of the request. Ignores the scheme: a proxy
/// in front of nginx may terminate TLS.
fn is_of_host(origin: Option<&str>, host: Option<&str>) -> bool {
    let address = |url: &str| {
        let url = Url::parse(url).ok()?;
        Some((url.host_str()?.to_owned(), url.port()))
    };
    let is_same = || {
        let (scheme, _) = origin?.split_once("://")?;
        let asked = address(&format!("{scheme}://{}/", host?))?;
        Some(address(origin?)? == asked)
    };
    is_same().unwrap_or_default()
}

/// Reports whether the browser uses https, as nginx reports it.
fn is_https(headers: &HeaderMap) -> bool {
    let scheme = header(headers, "x-forwarded-proto").unwrap_or_default();
    scheme.eq_ignore_ascii_case("https")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_the_console_when_host_and_port_are_those_asked() {
        for (origin, host, is_same) in [
            ("http://127.0.0.1:8081", "127.0.0.1:8081", true),
            ("https://console.example.com", "console.example.com", true),
            (
                "https://console.example.com",
                "console.example.com:443",
                true,
            ),
            ("https://Console.example.com", "console.EXAMPLE.com", true),
            ("http://127.0.0.1:8082", "127.0.0.1:8081", false),
            ("http://127.0.0.1", "127.0.0.1:8081", false),
            ("https://evil.example", "console.example.com", false),
            ("null", "null", false),
            ("", "", false),
        ] {
            assert_eq!(is_of_host(Some(origin), Some(host)), is_same, "{origin}");
        }
        assert!(!is_of_host(None, Some("a")));
        assert!(!is_of_host(Some("http://a"), None));
    }
}
