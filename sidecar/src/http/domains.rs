//! `GET /v1/domains`: the short domains as every nginx has them, and how often they are visited.

use axum::Json;
use axum::extract::{RawQuery, Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use vocabulary::domains::{BoundTo, DomainState};

use super::app::{App, SharedApp};
use super::auth::MayReadStats;
use super::extract::{BASE, DOMAINS};
use super::operation::operations;
use super::operation::parameter::{parameters, string};
use super::problem::Problem;
use super::words;
use crate::core::announcement::{AnnouncedDomain, Heard};
use crate::service::domains::{DomainView, Overview};

/// Records the short domains that nginx announces with requests of the API.
pub(super) async fn hear(State(app): State<SharedApp>, request: Request, next: Next) -> Response {
    note(&app, request.headers());
    next.run(request).await
}

fn note(app: &App, headers: &HeaderMap) {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let node = text("x-shortlink-node").filter(|node| !node.is_empty());
    if let (Some(node), Some(states)) = (node, text("x-shortlink-states")) {
        let bases = text("x-shortlink-base").unwrap_or_default();
        let names = text("x-shortlink-domains").unwrap_or_default();
        app.domains.hear(node, bases, names, states);
    }
}

/// The short domains.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Domains")]
pub(super) struct DomainsBody {
    /// When the first minute begins that visits are told of: an hour before the one that has begun.
    since: Timestamp,
    /// Whether visits wait to be stored, or Redis does not say: then none is told to have fallen.
    visits_are_late: bool,
    /// Each nginx whose internal server was asked for something within a day.
    nodes: Vec<NodeBody>,
    /// Those that have fallen first.
    domains: Vec<DomainBody>,
}

/// An nginx.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DomainNode")]
struct NodeBody {
    /// The name of its machine.
    node: String,
    /// When it was last heard, but for a minute.
    heard_at: Timestamp,
    /// Since when it has had this table.
    changed_at: Timestamp,
    /// How many domains it has.
    domains: u64,
    /// How many of them are not told.
    not_told: u64,
}

/// A short domain.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Domain")]
struct DomainBody {
    /// Its name; `*.` and a name stand for all names below.
    domain: String,
    /// What nodes say of it; nothing of one that is visited and not listed any more.
    announced: Vec<AnnouncedBody>,
    /// How often it was visited since.
    visits: u64,
    /// Minutes with visits; the last may not be over.
    minutes: Vec<MinuteBody>,
    /// That it is hardly visited any more, as one that is blocked.
    fall: Option<FallBody>,
}

/// A short domain as one nginx has it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AnnouncedDomain")]
struct AnnouncedBody {
    node: String,
    /// What it is for; `null` for what this version does not know.
    #[schemars(with = "Option<words::DomainState>")]
    state: Option<&'static str>,
    /// What short URLs begin with, while it is active.
    base_url: Option<String>,
    /// How many links it gets beside other active ones.
    weight: Option<u32>,
    /// The campaign that it is for alone.
    #[schemars(with = "Option<words::CampaignId>")]
    campaign_id: Option<String>,
    /// The API key that it is for alone.
    key_id: Option<String>,
}

/// How often a domain was visited in a minute.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "MinuteVisits")]
struct MinuteBody {
    begin: Timestamp,
    visits: u64,
}

/// That a domain was visited steadily for ten minutes and has had at most 15% of that since, for three
/// minutes or more, of which the first five would have had 50 visits.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DomainFall")]
struct FallBody {
    /// When the first minute with few visits began.
    at: Timestamp,
    /// How many visits a minute there were before.
    before: f64,
    /// How many there are since.
    since: f64,
}

parameters! {
    STATES: header "X-Shortlink-States", "States",
        "A letter for the state of each short domain. nginx sets it.", string;
    NODE: header "X-Shortlink-Node", "Node",
        "Which nginx it is: the name of its machine. nginx sets it.", string;
}

operations! {
    get "/v1/domains", "listDomains", "Tells of the short domains", list {
        .text(
            "As each nginx has them, which says so with every request that its internal server \
             passes on, with visits by minute, and whether a domain has fallen, as one that is \
             blocked.",
        )
        .takes(&[BASE, DOMAINS, STATES, NODE])
        .answers::<DomainsBody>(200, "All that are listed or visited.")
    }
}

/// `GET /v1/domains`
async fn list(
    State(app): State<SharedApp>,
    _: MayReadStats,
    RawQuery(query): RawQuery,
) -> Result<Json<DomainsBody>, Problem> {
    if query.is_some_and(|query| !query.is_empty()) {
        return Err(Problem::query("There are no parameters."));
    }
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
        fall: view.fall.map(|fall| FallBody {
            at: fall.at,
            before: fall.before,
            since: fall.since,
        }),
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
        weight: base.as_ref().map(|base| base.weight),
        base_url: base.map(|base| base.url),
        campaign_id,
        key_id,
    }
}
