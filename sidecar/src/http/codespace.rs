//! `/v1/codespace`

use axum::Json;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::app::SharedApp;
use super::auth::MayRead;
use super::operation::operations;
use super::problem::Problem;
use super::words;
use crate::service::codespace::LengthUsage;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Codespace")]
pub(super) struct CodespaceBody {
    /// How new codes are come up with.
    #[schemars(with = "words::Strategy")]
    strategy: &'static str,
    /// Of how many codes of a length at most one leads somewhere.
    one_in: u64,
    /// By the number of characters.
    lengths: Vec<LengthBody>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CodespaceLength")]
struct LengthBody {
    /// How many characters the codes have.
    length: usize,
    /// Whether new codes have so many.
    is_issued: bool,
    /// How many there can be. More than fits a double exactly for long codes.
    codes: u128,
    /// How many lead somewhere, or did.
    links: u64,
    /// How many of them are of the last seven days.
    links_last7_days: u64,
    /// How many links there may be.
    capacity: Option<u64>,
    /// Links as a part of the capacity.
    used: Option<f64>,
    /// When they will be used up, at the speed of the last seven days.
    full_at: Option<Timestamp>,
    /// By who knows the check character.
    guess: GuessBody,
    /// By who does not.
    blind_guess: GuessBody,
    /// Codes that were made ahead.
    pool: PoolBody,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CodespaceGuess")]
struct GuessBody {
    chance: f64,
    /// `null` when no guess hits.
    one_in: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CodespacePool")]
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

operations! {
    get "/v1/codespace", "getCodespace", "Tells how full codes are", usage {
        .answers::<CodespaceBody>(200, "By the number of characters.").with(["Cache-Control"])
    }
}

/// `GET /v1/codespace`
async fn usage(State(app): State<SharedApp>, _: MayRead) -> Result<impl IntoResponse, Problem> {
    let usage = app.codespace.usage().await?;
    let body = CodespaceBody {
        strategy: app.codespace.policy.strategy.name(),
        one_in: app.codespace.one_in,
        lengths: usage.iter().map(LengthBody::new).collect(),
    };
    Ok(([(CACHE_CONTROL, "no-store")], Json(body)))
}
