//! `GET /v1/links/{code}/explain`: explains the answer to a code.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_api::rules::{RuleBody, is_place};
use shortlink_core::plan::INSTEAD_NAMES;
use shortlink_core::ports::Stood;
use shortlink_core::query::with_forwarded;
use shortlink_core::records::Drift;
use shortlink_service::explain::{AssumedVisitor, Explanation, Outcome, Source, TriedRule};
use vocabulary::Instead;
use vocabulary::judge::Answer;
use vocabulary::language::preferred;
use vocabulary::plan::{Device, Visitor};

use super::app::SharedApp;
use super::auth::MayRead;
use super::extract::CodeInPath;
use super::operation::operations;
use super::operation::parameter::{moment, parameters, string};
use super::problem::Problem;
use super::query::{Asked, query, values};

parameters! {
    USER_AGENT: query "userAgent", "UserAgent", "The visitor's `User-Agent`. Default: none.", string;
    LANGUAGE: query "language", "AcceptLanguage",
        "The visitor's `Accept-Language`, such as `de-AT,en;q=0.5`. Default: none.", string;
    COUNTRY: query "country", "Country",
        "The visitor's country such as `DE`, or its region such as `US-CA`. Default: unknown.",
        |_| json!({ "type": "string", "pattern": "^[A-Z]{2}(-[0-9A-Za-z]{1,3})?$" });
    ADDRESS: query "address", "Address",
        "The visitor's IP address: with the user agent it decides the share of `percent`. Default: none.",
        string;
    QUERY: query "query", "VisitorQuery", "The visitor's query, without the question mark. Default: none.",
        string;
    TIME: query "time", "Time",
        "Time of the visit, for which the link in SQL decides as it is now. Default: now.", moment;
}

query! {
    /// The assumed visitor.
    VisitorQuery {
        user_agent: String = USER_AGENT,
        language: String = LANGUAGE,
        country: Place = COUNTRY,
        address: String = ADDRESS,
        query: String = QUERY,
        time: Timestamp = TIME,
    }
}

/// A country, or a region with its country.
#[derive(Default)]
pub(super) struct Place(String);

values! {
    Place: |text| is_place(text).then(|| Self(text.to_owned())), "a country such as DE, or a region such as US-CA, in capitals";
}

/// Reason for the answer to a code.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplanationBody {
    short_code: String,
    /// Code of the link that answers, if it differs from the requested one: by text after it, or by its case.
    #[serde(skip_serializing_if = "Option::is_none")]
    followed_code: Option<String>,
    /// Time for which the answer holds.
    checked_at: Timestamp,
    answer: AnswerBody,
    visitor: VisitorBody,
    /// The rules of the link or its campaign, in order; none if the answer does not depend on the visitor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<TriedBody>,
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
    /// Target for the visitor.
    location: Option<String>,
    /// Member of the link, or of its campaign if it has one, with that target: `/longUrl`, `/rules/0/longUrl`,
    /// `/expiredTarget`, `/pausedTarget` or `/notYetTarget`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pointer: Option<String>,
    /// Status of the answer instead of which the visitor is redirected: 410 or 404.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16")]
    instead_of: Option<u16>,
    /// Name of the rule that is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    variant: Option<String>,
    /// True if the visitor is a preview agent: it gets the page of `preview`, which leads to `location`.
    preview: bool,
}

/// The assumed visitor, as rules see it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AssumedVisitor")]
struct VisitorBody {
    /// Kind of the device, by the user agent.
    device: &'static str,
    /// Language that the visitor prefers most.
    language: Option<String>,
    /// Country, or region with its country.
    country: Option<String>,
}

/// A rule and its effect on the visitor.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TriedRule")]
struct TriedBody {
    /// `followed`; `unmet`, if the visitor does not meet a condition; `unreached`, if an earlier rule is followed.
    outcome: &'static str,
    /// Member with the first condition that the visitor does not meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    unmet: Option<&'static str>,
    #[serde(flatten)]
    rule: RuleBody,
}

