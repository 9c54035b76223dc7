//! `/v1/reports`: campaigns side by side, and the links with the most clicks.
//!
//! Reports read counts that are stored with the visits, never the visits: their cost depends on hours and values, not on
//! the number of links. Only ClickHouse reads the clicks of each link of a campaign, after they have changed.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_core::campaign::Campaign;
use shortlink_core::ports::{
    CountQuery, Counted, Dimension, FirstClicks, MOST_CLICKED, QuotaOwner,
};
use shortlink_core::receipt::ReceiptStatus;
use vocabulary::CampaignId;

use super::app::{App, SharedApp};
use super::auth::{MayReadStats, check_reach, check_reaches_all, own_ids};
use super::campaigns::no_such_campaign;
use super::clicks::RecipientBody;
use super::operation::operations;
use super::operation::parameter::{number, of, parameters};
use super::problem::Problem;
use super::query::{Asked, Number, OF_CAMPAIGN, query};
use super::stats::{BY, ClassCounts};
use super::words;

/// The most campaigns of a report, and the number of those that are reported by default.
const MAX_CAMPAIGNS: usize = 50;
const DEFAULT_CAMPAIGNS: u32 = 10;

/// The default and the maximum number of values of a dimension.
const DEFAULT_VALUES: u32 = 10;
const MAX_VALUES: u32 = 100;

/// The default number of links.
const DEFAULT_LINKS: u32 = 10;

parameters! {
    IDS: query "id", "CampaignIds",
        format!(
            "Ids of campaigns, separated by commas: at most {MAX_CAMPAIGNS}. Default: the latest {DEFAULT_CAMPAIGNS} campaigns."
        ),
        |generator| json!({
            "type": "array", "items": of::<words::CampaignId>(generator), "minItems": 1, "maxItems": MAX_CAMPAIGNS,
        });
    VALUES: query "limit", "ReportValues", "Maximum number of values per dimension.",
        |_| number(1, MAX_VALUES.into(), DEFAULT_VALUES.into());
    LINKS: query "limit", "ReportLinks", "Maximum number of links.",
        |_| number(1, MOST_CLICKED.into(), DEFAULT_LINKS.into());
}

query! {
    /// The query of a report on campaigns.
    CampaignsQuery {
        id: Vec<CampaignId> = IDS,
        by: Vec<Dimension> = BY,
        limit: Number<MAX_VALUES> = VALUES,
    }
}

query! {
    /// The query of a report on links.
    LinksQuery {
        campaign_id: CampaignId = OF_CAMPAIGN,
        limit: Number<MOST_CLICKED> = LINKS,
    }
}

operations! {
    get "/v1/reports/campaigns", "reportCampaigns", "Compares campaigns", of_campaigns {
        .text("Covers the whole life of each campaign, in the order of `id`.")
        .answers::<CampaignsBody>(200, "The campaigns.")
        .problems([Problem::not_found("There is no campaign with this id.")])
    }
    get "/v1/reports/links", "reportLinks", "Lists the links with the most clicks", of_links {
        .text(
            "Of a campaign, or without `campaignId` of all links without a campaign. A key that reaches only its own links \
             sees its own among the first 1,000. At most 1,000,000 clicked links are compared, which `isComplete` reports; \
             their clicks are exact."
        )
        .answers::<LinksBody>(200, "The links, the one with the most clicks first.")
        .problems([Problem::not_found("There is no campaign with this id.")])
    }
}

/// Campaigns side by side.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CampaignsReport")]
pub(super) struct CampaignsBody {
    campaigns: Vec<CampaignBody>,
}

/// The figures of a campaign over its whole life.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CampaignReport")]
struct CampaignBody {
    #[schemars(with = "words::CampaignId")]
    id: String,
    name: String,
    #[schemars(with = "words::CampaignState")]
    state: &'static str,
    created_at: Timestamp,
    /// Number of links that were ever created in the campaign.
    issued: u64,
    /// Number of those with a human visit that is not erased.
    clicked: u64,
    /// Clicked links divided by issued ones, 0 to 1; null without links.
    click_rate: Option<f64>,
    /// Time at which the first of the campaign's links that are not deleted was created.
    first_link_at: Option<Timestamp>,
    /// Start of the hour in which a link was clicked first.
    first_click_at: Option<Timestamp>,
    /// Number of hours from `firstClickAt` within which half of the clicked links were clicked for the first time; at
    /// least 1.
    hours_to_half: Option<i64>,
    /// Messages by their last receipt.
    messages: MessageCounts,
    /// Clicked links divided by delivered messages; null without these. Above 1 if receipts are missing.
    delivered_click_rate: Option<f64>,
    /// Messages by network, as receipts name it: those of the networks with the most messages.
    messages_by_network: Vec<NetworkBody>,
    /// Visits of all hours whose counts are stored.
    visits: ClassCounts,
    /// Visits per requested dimension, the value with the most human visits first.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by: BTreeMap<&'static str, Vec<ValueBody>>,
}

