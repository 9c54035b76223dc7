//! Authentication and authorization of requests.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use shortlink_core::api_key::{PresentedKey, Scope};
use shortlink_service::access::{Caller, Credentials};
use shortlink_service::sessions::Session;

use super::app::{App, SharedApp};
use super::console;
use super::domains;
use super::operation::{Operation, Taken, check_query};
use super::problem::Problem;
use super::rate_headers::ShownRate;

/// Declares extractors that require a scope, and what of the admitted request they hold.
macro_rules! permissions {
    ($($(#[$about:meta])+ $name:ident $(($Held:ident))?: $scope:ident;)+) => {$(
        $(#[$about])+
        pub(super) struct $name $((pub(super) $Held))?;

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
                let _admission = authorize(parts, app, Scope::$scope).await?;
                check_query(parts)?;
                // For the extractors of what the path names.
                parts.extensions.insert(_admission.caller.clone());
                Ok($name $(($Held::from(_admission)))?)
            }
        }
    )+};
}

permissions! {
    /// The caller may create, change and revoke links.
    MayWrite(Caller): LinksWrite;

    /// The caller may read links.
    MayRead(Caller): LinksRead;

    /// The caller may create, change and revoke campaigns.
    MayWriteCampaigns(Caller): CampaignsWrite;

    /// The caller may read campaigns.
    MayReadCampaigns(Caller): CampaignsRead;

    /// The caller may manage webhooks.
    MayManageWebhooks(Caller): WebhooksAdmin;

    /// The caller may manage API keys.
    MayManageKeys(Caller): KeysAdmin;

    /// The caller may store delivery receipts.
    MayWriteReceipts(Caller): ReceiptsWrite;

    /// The caller may read visits.
    MayReadStats(Caller): StatsRead;

    /// The caller may report conversions.
    MayConvert(Caller): ConversionsWrite;

    /// The caller may read visits; a long response checks again whether that still holds.
    MayListen(Admission): StatsRead;

    /// The caller may read the audit log.
    MayAudit: Admin;
}

/// An admitted request: its credentials and its caller.
pub(super) struct Admission {
    presented: Presented,
    caller: Caller,
}

impl From<Admission> for Caller {
    fn from(admission: Admission) -> Self {
        admission.caller
    }
}

impl Admission {
    fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.caller.key().allows(scope) {
            Ok(())
        } else {
            Err(Problem::lacks(scope))
        }
    }

    /// The caller.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns whether the key would be admitted now, without charging its rate limit. While the
    /// database is unavailable, the last known state of the key decides.
    pub(super) async fn still_holds(&self, app: &SharedApp) -> bool {
        let now = app.clock.now();
        if let Presented::Session(session) = &self.presented
            && (now >= session.until || matches!(app.sessions.is_over(session).await, Ok(true)))
        {
            return false;
        }
        let credentials = self.presented.credentials();
        match app.access.recognise(credentials).await {
            Ok(caller) => caller.is_some_and(|caller| {
                let (key, before) = (caller.key(), self.caller.key());
                // A key that reached all links may reach only its own now.
                key.allows(Scope::StatsRead)
                    && key.policy.own_links_only == before.policy.own_links_only
            }),
            Err(_away) => credentials.are_of(self.caller.key(), now),
        }
    }
}

/// Checks that a request reaches a link or campaign, which was created with the API key `created_by`, or does not exist.
/// One that the caller does not reach is as unknown as one that does not exist.
pub(super) fn check_reach(
    caller: &Caller,
    created_by: Option<&str>,
    unknown: fn() -> Problem,
) -> Result<(), Problem> {
    match created_by {
        Some(created_by) if caller.key().reaches(created_by) => Ok(()),
        _ => Err(unknown()),
    }
}

/// The keys whose links and campaigns a caller reaches; `None` if it reaches all.
pub(super) fn own_ids(caller: &Caller) -> Option<Vec<String>> {
    Some(caller.key().own_ids()?.map(str::to_owned).collect())
}

/// Checks that the caller reaches all links; `instead` is what it may ask for otherwise.
pub(super) fn check_reaches_all(caller: &Caller, instead: &str) -> Result<(), Problem> {
    match caller.key().own_ids() {
        None => Ok(()),
        Some(_) => Err(Problem::forbidden(format!(
            "This API key reaches only its own links (ownLinksOnly): {instead}."
        ))),
    }
}

/// The caller of a request that another extractor has admitted, if it reaches only its own links.
pub(super) fn restricted(parts: &Parts) -> Result<Option<&Caller>, Problem> {
    let caller = parts.extensions.get::<Caller>();
    // Whatever an operation takes, it takes the permission first.
    let caller = caller.ok_or_else(Problem::internal)?;
    Ok(Some(caller).filter(|caller| caller.key().own_ids().is_some()))
}

/// The credentials of a request.
enum Presented {
    /// An API key in a header.
    Key(Credentials),
    /// A session of the console.
    Session(Session),
}

impl Presented {
    fn credentials(&self) -> &Credentials {
        match self {
            Self::Key(credentials) => credentials,
            Self::Session(session) => &session.credentials,
        }
    }
}

/// Authenticates a request, charges its key's rate limit, and checks a scope. A request that lacks
/// the scope is charged as well, so that failed attempts are limited like any others.
async fn authorize(parts: &Parts, app: &SharedApp, scope: Scope) -> Result<Admission, Problem> {
    let admission = authenticate(parts, app).await?;
    let (state, charged) = admission.caller.charge_request();
    if let (Some(state), Some(shown)) = (state, parts.extensions.get::<ShownRate>()) {
        shown.set(state);
    }
    charged?;
    admission.require(scope)?;
    domains::hear(app, &parts.headers);
    Ok(admission)
}

/// Authenticates a request that is asked about before it is read, and checks a scope. Its key's rate limit is charged when
/// the request itself arrives.
pub(super) async fn admit(parts: &Parts, app: &SharedApp, scope: Scope) -> Result<(), Problem> {
    authenticate(parts, app).await?.require(scope)
}

/// Finds the caller of a request.
async fn authenticate(parts: &Parts, app: &App) -> Result<Admission, Problem> {
    let presented = presented(parts, app).await?;
    let caller = app.access.recognise(presented.credentials()).await?;
    let caller = caller.ok_or_else(Problem::unauthorized)?;
    Ok(Admission { presented, caller })
}

/// Finds the key of a request. A key in a header outranks the session of the console, which is read
/// only if no header has a key.
async fn presented(parts: &Parts, app: &App) -> Result<Presented, Problem> {
    if let Some(text) = key_text(&parts.headers) {
        let key = text.and_then(|text| PresentedKey::parse(text.trim()));
        let key = key.ok_or_else(Problem::unauthorized)?;
        return Ok(Presented::Key(Credentials::Key(key)));
    }
    let session = console::session(parts, app).await?;
    session
        .map(Presented::Session)
        .ok_or_else(Problem::unauthorized)
}

/// The text of the key in a header; `Some(None)` if it is not text. Ignores schemes other than
/// Bearer, which are for a proxy in front of this service.
fn key_text(headers: &HeaderMap) -> Option<Option<&str>> {
    if let Some(key) = headers.get("x-api-key") {
        return Some(key.to_str().ok());
    }
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(Some(token))
}
