//! `/v1/codespace`

use axum::Json;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use jiff::Timestamp;
use serde::Serialize;

use super::SharedApp;
use super::auth::MayRead;
use super::problem::Problem;
use crate::domain::service::codespace::LengthUsage;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CodespaceBody {
    strategy: &'static str,
    /// Of how many codes of a length at most one leads somewhere.
    one_in: u64,
    lengths: Vec<LengthBody>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LengthBody {
    length: usize,
    is_issued: bool,
    /// More than fits a double exactly for long codes.
    codes: u128,
    links: u64,
    links_last7_days: u64,
    capacity: Option<u64>,
    /// Links as a part of the capacity.
    used: Option<f64>,
    full_at: Option<Timestamp>,
    guess: GuessBody,
    blind_guess: GuessBody,
    pool: PoolBody,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GuessBody {
    chance: f64,
    /// `None` when no guess hits.
    one_in: Option<f64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolBody {
    unused: u64,
    used: u64,
    void: u64,
}

impl GuessBody {
    fn new(chance: f64) -> Self {
        Self {
            chance,
            one_in: (chance > 0.0).then(|| (1.0 / chance).round()),
        }
    }
}

impl LengthBody {
    fn new(usage: &LengthUsage) -> Self {
        Self {
            length: usage.length,
            is_issued: usage.is_issued,
            codes: usage.codes,
            links: usage.links,
            links_last7_days: usage.lately,
            capacity: usage.capacity,
            used: usage
                .capacity
                .map(|capacity| usage.links as f64 / capacity as f64),
            full_at: usage.full_at,
            guess: GuessBody::new(usage.chance),
            blind_guess: GuessBody::new(usage.blind_chance),
            pool: PoolBody {
                unused: usage.pool.unused,
                used: usage.pool.used,
                void: usage.pool.void,
            },
        }
    }
}

/// `GET /v1/codespace`
pub(super) async fn usage(
    State(app): State<SharedApp>,
    _: MayRead,
) -> Result<impl IntoResponse, Problem> {
    let usage = app.codespace.usage().await?;
    let body = CodespaceBody {
        strategy: app.codespace.policy.strategy.name(),
        one_in: app.codespace.one_in,
        lengths: usage.iter().map(LengthBody::new).collect(),
    };
    Ok(([(CACHE_CONTROL, "no-store")], Json(body)))
}
