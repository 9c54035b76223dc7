//! Who asks, and whether they may.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::SharedApp;
use super::problem::Problem;
use crate::domain::api_key::{PresentedKey, Scope};
use crate::domain::service::access::Caller;

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
        impl FromRequestParts<SharedApp> for $name {
            type Rejection = Problem;

            async fn from_request_parts(
                parts: &mut Parts,
                app: &SharedApp,
            ) -> Result<Self, Problem> {
                let caller = authorize(&parts.headers, app, Scope::$scope).await;
                caller.map($with)
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

/// That somebody was let in.
pub(super) struct Admission {
    presented: PresentedKey,
    caller: Caller,
}

impl FromRequestParts<SharedApp> for MayListen {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, Problem> {
        let caller = authorize(&parts.headers, app, Scope::StatsRead).await?;
        let presented = presented(&parts.headers).ok_or_else(Problem::unauthorized)?;
        Ok(Self(Admission { presented, caller }))
    }
}

impl Admission {
    /// Whether the key would be let in now. Takes nothing from its rate limit. When the database
    /// does not answer what is known of the key counts.
    pub(super) async fn still_holds(&self, app: &SharedApp) -> bool {
        match app.access.recognise(&self.presented).await {
            Ok(caller) => caller.is_some_and(|caller| caller.key().allows(Scope::StatsRead)),
            Err(_away) => self.caller.key().admits(&self.presented, app.clock.now()),
        }
    }
}

/// Finds the key that a request brings, takes a unit from its rate limit, and lets it in if it
/// has a scope. What is refused for its scope has been paid for too: asking in vain costs as much
/// as asking.
async fn authorize(headers: &HeaderMap, app: &SharedApp, scope: Scope) -> Result<Caller, Problem> {
    let presented = presented(headers).ok_or_else(Problem::unauthorized)?;
    let caller = app.access.recognise(&presented).await?;
    let caller = caller.ok_or_else(Problem::unauthorized)?;
    caller.charge(1)?;
    if !caller.key().allows(scope) {
        return Err(Problem::forbidden(scope.name()));
    }
    Ok(caller)
}

fn presented(headers: &HeaderMap) -> Option<PresentedKey> {
    let text = match headers.get("x-api-key") {
        Some(key) => key.to_str().ok()?,
        None => {
            let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
            if !scheme.eq_ignore_ascii_case("bearer") {
                return None;
            }
            token
        }
    };
    PresentedKey::parse(text.trim())
}
