//! `/v1/conversions`, and the conversions of links and campaigns.

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_api::conversion::NewConversion;
use shortlink_core::conversion::{ConversionTotals, ValueTotal};

use super::app::SharedApp;
use super::auth::{MayConvert, MayReadStats};
use super::batch::conversions::{self as rows, ConversionResult};
use super::campaigns::{self, CampaignInPath, no_such_campaign};
use super::extract::{CODE, CodeInPath, no_such_link};
use super::operation::{json_of, operations};
use super::problem::Problem;

operations! {
    post "/v1/conversions", "createConversions", "Reports conversions of links", report {
        .text(
            "Each row is a conversion of a link, which `clickId`, `externalId` or `shortCode` names. A repetition with the same \
             `conversionId` for the same link is not counted again and has the status 200; with another value it has the \
             status 409. With `refunded`, the row is a refund of a conversion that was reported before. Rows, results and \
             limits are those of `POST /v1/links/batch`. A row that names no link, or whose time \
             is in the future, is refused and can be repeated."
        )
        .takes(&rows::PARAMETERS)
        .takes_rows::<NewConversion>(json!([{
            "conversionId": "order-1001", "externalId": "m-18", "value": "49.90", "currency": "EUR",
        }]))
        .answer(200, "One result per row.", [json_of::<Vec<ConversionResult>>(), rows::LINES])
        .problems(rows::problems())
        .problems([no_such_campaign()])
    }
    get "/v1/campaigns/{id}/conversions", "getCampaignConversions", "Counts the conversions of a campaign", of_campaign {
        .takes(&[campaigns::ID])
        .text("The conversions of all links of the campaign, also of links that were deleted, without erased and refunded ones.")
        .answers::<CampaignBody>(200, "The counts.")
    }
    get "/v1/links/{code}/conversions", "getLinkConversions", "Counts the conversions of a link", of_link {
        .takes(&[CODE])
        .answers::<LinkBody>(200, "The counts.")
    }
}

/// The conversions of a campaign.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CampaignConversions")]
struct CampaignBody {
    /// Number of links with a conversion.
    converted: u64,
    /// Number of links that were clicked.
    clicked: u64,
    /// Converted links divided by clicked ones; null without clicked links. Above 1 if links without a click were
    /// converted.
    conversion_rate: Option<f64>,
    #[serde(flatten)]
    totals: LinkBody,
}

/// The conversions of a link.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Conversions")]
struct LinkBody {
    /// Number of conversions.
    conversions: u64,
    /// Conversions with a value, by currency.
    values: Vec<ValueBody>,
}

/// The conversions with a currency.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ConversionValue")]
pub(super) struct ValueBody {
    /// Three letters of ISO 4217.
    currency: String,
    /// Number of conversions with a value in this currency.
    conversions: u64,
    /// Sum of the values, as a decimal number.
    #[schemars(extend("examples" = ["1249.5"]))]
    value: String,
}

impl From<&ConversionTotals> for LinkBody {
    fn from(totals: &ConversionTotals) -> Self {
        Self {
            conversions: totals.conversions,
            values: values(&totals.values),
        }
    }
}

/// The values of conversions by currency.
pub(super) fn values(totals: &[ValueTotal]) -> Vec<ValueBody> {
    let values = totals.iter().map(|it| ValueBody {
        currency: it.currency.as_str().to_owned(),
        conversions: it.conversions,
        value: it.value.to_string(),
    });
    values.collect()
}

/// `POST /v1/conversions`
async fn report(
    State(app): State<SharedApp>,
    MayConvert(caller): MayConvert,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    rows::report(app, caller, &headers, query, body).await
}

/// `GET /v1/campaigns/{id}/conversions`
async fn of_campaign(
    State(app): State<SharedApp>,
    _: MayReadStats,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<CampaignBody>, Problem> {
    if app.store.find_campaign(id).await?.is_none() {
        return Err(no_such_campaign());
    }
    let totals = app.listings.campaign_conversions(id).await?;
    let hours = app.listings.first_clicks(id).await?;
    let clicked: u64 = hours.iter().map(|it| it.links).sum();
    let rate = totals.links as f64 / clicked as f64;
    Ok(Json(CampaignBody {
        converted: totals.links,
        clicked,
        conversion_rate: (clicked > 0).then_some(rate),
        totals: LinkBody::from(&totals),
    }))
}

/// `GET /v1/links/{code}/conversions`
async fn of_link(
    State(app): State<SharedApp>,
    _: MayReadStats,
    CodeInPath(code): CodeInPath,
) -> Result<Json<LinkBody>, Problem> {
    if app.store.find_link(&code).await?.is_none() {
        return Err(no_such_link());
    }
    let totals = app.listings.link_conversions(&code).await?;
    Ok(Json(LinkBody::from(&totals)))
}
