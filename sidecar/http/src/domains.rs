//! `GET /v1/domains`: the short domains as every nginx has them, and how often they are visited.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_core::announcement::{AnnouncedDomain, Heard};
use shortlink_service::domains::{DomainView, FallAt, Overview};
use vocabulary::domains::{BoundTo, DomainState};

use super::app::{App, SharedApp};
use super::auth::{MayReadStats, check_reaches_all};
use super::extract::header;
use super::operation::operations;
use super::problem::Problem;
use super::words;

/// Records the short domains that nginx announces with an authorised request.
pub(super) fn hear(app: &App, headers: &HeaderMap) {
    let text = |name| header(headers, name);
    let node = text("x-shortlink-node").filter(|node| !node.is_empty());
    if let (Some(node), Some(states)) = (node, text("x-shortlink-states")) {
        let bases = text("x-shortlink-base").unwrap_or_default();
        let names = text("x-shortlink-domains").unwrap_or_default();
        let brands = text("x-shortlink-brands").unwrap_or_default();
        app.domains.hear(node, bases, names, states, brands);
    }
}

/// The short domains.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Domains")]
pub(super) struct DomainsBody {
    /// Start of the first minute in `visits` and `minutes`: an hour before the current minute.
    since: Timestamp,
    /// True if visits are stored late or Redis does not respond. Then no domain is reported as
    /// suspected blocked.
    visits_are_late: bool,
    /// Each nginx whose internal server has forwarded an authorised request in the last day, 64 at most.
    nodes: Vec<NodeBody>,
    /// Short domains, the suspected blocked ones first.
    domains: Vec<DomainBody>,
}

/// An nginx.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DomainNode")]
struct NodeBody {
    /// Name of its machine.
    node: String,
    /// Time of its last announcement, accurate to a minute.
    heard_at: Timestamp,
    /// Time since which it has had its current table of domains.
    changed_at: Timestamp,
    /// Number of its domains.
    domains: u64,
    /// Number of its domains that this answer omits, because the announcement was too long.
    not_told: u64,
}

/// A short domain.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Domain")]
struct DomainBody {
    /// Name of the domain; `*.` and a name stand for all its subdomains.
    domain: String,
    /// Configuration per nginx; empty for a domain that has visits but is no longer listed.
    announced: Vec<AnnouncedBody>,
    /// Number of visits in the last hour.
    visits: u64,
    /// Minutes with visits; the last one can be incomplete.
    minutes: Vec<MinuteBody>,
    /// Collapse of its visits, if it is suspected blocked.
    fall: Option<FallBody>,
    /// Networks that are suspected of blocking the domain: its human visits from each have collapsed as in `fall`, while
    /// those from other networks go on.
    networks: Vec<NetworkFallBody>,
}

/// Configuration of a short domain in one nginx.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AnnouncedDomain")]
struct AnnouncedBody {
    node: String,
    /// State of the domain; `null` if this version does not know the state.
    #[schemars(with = "Option<words::DomainState>")]
    state: Option<&'static str>,
    /// Name of its brand, which pages for visitors show; `null` without one.
    brand: Option<String>,
    /// Beginning of its short URLs, while it is active.
    base_url: Option<String>,
    /// Share of links that it gets, in relation to the weights of other active domains.
    weight: Option<u32>,
    /// Id of the campaign that it is reserved for.
    #[schemars(with = "Option<words::CampaignId>")]
    campaign_id: Option<String>,
    /// Id of the API key that it is reserved for.
    key_id: Option<String>,
}

/// Number of visits of a domain in a minute.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "MinuteVisits")]
struct MinuteBody {
    begin: Timestamp,
    visits: u64,
}

/// Collapse of the visits of a suspected blocked domain: after ten minutes of steady visits, at most
/// 15% of them for three minutes or more, of which the first five would have had at least 50 visits.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DomainFall")]
struct FallBody {
    /// Start of the first minute with few visits.
    at: Timestamp,
    /// Visits per minute before it.
    before: f64,
    /// Visits per minute since then.
    since: f64,
}

/// Collapse of the visits of a domain from one network.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "NetworkFall")]
struct NetworkFallBody {
    /// Provider of the visitors' Internet access.
    network: String,
    #[serde(flatten)]
    fall: FallBody,
}

impl From<FallAt> for FallBody {
    fn from(fall: FallAt) -> Self {
        Self {
            at: fall.at,
            before: fall.before,
            since: fall.since,
        }
    }
}

operations! {
    get "/v1/domains", "listDomains", "Lists the short domains", list {
        .text(
            "The configuration of each nginx, visits per minute, and the domains that are suspected \
             blocked. nginx announces its short domains with every request that its internal server \
             forwards.",
        )
        .answers::<DomainsBody>(200, "All domains that are listed or have visits.")
    }
}

/// `GET /v1/domains`
async fn list(
    State(app): State<SharedApp>,
    MayReadStats(caller): MayReadStats,
) -> Result<Json<DomainsBody>, Problem> {
    check_reaches_all(&caller, "ask for the statistics of a link or a campaign")?;
    let Overview {
        nodes,
        domains,
        since,
        is_late,
    } = app.domains.overview().await?;
    Ok(Json(DomainsBody {
        since,
        visits_are_late: is_late,
        nodes: nodes.into_iter().map(NodeBody::from).collect(),
        domains: domains.into_iter().map(|it| body(it, since)).collect(),
    }))
}

impl From<Heard> for NodeBody {
    fn from(heard: Heard) -> Self {
        let told = heard.announcement.domains().len() as u64;
        Self {
            heard_at: heard.heard_at,
            changed_at: heard.changed_at,
            domains: told + heard.announcement.more,
            not_told: heard.announcement.more,
            node: heard.announcement.node,
        }
    }
}

fn body(view: DomainView, since: Timestamp) -> DomainBody {
    let minutes = view.minutes.iter().enumerate();
    let announced = view.announced.into_iter();
    DomainBody {
        domain: view.name,
        announced: announced
            .map(|(node, it)| announced_body(node, it))
            .collect(),
        visits: view.minutes.iter().sum(),
        minutes: minutes
            .filter(|(_, visits)| **visits > 0)
            .map(|(place, visits)| MinuteBody {
                begin: since + SignedDuration::from_mins(place as i64),
                visits: *visits,
            })
            .collect(),
        fall: view.fall.map(FallBody::from),
        networks: view
            .networks
            .into_iter()
            .map(|(network, fall)| NetworkFallBody {
                network,
                fall: fall.into(),
            })
            .collect(),
    }
}

fn announced_body(node: String, domain: AnnouncedDomain) -> AnnouncedBody {
    let base = domain.base;
    let bound = base.as_ref().and_then(|base| base.bound.clone());
    let (campaign_id, key_id) = match bound {
        None => (None, None),
        Some(BoundTo::Campaign(id)) => (Some(id.to_string()), None),
        Some(BoundTo::Key(id)) => (None, Some(id)),
    };
    AnnouncedBody {
        node,
        state: domain.state.map(DomainState::name),
        brand: domain.brand,
        weight: base.as_ref().map(|base| base.weight),
        base_url: base.map(|base| base.url),
        campaign_id,
        key_id,
    }
}
