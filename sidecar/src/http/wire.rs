//! Links as JSON.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::openapi::words;
use crate::core::campaign::Campaign;
use crate::core::link::{Link, PastChange, Second};
use crate::core::ports::LinkTotal;
use crate::core::short_url::Bases;

/// A link as clients see it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Link")]
pub(super) struct LinkBody {
    /// Its code.
    #[schemars(with = "words::Code")]
    short_code: String,
    /// Where people follow it: on an active domain; `null` when nginx names none.
    #[schemars(with = "Option<words::Url>")]
    short_url: Option<String>,
    /// Its own state; it says nothing of its campaign.
    #[schemars(with = "words::LinkState")]
    state: &'static str,
    /// The state of the campaign that the link belongs to. It redirects when both are live.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::CampaignState")]
    campaign_state: Option<&'static str>,
    #[serde(flatten)]
    settings: SettingsBody,
    /// 1 for a new link, one more for each change; also the `ETag`.
    revision: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// The id of the API key that has made it.
    created_by: String,
    /// Whether Redis has confirmed this revision; only where it was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    published: Option<bool>,
    /// How often it was visited; only where that was looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "VisitsBody")]
    visits: Option<VisitsBody>,
}

/// How often a link was visited.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkVisits")]
struct VisitsBody {
    /// By anybody.
    total: u64,
    /// By people.
    human: u64,
    /// When last.
    last_at: Option<Timestamp>,
}

/// What can be said of a link.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkSettings")]
struct SettingsBody {
    /// Where it leads. `None` for what a link of a campaign was once: that has changed with the
    /// campaign.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::Url")]
    long_url: Option<String>,
    /// The campaign that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::CampaignId")]
    campaign_id: Option<String>,
    /// Its values for the names in the campaign's `longUrl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, String>")]
    parameters: Option<BTreeMap<String, String>>,
    #[schemars(with = "words::RedirectStatus")]
    redirect_status: u16,
    /// Whether the visitor's query is appended to the target's.
    forward_query: bool,
    valid_since: Option<Timestamp>,
    valid_until: Option<Timestamp>,
    /// Approximate, and ended by whoever counts visits.
    max_visits: Option<NonZeroU64>,
    tags: Vec<String>,
    external_id: Option<String>,
    note: Option<String>,
}

impl SettingsBody {
    /// Describes a link and what its campaign says, if it belongs to one.
    fn new(link: &Link, campaign: Option<&Campaign>) -> Self {
        let redirect_status = campaign.map_or(link.redirect_status, |it| it.redirect_status);
        let values = link.destination.values();
        let parameters = campaign.zip(values).map(|(campaign, values)| {
            let names = campaign.target.names().iter().cloned();
            names.zip(values.decoded()).collect()
        });
        Self {
            long_url: link.destination.target().map(|it| it.as_str().to_owned()),
            campaign_id: link.destination.campaign().map(|id| id.to_string()),
            parameters,
            redirect_status: redirect_status.code(),
            forward_query: campaign.map_or(link.forward_query, |it| it.forward_query),
            valid_since: link.valid_since.map(Second::moment),
            valid_until: link.valid_until.map(Second::moment),
            max_visits: link.max_visits,
            tags: link.tags.clone(),
            external_id: link.external_id.clone(),
            note: link.note.clone(),
        }
    }
}

impl LinkBody {
    /// Describes a link at a moment, with its campaign if it belongs to one; `bases` are what short
    /// URLs begin with.
    pub(super) fn new(
        link: &Link,
        campaign: Option<&Campaign>,
        now: Timestamp,
        bases: &Bases,
    ) -> Self {
        let mut settings = SettingsBody::new(link, campaign);
        if let (Some(campaign), Some(values)) = (campaign, link.destination.values()) {
            let target = campaign.target.expand(&link.code, values);
            settings.long_url = target.ok().map(|target| target.as_str().to_owned());
        }
        Self {
            short_code: link.code.as_str().to_owned(),
            short_url: bases.of(link).map(|base| format!("{base}/{}", link.code)),
            state: link.state(now).name(),
            campaign_state: campaign.map(|campaign| campaign.state(now).name()),
            settings,
            revision: link.revision,
            created_at: link.created_at,
            updated_at: link.updated_at,
            created_by: link.created_by.clone(),
            published: None,
            visits: None,
        }
    }

    /// Adds how often the link was visited.
    pub(super) fn visited(self, total: Option<&LinkTotal>) -> Self {
        Self {
            visits: Some(VisitsBody {
                total: total.map_or(0, |it| it.visits),
                human: total.map_or(0, |it| it.human),
                last_at: total.map(|it| it.last_at),
            }),
            ..self
        }
    }

    /// Adds whether Redis has confirmed the link.
    pub(super) fn published(self, published: bool) -> Self {
        Self {
            published: Some(published),
            ..self
        }
    }
}

/// A page of a listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkPage")]
pub(super) struct PageBody {
    /// The links: fewer than `limit`, or none, when many had to be looked at to find them.
    pub(super) links: Vec<LinkBody>,
    /// Where the listing goes on; `None` at its end.
    pub(super) next_cursor: Option<String>,
}

/// A page of a link's history.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkHistory")]
pub(super) struct HistoryBody {
    /// The changes.
    pub(super) history: Vec<PastChangeBody>,
    /// Where the history goes on; `None` at its end.
    pub(super) next_cursor: Option<String>,
}

/// A change that a link has been through.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkChange")]
pub(super) struct PastChangeBody {
    changed_at: Timestamp,
    /// The id of the API key that has changed it.
    changed_by: String,
    /// What it was before.
    before: BeforeBody,
}

/// What a link was before a change.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinkBefore")]
struct BeforeBody {
    revision: u64,
    /// Whether it was paused.
    paused: bool,
    #[serde(flatten)]
    settings: SettingsBody,
    updated_at: Timestamp,
}

impl PastChangeBody {
    /// Describes a change of a link, with its campaign if it belongs to one.
    pub(super) fn new(change: &PastChange, campaign: Option<&Campaign>) -> Self {
        let before = &change.before;
        Self {
            changed_at: change.changed_at,
            changed_by: change.changed_by.clone(),
            before: BeforeBody {
                revision: before.revision,
                paused: before.paused_at.is_some(),
                settings: SettingsBody::new(before, campaign),
                updated_at: before.updated_at,
            },
        }
    }
}
