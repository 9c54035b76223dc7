//! Links as JSON.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_api::link::LinkSettingsBody;
use shortlink_api::rules::PlanBody;
use shortlink_core::api_key::{ApiKey, Scope};
use shortlink_core::campaign::Campaign;
use shortlink_core::codes::strategy::CodeOrigin;
use shortlink_core::link::{Link, PastChange};
use shortlink_core::ports::{LinkClicks, LinkTotal};
use shortlink_core::short_url::Bases;
use shortlink_service::new_link::Stored;

use super::words;

/// A link.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Link")]
pub(super) struct LinkBody {
    /// Code of the link.
    #[schemars(with = "words::Code")]
    short_code: String,
    /// Short URL of the link, on an active short domain; `null` if nginx has none.
    #[schemars(with = "Option<words::Url>")]
    short_url: Option<String>,
    /// State of the link itself, without regard to its campaign.
    #[schemars(with = "words::LinkState")]
    state: &'static str,
    /// State of the link's campaign. The link redirects if both states are `live`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::CampaignState")]
    campaign_state: Option<&'static str>,
    #[serde(flatten)]
    members: MembersBody,
    /// Number of the revision: 1 for a new link, one more for each change; also the `ETag`.
    revision: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Id of the API key or person that created the link.
    created_by: String,
    /// Current name of that API key or person; only in answers that show one link.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    created_by_name: Option<String>,
    /// Id of the upload that created the link, if a batch did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::UploadId")]
    upload_id: Option<String>,
    /// Strategy that issued the code; `null` if unknown, as for links of earlier versions.
    #[schemars(with = "Option<words::LinkStrategy>")]
    strategy: Option<&'static str>,
    /// True if Redis has confirmed this revision; only in answers to creations and changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    published: Option<bool>,
    /// Visits of the link; only in answers that count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "VisitsBody")]
    visits: Option<VisitsBody>,
}

/// Visits of a link.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkVisits")]
struct VisitsBody {
    /// Visits of all classes.
    total: u64,
    /// Human visits.
    human: u64,
    /// Visits answered with 410.
    refused: u64,
    /// Time of the last visit.
    last_at: Option<Timestamp>,
    /// Human visits that are not erased.
    clicks: u64,
    /// Time of the first of these.
    first_click_at: Option<Timestamp>,
    /// Time of the last of these.
    last_click_at: Option<Timestamp>,
}

/// The target and the settings of a link.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkMembers")]
struct MembersBody {
    /// Target of the link. Absent from the history of a link of a campaign, whose target has changed with the campaign.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::Url")]
    long_url: Option<String>,
    /// Id of the link's campaign.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::CampaignId")]
    campaign_id: Option<String>,
    /// Values of the link for the parameters of the campaign's target.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, String>")]
    parameters: Option<BTreeMap<String, String>>,
    /// Name of the query parameter with the id of the visit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    click_id: Option<String>,
    #[serde(flatten)]
    plan: PlanBody,
    #[serde(flatten)]
    settings: LinkSettingsBody,
}

impl MembersBody {
    /// Describes a link, with the members that its campaign defines.
    fn new(link: &Link, campaign: Option<&Campaign>) -> Self {
        let mut settings = LinkSettingsBody::of(link);
        if let Some(campaign) = campaign {
            settings.redirect_status = words::RedirectStatus(campaign.redirect_status.code());
            settings.forward_query = campaign.forward_query;
        }
        let values = link.destination.values();
        let parameters = campaign.zip(values).map(|(campaign, values)| {
            let names = campaign.target.names().iter().cloned();
            names.zip(values.decoded()).collect()
        });
        Self {
            long_url: link.destination.target().map(|it| it.as_str().to_owned()),
            campaign_id: link.destination.campaign().map(|id| id.to_string()),
            parameters,
            click_id: link
                .plan
                .as_ref()
                .and_then(|it| it.click_id())
                .map(str::to_owned),
            plan: PlanBody::of(link.plan.as_deref(), str::to_owned),
            settings,
        }
    }
}

impl LinkBody {
    /// Describes a link at a moment, with its campaign if it belongs to one; `bases` are the bases of
    /// short URLs.
    pub(super) fn new(
        link: &Link,
        campaign: Option<&Campaign>,
        now: Timestamp,
        bases: &Bases,
    ) -> Self {
        let mut members = MembersBody::new(link, campaign);
        if let (Some(campaign), Some(values)) = (campaign, link.destination.values()) {
            let target = campaign.target.expand(&link.code, values);
            members.long_url = target.ok().map(|target| target.as_str().to_owned());
        }
        Self {
            short_code: link.code.as_str().to_owned(),
            short_url: short_url(link, bases),
            state: link.state(now).name(),
            campaign_state: campaign.map(|campaign| campaign.state(now).name()),
            members,
            revision: link.revision,
            created_at: link.created_at,
            updated_at: link.updated_at,
            created_by: link.created_by.clone(),
            created_by_name: None,
            upload_id: link.upload.map(|id| id.to_string()),
            strategy: link.strategy.map(CodeOrigin::name),
            published: None,
            visits: None,
        }
    }

