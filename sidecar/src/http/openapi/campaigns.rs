//! What can be done with campaigns.

use serde_json::json;

use super::operation::Operation;
use crate::api::campaign::{CampaignBody, CampaignPatch, NewCampaign};
use crate::core::api_key::Scope;
use crate::http::campaign_size::{SizeBody, refused};
use crate::http::campaigns::{PageBody, no_such_campaign};
use crate::service::campaigns::CampaignError;

/// What can be asked of a campaign that was made.
const OF_CAMPAIGN: [&str; 7] = [
    "getCampaign",
    "changeCampaign",
    "pauseCampaign",
    "resumeCampaign",
    "revokeCampaign",
    "getCampaignStats",
    "countCampaignLinks",
];

pub(super) fn operations() -> Vec<Operation> {
    let new = |method, path, id, summary| Operation::new("campaigns", method, path, id, summary);
    let change = |operation: Operation| {
        operation
            .scope(Scope::CampaignsWrite)
            .takes(["CampaignId"])
            .answers::<CampaignBody>(200, "The campaign as it is now.")
            .problems([no_such_campaign(), CampaignError::Revoked.into()])
    };
    vec![
        new(
            "get",
            "/v1/campaigns",
            "listCampaigns",
            "Lists campaigns, the latest first",
        )
        .scope(Scope::CampaignsRead)
        .query(["Limit", "Cursor"])
        .answers::<PageBody>(200, "A page."),
        new(
            "post",
            "/v1/campaigns",
            "createCampaign",
            "Makes a campaign",
        )
        .scope(Scope::CampaignsWrite)
        .takes(["Domains", "Base"])
        .takes_json::<NewCampaign, 1>([(
            "campaign",
            json!({
                "name": "Spring",
                "longUrl": "https://shop.example.com/p?m={member}&c={code}",
                "defaults": { "tags": ["spring"] },
            }),
        )])
        .answers::<CampaignBody>(201, "The campaign.")
        .with(["Location"])
        .leads_to("id", "id", OF_CAMPAIGN),
        new(
            "get",
            "/v1/campaigns/{id}",
            "getCampaign",
            "Shows a campaign",
        )
        .scope(Scope::CampaignsRead)
        .takes(["CampaignId"])
        .answers::<CampaignBody>(200, "The campaign.")
        .problems([no_such_campaign()]),
        new(
            "get",
            "/v1/campaigns/{id}/links",
            "countCampaignLinks",
            "Counts a campaign's links",
        )
        .text("As far as `most`. `GET /v1/links?campaignId=…` lists them.")
        .scope(Scope::CampaignsRead)
        .takes(["CampaignId", "Most"])
        .answers::<SizeBody>(200, "How many there are.")
        .problems([no_such_campaign(), refused()]),
        change(new(
            "patch",
            "/v1/campaigns/{id}",
            "changeCampaign",
            "Changes a campaign",
        ))
        .text("And with it where all its links lead, at once.")
        .takes(["Domains", "Base"])
        .takes_json::<CampaignPatch, 1>([(
            "target",
            json!({ "longUrl": "https://shop.example.com/summer?m={member}" }),
        )]),
        change(new(
            "delete",
            "/v1/campaigns/{id}",
            "revokeCampaign",
            "Revokes a campaign",
        ))
        .text("All its links are answered 410 from then on. It is still there to be looked at."),
        change(new(
            "post",
            "/v1/campaigns/{id}/pause",
            "pauseCampaign",
            "Pauses a campaign",
        ))
        .text("All its links are answered 410 until it is resumed. Again changes nothing."),
        change(new(
            "post",
            "/v1/campaigns/{id}/resume",
            "resumeCampaign",
            "Resumes a campaign",
        ))
        .text("Again changes nothing."),
    ]
}
