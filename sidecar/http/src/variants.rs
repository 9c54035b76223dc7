//! `…/variants` and `…/winner`: the results of an A/B test, and its end.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use shortlink_api::fields::Fields;
use shortlink_api::members::{Members, Usage};
use shortlink_api::variants::{Winner, WinnerMembers};
use shortlink_core::ports::Counted;
use shortlink_core::variants::{Proportion, VariantResult, leader};

use super::app::SharedApp;
use super::auth::{MayReadStats, MayWrite, MayWriteCampaigns};
use super::campaigns::{self, CampaignInPath, no_such_campaign};
use super::conversions::{ValueBody, values};
use super::extract::{CODE, CodeInPath, Domains, JsonObject, no_such_link};
use super::links;
use super::operation::{Operation, operations};
use super::precondition::IfMatch;
use super::problem::Problem;

operations! {
    get "/v1/links/{code}/variants", "getLinkVariants", "Compares the variants of a link", results_of_link {
        .takes(&[CODE])
        .text("A rate is the number of conversions divided by that of clicks, which are human visits.")
        .answers::<VariantsBody>(200, "The variants.")
    }
    get "/v1/campaigns/{id}/variants", "getCampaignVariants", "Compares the variants of a campaign", results_of_campaign {
        .takes(&[campaigns::ID])
        .text("A rate is the number of links with conversions divided by that of clicked links. Deleted links are not counted.")
        .answers::<VariantsBody>(200, "The variants.")
    }
    post "/v1/links/{code}/winner", "endLinkTest", "Ends an A/B test of a link", of_link {
        .also(links::changes).also(ends).takes(&[CODE])
    }
    post "/v1/campaigns/{id}/winner", "endCampaignTest", "Ends an A/B test of a campaign", of_campaign {
        .also(campaigns::changes).also(ends).takes(&[campaigns::ID])
    }
}

/// Describes what both ends share.
fn ends(operation: Operation) -> Operation {
    operation
        .text(
            "In one change, the target of the variant becomes `longUrl`, and the rules that are \
             shares of all visitors are removed. Idempotent: if there are no such rules any more, \
             the answer is the same.",
        )
        .takes_json::<Winner, 1>([("variant", json!({ "variant": "b" }))])
}

/// Reads the name of the winner.
fn winner(body: Map<String, Value>) -> Result<String, Problem> {
    let mut fields = Fields::new(body);
    let given = WinnerMembers::read(&mut fields, Usage::New).variant;
    let variant = fields.required("variant", given);
    fields.finish()?;
    variant.ok_or_else(Problem::internal)
}

/// `POST /v1/links/{code}/winner`
async fn of_link(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    CodeInPath(code): CodeInPath,
    IfMatch(expected): IfMatch,
    JsonObject(body): JsonObject,
) -> Result<Response<Body>, Problem> {
    // An unknown link has no faults of its request.
    app.store.find_link(&code).await?.ok_or_else(no_such_link)?;
    let variant = winner(body)?;
    let editor = links::edited_by(&caller, expected);
    let ended = app.links.win(&code, variant, editor).await;
    links::answer_found(ended, &app, &caller, &domains).await
}

/// `POST /v1/campaigns/{id}/winner`
async fn of_campaign(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    CampaignInPath(id): CampaignInPath,
    JsonObject(body): JsonObject,
) -> Result<Json<campaigns::WrittenBody>, Problem> {
    let found = app.store.find_campaign(id).await?;
    found.ok_or_else(no_such_campaign)?;
    let variant = winner(body)?;
    let ended = app.campaigns.win(id, variant, &caller.key().id).await;
    campaigns::answer_found(ended, &caller, &app)
}

/// The variants of an A/B test.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "VariantsReport")]
struct VariantsBody {
    /// The variants with human visits, by name.
    variants: Vec<VariantBody>,
    /// Variant with the highest rate; null without two rates, or if two are equal.
    leader: Option<String>,
    /// True if the interval of the leader is above that of the variant with the next rate, so that chance hardly explains its
    /// lead.
    decided: bool,
}

/// The figures of a variant.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "VariantReport")]
struct VariantBody {
    /// Name; empty for all other visits while there were variants, which followed `longUrl` or another rule.
    variant: String,
    /// Time of the first human visit.
    first_click_at: Timestamp,
    /// Time of the last one.
    last_click_at: Timestamp,
    /// Number of human visits.
    clicks: u64,
    /// Share of these among the visits of all variants, 0 to 1.
    share: f64,
    /// Number of clicked links.
    clicked: u64,
    /// Number of these with conversions.
    converted: u64,
    /// Number of conversions that count for the variant.
    conversions: u64,
    /// Conversions with a value, by currency.
    values: Vec<ValueBody>,
    /// Conversions divided by clicks; for a campaign, converted links divided by clicked ones: 0 to 1.
    conversion_rate: f64,
    /// Bounds of the rate with a confidence of 95% (Wilson score interval).
    interval: IntervalBody,
}

/// The bounds of a rate.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RateInterval")]
struct IntervalBody {
    low: f64,
    high: f64,
}

impl VariantsBody {
    /// Compares results by a rate.
    fn new(
        results: Vec<VariantResult>,
        rate: impl Fn(&VariantResult) -> Option<Proportion>,
    ) -> Self {
        let rates: Vec<Option<Proportion>> = results.iter().map(&rate).collect();
        let first = leader(&rates);
        let name = first.map(|(place, _)| results[place].variant.clone());
        let all: u64 = results.iter().map(|it| it.visits).sum();
        let variants = results.into_iter().zip(rates).filter_map(|(it, rate)| {
            let Proportion { rate, low, high } = rate?;
            Some(VariantBody {
                variant: it.variant,
                first_click_at: it.first_at,
                last_click_at: it.last_at,
                clicks: it.visits,
                share: it.visits as f64 / all as f64,
                clicked: it.links,
                converted: it.converted,
                conversions: it.conversions,
                values: values(&it.values),
                conversion_rate: rate,
                interval: IntervalBody { low, high },
            })
        });
        Self {
            variants: variants.collect(),
            leader: name,
            decided: first.is_some_and(|(_, is_apart)| is_apart),
        }
    }
}

/// `GET /v1/links/{code}/variants`
async fn results_of_link(
    State(app): State<SharedApp>,
    _: MayReadStats,
    CodeInPath(code): CodeInPath,
) -> Result<Json<VariantsBody>, Problem> {
    if app.store.find_link(&code).await?.is_none() {
        return Err(no_such_link());
    }
    let results = app.listings.variant_results(Counted::Link(code)).await?;
    let rate = |it: &VariantResult| Proportion::wilson(it.conversions, it.visits);
    Ok(Json(VariantsBody::new(results, rate)))
}

/// `GET /v1/campaigns/{id}/variants`
async fn results_of_campaign(
    State(app): State<SharedApp>,
    _: MayReadStats,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<VariantsBody>, Problem> {
    if app.store.find_campaign(id).await?.is_none() {
        return Err(no_such_campaign());
    }
    let results = app.listings.variant_results(Counted::Campaign(id)).await?;
    let rate = |it: &VariantResult| Proportion::wilson(it.converted, it.links);
    Ok(Json(VariantsBody::new(results, rate)))
}
