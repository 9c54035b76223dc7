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
use super::query;

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

operations! {
    get "/v1/campaigns/{id}/links", "countCampaignLinks", "Counts a campaign's links", count {
        .text("Stops at `most`. `GET /v1/links?campaignId=…` lists the links.")
        .takes(&[COUNTED])
        .answers::<SizeBody>(200, "The number of links.").problems([refused()])
    }
}

/// `GET /v1/campaigns/{id}/links`
async fn count(
    State(app): State<SharedApp>,
    _: MayReadCampaigns,
    CampaignInPath(id): CampaignInPath,
    RawQuery(text): RawQuery,
) -> Result<Json<SizeBody>, Problem> {
    let mut most = DEFAULT_MOST;
    for (name, value) in url::form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
        if name != "most" {
            return Err(query::only(&[COUNTED]));
        }
        let number = value.parse().ok();
        let number = number.filter(|number| (1..=MOST).contains(number));
        most = number.ok_or_else(refused)?;
    }
    app.campaigns.find(id).await?.ok_or_else(no_such_campaign)?;
    // One extra link shows whether the count is complete.
    let found = app.campaigns.count_links(id, most + 1).await?;
    Ok(Json(SizeBody {
        count: found.min(most),
        is_all: found <= most,
    }))
}

/// 400: the limit is invalid.
fn refused() -> Problem {
    Problem::query(format!("most must be a number from 1 to {MOST}."))
}