impl TriedBody {
    fn new(tried: &TriedRule) -> Self {
        let (outcome, unmet) = match tried.outcome {
            Outcome::Followed => ("followed", None),
            Outcome::Unmet(member) => ("unmet", Some(member)),
            Outcome::Unreached => ("unreached", None),
        };
        Self {
            outcome,
            unmet,
            rule: RuleBody::of(&tried.rule, str::to_owned),
        }
    }
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
    fn new(short_code: String, explanation: &Explanation, visitor: &AssumedVisitor) -> Self {
        let now = explanation.at;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let answer = &explanation.answer;
        let codes = explanation.link.iter().map(|link| link.code.to_string());
        Self {
            followed_code: codes.into_iter().find(|code| *code != short_code),
            short_code,
            checked_at: now,
            answer: AnswerBody::new(explanation, visitor),
            visitor: VisitorBody {
                device: Device::of(visitor.user_agent()).name(),
                language: preferred(visitor.accept_language()).map(text),
                country: Some(visitor.place.clone()).filter(|place| !place.is_empty()),
            },
            rules: answer.tried.iter().map(TriedBody::new).collect(),
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

impl AnswerBody {
    fn new(explanation: &Explanation, visitor: &AssumedVisitor) -> Self {
        let answer = &explanation.answer;
        let forwarded = match &answer.given {
            Answer::Redirect {
                forwards_query: true,
                target,
                ..
            } => with_forwarded(target, visitor.query()),
            _ => None,
        };
        let location = forwarded.or_else(|| answer.location().map(str::to_owned));
        let mut tried = answer.tried.iter();
        let followed = tried.position(|tried| tried.outcome == Outcome::Followed);
        let pointer = location.as_ref().map(|_| match (answer.instead, followed) {
            (Some(instead), _) => {
                let mut names = INSTEAD_NAMES.into_iter().zip(Instead::ALL);
                let name = names.find(|(_, of)| *of == instead);
                format!("/{}", name.map_or("", |(name, _)| name))
            }
            (None, Some(place)) => format!("/rules/{place}/longUrl"),
            (None, None) => "/longUrl".to_owned(),
        });
        let followed = followed.map(|place| &answer.tried[place].rule.conditions);
        Self {
            status: answer.status(),
            rule: answer.rule.name(),
            source: match answer.source {
                Source::Code => "code",
                Source::Redis => "redis",
                Source::Database => "database",
            },
            location,
            pointer,
            instead_of: answer.instead.map(|instead| match instead {
                Instead::NotYet => 404,
                Instead::Expired | Instead::Paused => 410,
            }),
            variant: followed.and_then(|it| it.variant.clone()),
            preview: answer.is_preview,
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
            "Shows the link in SQL, the record in Redis, the answer that follows from them, and \
             the rule that the visitor of the query follows, also for a code without a link. A \
             text that cannot be a code is answered 404.",
        )
        .answers::<ExplanationBody>(200, "The explanation.").with(["Cache-Control"])
    }
}

/// `GET /v1/links/{code}/explain`
async fn explain(
    State(app): State<SharedApp>,
    _: MayRead,
    CodeInPath(code): CodeInPath,
    Asked(asked): Asked<VisitorQuery>,
) -> Result<Json<ExplanationBody>, Problem> {
    let visitor = AssumedVisitor {
        user_agent: asked.user_agent.unwrap_or_default(),
        accept_language: asked.language.unwrap_or_default(),
        place: asked.country.unwrap_or_default().0,
        query: asked.query.unwrap_or_default(),
        address: asked.address.unwrap_or_default(),
    };
    let explanation = app.explainer.explain(&code, &visitor, asked.time).await?;
    let body = ExplanationBody::new(code.to_string(), &explanation, &visitor);
    Ok(Json(body))
}
