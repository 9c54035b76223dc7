//! Who asks, and whether they may.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use jiff::Timestamp;

use super::app::{App, SharedApp};
use super::console;
use super::operation::{Operation, Taken};
use super::problem::Problem;
use crate::core::api_key::{PresentedKey, Scope};
use crate::service::access::Caller;

/// Makes an extractor that lets in whoever has a scope; with `(Caller)` it also says who that is.
macro_rules! permission {
    ($(#[$text:meta])* $name:ident(Caller): $scope:ident) => {
        $(#[$text])*
        pub(super) struct $name(pub(super) Caller);
        permission!(@extract $name, $scope, Self);
    };
    ($(#[$text:meta])* $name:ident: $scope:ident) => {
        $(#[$text])*
        pub(super) struct $name;
        permission!(@extract $name, $scope, |_caller| Self);
    };
    (@extract $name:ident, $scope:ident, $with:expr) => {
        impl Taken for $name {
            fn describe(operation: Operation) -> Operation {
                operation.scope(Scope::$scope)
            }
        }

        impl FromRequestParts<SharedApp> for $name {
            type Rejection = Problem;

            async fn from_request_parts(
                parts: &mut Parts,
                app: &SharedApp,
            ) -> Result<Self, Problem> {
                let caller = authorize(parts, app, Scope::$scope).await;
                caller.map(|(caller, _presented)| caller).map($with)
            }
        }
    };
}

permission! {
    /// Whoever asks may make, change and revoke links.
    MayWrite(Caller): LinksWrite
}

permission! {
    /// Whoever asks may look at links.
    MayRead: LinksRead
}

permission! {
    /// Whoever asks may make, change and revoke campaigns.
    MayWriteCampaigns(Caller): CampaignsWrite
}

permission! {
    /// Whoever asks may look at campaigns.
    MayReadCampaigns: CampaignsRead
}

permission! {
    /// Whoever asks may manage API keys.
    MayManageKeys(Caller): KeysAdmin
}

permission! {
    /// Whoever asks may look at visits.
    MayReadStats: StatsRead
}

permission! {
    /// Whoever asks may read the audit log.
    MayAudit: Admin
}

/// Whoever asks may look at visits, and may go on doing so for as long as that holds.
pub(super) struct MayListen(pub(super) Admission);

impl Taken for MayListen {
    fn describe(operation: Operation) -> Operation {
        operation.scope(Scope::StatsRead)
    }
}

/// That somebody was let in.
pub(super) struct Admission {
    presented: Presented,
    caller: Caller,
}

impl FromRequestParts<SharedApp> for MayListen {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, Problem> {
        let (caller, presented) = authorize(parts, app, Scope::StatsRead).await?;
        Ok(Self(Admission { presented, caller }))
    }
}

impl Admission {
    /// Whether the key would be let in now. Takes nothing from its rate limit. When the database
    /// does not answer what is known of the key counts.
    pub(super) async fn still_holds(&self, app: &SharedApp) -> bool {
        let now = app.clock.now();
        if self.presented.until.is_some_and(|until| now >= until) {
            return false;
        }
        match app.access.recognise(&self.presented.key).await {
            Ok(caller) => caller.is_some_and(|caller| caller.key().allows(Scope::StatsRead)),
            Err(_away) => self.caller.key().admits(&self.presented.key, now),
        }
    }
}

/// What a request brings to be let in.
struct Presented {
    key: PresentedKey,
    /// When the session ends that has brought the key.
    until: Option<Timestamp>,
}

/// Finds the key that a request brings, takes a unit from its rate limit, and lets it in if it
/// has a scope. What is refused for its scope has been paid for too: asking in vain costs as much
/// as asking.
async fn authorize(
    parts: &Parts,
    app: &SharedApp,
    scope: Scope,
) -> Result<(Caller, Presented), Problem> {
    let presented = presented(parts, app)?;
    let caller = app.access.recognise(&presented.key).await?;
    let caller = caller.ok_or_else(Problem::unauthorized)?;
    caller.charge(1)?;
    if !caller.key().allows(scope) {
        return Err(Problem::forbidden(scope.name()));
    }
    Ok((caller, presented))
}

/// A key in a header outranks the console's session, and a session is only asked for where no
/// header brings a key.
fn presented(parts: &Parts, app: &App) -> Result<Presented, Problem> {
    if let Some(text) = key_text(&parts.headers) {
        let key = text.and_then(|text| PresentedKey::parse(text.trim()));
        let key = key.ok_or_else(Problem::unauthorized)?;
        return Ok(Presented { key, until: None });
    }
    let session = console::session(parts, app)?.ok_or_else(Problem::unauthorized)?;
    Ok(Presented {
        key: session.presented,
        until: Some(session.until),
    })
}

/// The text of the key in a header; `Some(None)` when it is no text. Another scheme than Bearer is
/// for whoever stands before this service.
fn key_text(headers: &HeaderMap) -> Option<Option<&str>> {
    if let Some(key) = headers.get("x-api-key") {
        return Some(key.to_str().ok());
    }
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(Some(token))
}
