//! Who asks, and whether they may.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::SharedApp;
use super::problem::Problem;
use crate::domain::api_key::{ApiKey, PresentedKey, Scope};

/// Whoever asks may make, change and revoke links.
pub(super) struct MayWrite {
    /// The key's id.
    pub(super) key_id: String,
}

impl FromRequestParts<SharedApp> for MayWrite {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, Problem> {
        let key = authorize(&parts.headers, app, Scope::LinksWrite).await?;
        Ok(Self { key_id: key.id })
    }
}

/// Whoever asks may look at links.
pub(super) struct MayRead;

impl FromRequestParts<SharedApp> for MayRead {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, Problem> {
        authorize(&parts.headers, app, Scope::LinksRead).await?;
        Ok(Self)
    }
}

/// Finds the key that a request brings. It is looked up every time, so that a revocation counts
/// from the next request on.
async fn authorize(headers: &HeaderMap, app: &SharedApp, scope: Scope) -> Result<ApiKey, Problem> {
    let presented = presented(headers).ok_or_else(Problem::unauthorized)?;
    let key = app.store.find_key(&presented.id).await?;
    let key = key
        .filter(|key| key.admits(&presented))
        .ok_or_else(Problem::unauthorized)?;
    if !key.allows(scope) {
        return Err(Problem::forbidden(scope.name()));
    }
    Ok(key)
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