    /// Adds the name of the API key or person that created the link.
    pub(super) fn made_by(self, names: &HashMap<String, String>) -> Self {
        Self {
            created_by_name: names.get(&self.created_by).cloned(),
            ..self
        }
    }

    /// Adds how often the link was visited.
    pub(super) fn visited(self, total: Option<&LinkTotal>, clicks: Option<&LinkClicks>) -> Self {
        Self {
            visits: Some(VisitsBody {
                total: total.map_or(0, |it| it.visits),
                human: total.map_or(0, |it| it.human),
                refused: total.map_or(0, |it| it.refused),
                last_at: total.map(|it| it.last_at),
                clicks: clicks.map_or(0, |it| it.visits),
                first_click_at: clicks.map(|it| it.first_at),
                last_click_at: clicks.map(|it| it.last_at),
            }),
            ..self
        }
    }
}

/// A link after it was created or changed: the whole link if the API key has the scope `links:read`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "WrittenLink")]
pub(super) enum WrittenBody {
    Link(Box<LinkBody>),
    Receipt(ReceiptBody),
}

/// A link as an API key without the scope `links:read` sees it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkReceipt")]
pub(super) struct ReceiptBody {
    /// Code of the link.
    #[schemars(with = "words::Code")]
    short_code: String,
    /// Short URL of the link, on an active short domain; `null` if nginx has none.
    #[schemars(with = "Option<words::Url>")]
    short_url: Option<String>,
    /// True if Redis has confirmed this revision.
    published: bool,
}

impl WrittenBody {
    /// Describes a stored link as [`LinkBody::new`] does, as far as an API key may read it.
    pub(super) fn new(
        stored: &Stored,
        key: &ApiKey,
        campaign: Option<&Campaign>,
        now: Timestamp,
        bases: &Bases,
    ) -> Self {
        let link = &stored.link;
        if !key.allows(Scope::LinksRead) {
            return Self::Receipt(ReceiptBody {
                short_code: link.code.as_str().to_owned(),
                short_url: short_url(link, bases),
                published: stored.published,
            });
        }
        let mut body = LinkBody::new(link, campaign, now, bases);
        body.published = Some(stored.published);
        Self::Link(Box::new(body))
    }
}

/// The short URL of a link, if a domain serves it.
pub(super) fn short_url(link: &Link, bases: &Bases) -> Option<String> {
    bases.of(link).map(|base| format!("{base}/{}", link.code))
}

/// A page of a listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkPage")]
pub(super) struct PageBody {
    /// The links. A page can have fewer than `limit` links, or none, although more pages follow.
    pub(super) links: Vec<LinkBody>,
    /// Cursor of the next page; `null` on the last page.
    pub(super) next_cursor: Option<String>,
}

/// A page of a link's history.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkHistory")]
pub(super) struct HistoryBody {
    /// The changes.
    pub(super) history: Vec<PastChangeBody>,
    /// Cursor of the next page; `null` on the last page.
    pub(super) next_cursor: Option<String>,
}

/// A past change of a link.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkChange")]
pub(super) struct PastChangeBody {
    changed_at: Timestamp,
    /// Id of the API key or person that changed the link.
    changed_by: String,
    /// Current name of that API key or person.
    changed_by_name: Option<String>,
    /// The link before the change.
    before: BeforeBody,
}

/// A link before a change.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkBefore")]
struct BeforeBody {
    revision: u64,
    /// True if the link was paused.
    paused: bool,
    #[serde(flatten)]
    members: MembersBody,
    updated_at: Timestamp,
}

impl PastChangeBody {
    /// Describes a change of a link, with its campaign if it belongs to one.
    pub(super) fn new(
        change: &PastChange,
        campaign: Option<&Campaign>,
        names: &HashMap<String, String>,
    ) -> Self {
        let before = &change.before;
        Self {
            changed_at: change.changed_at,
            changed_by: change.changed_by.clone(),
            changed_by_name: names.get(&change.changed_by).cloned(),
            before: BeforeBody {
                revision: before.revision,
                paused: before.paused_at.is_some(),
                members: MembersBody::new(before, campaign),
                updated_at: before.updated_at,
            },
        }
    }
}
