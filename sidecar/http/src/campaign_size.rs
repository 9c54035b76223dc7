//! The number of links in a campaign.

use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::Serialize;

use super::app::SharedApp;
use super::auth::MayReadCampaigns;
use super::campaigns::{CampaignInPath, no_such_campaign};
use super::operation::operations;
use super::operation::parameter::{number, parameters};
use super::problem::Problem;
use super::query::{Number, Query, query};

/// The default and the maximum number up to which links are counted.
const DEFAULT_MOST: u32 = 100_000;
const MOST: u32 = 1_000_000;

/// Number of links of a campaign.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CampaignSize")]
pub(super) struct SizeBody {
    /// Number of links in any state; at most the parameter `most`.
    count: u32,
    /// True if these are all links; false if counting stopped at `most`.
    is_all: bool,
}

parameters! {
    COUNTED: query "most", "Most", "Number of links at which counting stops.",
        |_| number(1, MOST.into(), DEFAULT_MOST.into());
}

query! {
    /// The query of the operation.
    SizeQuery { most: Number<MOST> = COUNTED, }
}

operations! {
    get "/v1/campaigns/{id}/links", "countCampaignLinks", "Counts a campaign's links", count {
        .text("Stops at `most`. `GET /v1/links?campaignId=…` lists the links.")
        .takes(&[COUNTED])
        .answers::<SizeBody>(200, "The number of links.")
        .problems([Problem::query(format!("most must be a number from 1 to {MOST}."))])
    }
}

/// `GET /v1/campaigns/{id}/links`
async fn count(
    State(app): State<SharedApp>,
    _: MayReadCampaigns,
    CampaignInPath(id): CampaignInPath,
    RawQuery(text): RawQuery,
) -> Result<Json<SizeBody>, Problem> {
    let asked = SizeQuery::read(&text.unwrap_or_default())?;
    let most = asked.most.map_or(DEFAULT_MOST, |most| most.0);
    app.campaigns.find(id).await?.ok_or_else(no_such_campaign)?;
    // One extra link shows whether the count is complete.
    let found = app.campaigns.count_links(id, most + 1).await?;
    Ok(Json(SizeBody {
        count: found.min(most),
        is_all: found <= most,
    }))
}