/// Numbers of messages by the status of their last delivery receipt.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct MessageCounts {
    sent: u64,
    rejected: u64,
    expired: u64,
    failed: u64,
    delivered: u64,
}

impl MessageCounts {
    fn add(&mut self, status: ReceiptStatus, messages: u64) {
        *match status {
            ReceiptStatus::Sent => &mut self.sent,
            ReceiptStatus::Rejected => &mut self.rejected,
            ReceiptStatus::Expired => &mut self.expired,
            ReceiptStatus::Failed => &mut self.failed,
            ReceiptStatus::Delivered => &mut self.delivered,
        } += messages;
    }

    fn total(self) -> u64 {
        self.sent + self.rejected + self.expired + self.failed + self.delivered
    }
}

/// Messages to recipients of a network.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "NetworkMessages")]
struct NetworkBody {
    /// Carrier as receipts name it; empty if they do not.
    network: String,
    #[serde(flatten)]
    messages: MessageCounts,
    /// Delivered messages whose links were clicked. With visits in ClickHouse, null if more than 200,000 links of the
    /// campaign were clicked.
    clicked: Option<u64>,
    /// Clicked messages divided by delivered ones, 0 to 1; null without these, or without `clicked`.
    click_rate: Option<f64>,
}

/// Visits with the same value of a dimension.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReportValue")]
struct ValueBody {
    /// Value of the dimension; empty if unknown, `(other)` for the values beyond the first 1,000 of a day.
    value: String,
    #[serde(flatten)]
    visits: ClassCounts,
    /// Share of the human visits of the campaign, 0 to 1; null without human visits.
    human_share: Option<f64>,
}

/// `GET /v1/reports/campaigns`
async fn of_campaigns(
    State(app): State<SharedApp>,
    MayReadStats(caller): MayReadStats,
    Asked(asked): Asked<CampaignsQuery>,
) -> Result<Json<CampaignsBody>, Problem> {
    let campaigns = match asked.id {
        Some(ids) if ids.len() > MAX_CAMPAIGNS => {
            let detail = format!(
                "id names {} campaigns, at most {MAX_CAMPAIGNS} are allowed.",
                ids.len()
            );
            return Err(Problem::query(detail));
        }
        Some(ids) => {
            let mut campaigns = Vec::with_capacity(ids.len());
            for id in ids {
                let campaign = app.store.find_campaign(id).await?;
                let created_by = campaign.as_ref().map(|it| &*it.created_by);
                check_reach(&caller, created_by, no_such_campaign)?;
                campaigns.extend(campaign);
            }
            campaigns
        }
        None => {
            let own = own_ids(&caller);
            let latest = app
                .listings
                .list_campaigns(None, DEFAULT_CAMPAIGNS, own.as_deref());
            latest.await?
        }
    };
    let mut dimensions = asked.by.unwrap_or_default();
    dimensions.sort_unstable();
    dimensions.dedup();
    let most = asked.limit.map_or(DEFAULT_VALUES, |limit| limit.0) as usize;
    let owners: Vec<QuotaOwner> = campaigns
        .iter()
        .map(|it| QuotaOwner::Campaign(it.id))
        .collect();
    let issued = app.listings.created_links(&owners).await?;
    let mut reports = Vec::with_capacity(campaigns.len());
    for (campaign, owner) in campaigns.iter().zip(&owners) {
        let issued = issued.get(owner).copied().unwrap_or_default();
        reports.push(report(&app, campaign, issued, &dimensions, most).await?);
    }
    Ok(Json(CampaignsBody { campaigns: reports }))
}

