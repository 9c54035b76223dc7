//! `GET /v1/links/{code}/explain`: explains the answer to a code.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_core::ports::Stood;
use shortlink_core::records::Drift;
use shortlink_service::explain::{Explanation, Source};

use super::app::SharedApp;
use super::auth::MayRead;
use super::extract::CodeInPath;
use super::operation::operations;
use super::problem::Problem;

/// Reason for the answer to a code.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplanationBody {
    short_code: String,
    /// Code of the link that answers, if it is another one: text is glued behind it, or it has another case.
    #[serde(skip_serializing_if = "Option::is_none")]
    followed_code: Option<String>,
    checked_at: Timestamp,
    answer: AnswerBody,
    /// The link in SQL.
    database: Option<DatabaseBody>,
    redis: RedisBody,
    /// Comparison of the record in Redis with SQL.
    agreement: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    campaign: Option<CampaignBody>,
}

/// The answer that visitors get.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AnswerBody {
    status: u16,
    rule: &'static str,
    source: &'static str,
    location: Option<String>,
}

/// The link according to SQL.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DatabaseBody {
    state: &'static str,
    revision: u64,
    /// Record that Redis should have.
    record: Option<String>,
    /// True if the link has a change that is not yet published to Redis.
    waits: bool,
}

/// The value of the code's key in Redis.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RedisBody {
    /// Kind of the value: `text`, `nothing`, `other-type`, or `away` if Redis does not respond.
    holds: &'static str,
    record: Option<String>,
}

/// The link's campaign.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ExplainedCampaign")]
struct CampaignBody {
    campaign_id: String,
    name: String,
    state: &'static str,
    /// True if its record in Redis agrees with SQL; `null` if Redis does not respond.
    agrees: Option<bool>,
}

impl ExplanationBody {
    fn new(short_code: String, explanation: &Explanation) -> Self {
        let now = explanation.at;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let answer = &explanation.answer;
        let codes = explanation.link.iter().map(|link| link.code.to_string());
        Self {
            followed_code: codes.into_iter().find(|code| *code != short_code),
            short_code,
            checked_at: now,
            answer: AnswerBody {
                status: answer.status(),
                rule: answer.rule.name(),
                source: match answer.source {
                    Source::Code => "code",
                    Source::Redis => "redis",
                    Source::Database => "database",
                },
                location: answer.location().map(str::to_owned),
            },
            database: explanation.link.as_ref().map(|link| DatabaseBody {
                state: link.state(now).name(),
                revision: link.revision,
                record: explanation.wanted.as_deref().map(text),
                waits: explanation.waits,
            }),
            redis: match &explanation.stood {
                None => RedisBody::holding("away", None),
                Some(Stood::Nothing) => RedisBody::holding("nothing", None),
                Some(Stood::OtherType) => RedisBody::holding("other-type", None),
                Some(Stood::Text(bytes)) => RedisBody::holding("text", Some(text(bytes))),
            },
            agreement: agreement(explanation),
            campaign: explanation.campaign.as_ref().map(|campaign| CampaignBody {
                campaign_id: campaign.id.to_string(),
                name: campaign.name.clone(),
                state: campaign.state(now).name(),
                agrees: explanation.campaign_agrees,
            }),
        }
    }
}

impl RedisBody {
    fn holding(holds: &'static str, record: Option<String>) -> Self {
        Self { holds, record }
    }
}

fn agreement(explanation: &Explanation) -> &'static str {
    match (&explanation.link, &explanation.stood) {
        (_, None) => "unknown",
        (None, Some(Stood::Nothing)) => "same",
        // A cached 404 agrees with an unknown link.
        (None, Some(Stood::Text(text))) if text.starts_with(b"1 404 ") => "same",
        (None, Some(_)) => "stray",
        (Some(_), Some(_)) => match explanation.drift {
            None | Some(Drift::Long | Drift::Needless) => "same",
            Some(Drift::Missing) => "missing",
            Some(Drift::Negative) => "negative",
            Some(Drift::Older) => "older",
            Some(Drift::Newer(_)) => "newer",
            Some(Drift::Different | Drift::OtherType) => "different",
        },
    }
}

operations! {
    get "/v1/links/{code}/explain", "explainCode", "Explains the answer to a code", explain {
        .text(
            "Shows the link in SQL, the record in Redis and the answer that follows from them, also for \
             a code without a link. A text that cannot be a code is not found.",
        )
        .answers::<ExplanationBody>(200, "The explanation.").with(["Cache-Control"])
    }
}

/// `GET /v1/links/{code}/explain`
async fn explain(
    State(app): State<SharedApp>,
    _: MayRead,
    CodeInPath(code): CodeInPath,
) -> Result<Json<ExplanationBody>, Problem> {
    let explanation = app.explainer.explain(&code).await?;
    let body = ExplanationBody::new(code.to_string(), &explanation);
    Ok(Json(body))
}
