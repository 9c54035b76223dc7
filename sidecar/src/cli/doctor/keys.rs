//! The API keys.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shortlink_core::api_key::{ApiKey, KeyState, Scope};
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_service::keys::Keys;
use shortlink_store::Store;

use super::super::keys::all;
use super::Finding;
use crate::random;

/// Examines all API keys; warns of those that expire within a number of days.
pub(super) async fn examine(store: &Arc<Store>, days: u16) -> anyhow::Result<Vec<Finding>> {
    let keys = Keys::new(
        Arc::clone(store),
        Arc::new(SystemClock),
        random::generator()?,
        None,
    );
    Ok(match all(&keys, false).await {
        Ok(keys) => judge(&keys, SystemClock.now(), days),
        Err(error) => {
            let advice = "see the check database first";
            vec![Finding::fail("keys", format!("{error:#}"), advice)]
        }
    })
}

fn judge(keys: &[ApiKey], now: Timestamp, days: u16) -> Vec<Finding> {
    let live: Vec<&ApiKey> = keys
        .iter()
        .filter(|key| key.state(now) == KeyState::Live)
        .collect();
    let mut findings = Vec::new();
    let soon = now + SignedDuration::from_hours(24 * i64::from(days));
    let ending: Vec<String> = live
        .iter()
        // A rotated key has a successor in use.
        .filter(|key| key.successor_id.is_none())
        .filter_map(|key| {
            let expires_at = key.expires_at.filter(|it| *it <= soon)?;
            Some(format!("{} ({:?}) at {expires_at}", key.id, key.name))
        })
        .collect();
    findings.push(if live.is_empty() {
        let advice = "shortlink keys create --name NAME --scope SCOPE …";
        Finding::fail(
            "keys",
            "no API key is live: every request to the API is refused",
            advice,
        )
    } else if ending.is_empty() {
        Finding::ok("keys", format!("{} live", live.len()))
    } else {
        let found = format!("expire within {days} days: {}", ending.join(", "));
        let advice = "shortlink keys rotate ID --overlap-seconds 86400, and hand out the new ones";
        Finding::warn("keys", found, advice)
    });
    let administers = |key: &&ApiKey| {
        let mut scopes = key.scopes.iter();
        scopes.any(|scope| matches!(scope, Scope::Admin | Scope::KeysAdmin))
    };
    let administrators = live.iter().copied().filter(administers).count();
    findings.push(if administrators == 0 {
        let found = "no live key may manage keys or read the audit log over the API";
        let advice = "shortlink keys create --name operators --scope admin, if you need one";
        Finding::warn("keys-admin", found, advice)
    } else {
        Finding::ok("keys-admin", format!("{administrators} may manage keys"))
    });
    findings
}
