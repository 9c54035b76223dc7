//! `/v1/codespace`

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_core::ports::PoolCounts;
use shortlink_service::codespace::{LengthUsage, Numbers};
use vocabulary::{Check, Verdict};

use super::app::SharedApp;
use super::auth::{MayRead, check_reaches_all};
use super::extract::CodeInPath;
use super::operation::operations;
use super::problem::Problem;
use super::words;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Codespace")]
pub(super) struct CodespaceBody {
    /// Strategy that issues codes by default.
    #[schemars(with = "words::Strategy")]
    strategy: &'static str,
    /// `codes.one_in`: at most one of this many codes of a length has a link.
    one_in: u64,
    /// Usage per length of codes, the shortest first.
    lengths: Vec<LengthBody>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CodespaceLength")]
struct LengthBody {
    /// Number of characters, including the check character.
    length: usize,
    /// True if new codes can have this length.
    is_issued: bool,
    /// Number of possible codes. For long codes, a double cannot represent it exactly.
    codes: u128,
    /// Number of links with a code of this length, in any state.
    links: u64,
    /// Number of these links that were created in the last seven days.
    links_last7_days: u64,
    /// Number of links after which longer codes are issued; `null` for lengths that are not issued.
    capacity: Option<u64>,
    /// Used fraction of the capacity.
    used: Option<f64>,
    /// Time at which the capacity is exhausted at the rate of the last seven days; `null` if never or
    /// unknown.
    full_at: Option<Timestamp>,
    /// Guesses with a correct check character. For lengths that are not issued by default, as if no code were a custom one.
    guess: GuessBody,
    /// Guesses with a random check character.
    blind_guess: GuessBody,
    /// Guesses of a client that knows a code of `sequence` of this length, for the largest number in use; `null` if
    /// there is none.
    neighbour_guess: Option<GuessBody>,
    /// Codes that were generated ahead of time.
    #[serde(with = "PoolBody")]
    pool: PoolCounts,
    /// Numbers that `permuted` counts; `null` if none was used.
    numbers: Option<NumbersBody>,
    /// Part of the capacity that processes have reserved and not used.
    leased: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CodespaceNumbers")]
pub(super) struct NumbersBody {
    /// All numbers.
    all: u64,
    /// Numbers that codes were drawn from.
    used: u64,
    /// Numbers that processes have leased and not used.
    leased: u64,
    /// Numbers that processes have given back. They are used next.
    returned: u64,
    /// Used numbers that have no link and are not used again. Links of the same length with custom codes, or with codes
    /// of other strategies, reduce it.
    burnt: u64,
}

impl NumbersBody {
    pub(super) fn new(numbers: Numbers) -> Self {
        let Numbers {
            all,
            used,
            leased,
            returned,
            burnt,
        } = numbers;
        Self {
            all,
            used,
            leased,
            returned,
            burnt,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CodespaceGuess")]
struct GuessBody {
    chance: f64,
    /// Mean number of guesses until one finds a link; `null` if none does.
    one_in: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(remote = "PoolCounts")]
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
            neighbour_guess: usage.neighbour_chance.map(GuessBody::new),
            pool: usage.pool,
            numbers: usage.numbers.map(NumbersBody::new),
            leased: usage.leased,
        }
    }
}

/// Facts that a code itself contains.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DecodedCode")]
struct DecodedBody {
    short_code: String,
    /// Number of characters, including the check character.
    length: usize,
    /// `valid` or `wrong`; `none` for a code without a check character, because of its length or of `codes.check`.
    #[schemars(with = "words::CheckCharacter")]
    check: &'static str,
    /// Number that the code contains if `sequence` made it; `null` if `sequence` cannot have made it. Codes of other
    /// strategies contain one by chance.
    sequence_number: Option<u64>,
}

operations! {
    get "/v1/codespace/{code}", "decodeCode", "Decodes a code", decode {
        .text("Reads the facts that a code itself contains, whether it has a link or not.")
        .answers::<DecodedBody>(200, "The contents of the code.").with(["Cache-Control"])
    }
    get "/v1/codespace", "getCodespace", "Reports the usage of the code space", usage {
        .answers::<CodespaceBody>(200, "The usage per length of codes.").with(["Cache-Control"])
    }
}

/// `GET /v1/codespace`
async fn usage(
    State(app): State<SharedApp>,
    MayRead(caller): MayRead,
) -> Result<Json<CodespaceBody>, Problem> {
    check_reaches_all(&caller, "the code space is that of all links")?;
    let usage = app.codespace.usage().await?;
    Ok(Json(CodespaceBody {
        strategy: app.codespace.policy.strategy.name(),
        one_in: app.codespace.one_in,
        lengths: usage.iter().map(LengthBody::new).collect(),
    }))
}

/// `GET /v1/codespace/{code}`
async fn decode(
    State(app): State<SharedApp>,
    _: MayRead,
    CodeInPath(code): CodeInPath,
) -> Result<Json<DecodedBody>, Problem> {
    let decoded = app.codespace.decode(&code);
    let has_check = !matches!(app.codespace.rules.check, Check::None);
    Ok(Json(DecodedBody {
        length: code.as_bytes().len(),
        check: match decoded.verdict {
            Verdict::Issued if has_check => "valid",
            Verdict::WrongCheck => "wrong",
            Verdict::Issued | Verdict::Foreign => "none",
        },
        sequence_number: decoded.sequence_number,
        short_code: code.to_string(),
    }))
}