async fn report(
    app: &App,
    campaign: &Campaign,
    issued: u64,
    dimensions: &[Dimension],
    most: usize,
) -> Result<CampaignBody, Problem> {
    let id = campaign.id;
    let hours = app.listings.first_clicks(id).await?;
    let clicked = sum(&hours);
    let query = CountQuery {
        of: Counted::Campaign(id),
        since: Timestamp::UNIX_EPOCH,
        until: Timestamp::MAX,
    };
    let mut visits = ClassCounts::default();
    for count in app.listings.count_visits(&query).await? {
        visits.add(count.class, count.visits);
    }
    let mut by = BTreeMap::new();
    for &dimension in dimensions {
        let mut values: BTreeMap<String, ClassCounts> = BTreeMap::new();
        for count in app.listings.count_by(&query, dimension).await? {
            values
                .entry(count.value)
                .or_default()
                .add(count.class, count.visits);
        }
        let values = values.into_iter().map(|(value, counts)| ValueBody {
            value,
            human_share: (visits.human > 0).then(|| counts.human as f64 / visits.human as f64),
            visits: counts,
        });
        let mut values: Vec<ValueBody> = values.collect();
        values.sort_by_key(|it| std::cmp::Reverse((it.visits.human, it.visits.total)));
        values.truncate(most);
        by.insert(dimension.name(), values);
    }
    let mut messages = MessageCounts::default();
    for (status, count) in app.listings.count_messages(id).await? {
        messages.add(status, count);
    }
    let mut networks: BTreeMap<String, (MessageCounts, Option<u64>)> = BTreeMap::new();
    for count in app.listings.count_receipts(id).await? {
        let none = (MessageCounts::default(), Some(0));
        let (messages, clicked) = networks.entry(count.network).or_insert(none);
        messages.add(count.status, count.messages);
        if count.status == ReceiptStatus::Delivered {
            *clicked = count.clicked;
        }
    }
    let networks = networks.into_iter().map(|(network, (messages, clicked))| {
        let rate = |clicked| clicked as f64 / messages.delivered as f64;
        NetworkBody {
            network,
            messages,
            clicked,
            click_rate: clicked.filter(|_| messages.delivered > 0).map(rate),
        }
    });
    let mut networks: Vec<NetworkBody> = networks.collect();
    networks.sort_by_key(|it| std::cmp::Reverse(it.messages.total()));
    networks.truncate(most);
    Ok(CampaignBody {
        id: id.to_string(),
        name: campaign.name.clone(),
        state: campaign.state(app.clock.now()).name(),
        created_at: campaign.created_at,
        issued,
        clicked,
        click_rate: (issued > 0).then(|| clicked as f64 / issued as f64),
        first_link_at: app.listings.first_link_at(id).await?,
        first_click_at: hours.first().map(|it| it.hour),
        hours_to_half: hours_to_half(&hours),
        delivered_click_rate: (messages.delivered > 0)
            .then(|| clicked as f64 / messages.delivered as f64),
        messages,
        messages_by_network: networks,
        visits,
        by,
    })
}

/// The links with the most clicks.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LinksReport")]
pub(super) struct LinksBody {
    links: Vec<RecipientBody>,
    /// False if there are more than 1,000,000 clicked links; only that many were compared.
    is_complete: bool,
}

/// `GET /v1/reports/links`
async fn of_links(
    State(app): State<SharedApp>,
    MayReadStats(caller): MayReadStats,
    Asked(asked): Asked<LinksQuery>,
) -> Result<Json<LinksBody>, Problem> {
    match asked.campaign_id {
        None => check_reaches_all(&caller, "ask for the links of a campaign")?,
        Some(id) => {
            let campaign = app.store.find_campaign(id).await?;
            let created_by = campaign.as_ref().map(|it| &*it.created_by);
            check_reach(&caller, created_by, no_such_campaign)?;
        }
    }
    let limit = asked.limit.map_or(DEFAULT_LINKS, |limit| limit.0);
    let own = own_ids(&caller);
    let read = own.as_ref().map_or(limit, |_| MOST_CLICKED);
    let mut found = app.listings.most_clicked(asked.campaign_id, read).await?;
    if let Some(own) = own {
        found.links.retain(|it| own.contains(&it.created_by));
        found.links.truncate(limit as usize);
    }
    Ok(Json(LinksBody {
        links: found.links.into_iter().map(RecipientBody::from).collect(),
        is_complete: found.is_complete,
    }))
}

fn sum(hours: &[FirstClicks]) -> u64 {
    hours.iter().map(|it| it.links).sum()
}

/// The number of hours from the first one, within which half of the links were clicked; `None` without any.
fn hours_to_half(hours: &[FirstClicks]) -> Option<i64> {
    let first = hours.first()?.hour;
    let half = sum(hours).div_ceil(2);
    let mut clicked = 0;
    let reached = hours.iter().find(|it| {
        clicked += it.links;
        clicked >= half
    })?;
    let end = reached.hour + SignedDuration::from_hours(1);
    Some(end.duration_since(first).as_hours())
}
