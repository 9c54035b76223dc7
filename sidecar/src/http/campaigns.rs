//! `/v1/campaigns`

use axum::Json;
use axum::extract::{FromRequestParts, Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use vocabulary::{CampaignId, Validity};

use super::app::SharedApp;
use super::auth::{MayReadCampaigns, MayWriteCampaigns};
use super::campaign_defaults::{DefaultsBody, read_defaults};
use super::extract::{Domains, JsonObject};
use super::fields::{Fields, Member};
use super::openapi::words;
use super::problem::Problem;
use super::query;
use crate::core::campaign::{Campaign, CampaignChange, CampaignDefaults, CampaignTarget};
use crate::core::link::Second;
use crate::core::target::{OwnHosts, Target};
use crate::service::access::Caller;
use crate::service::campaigns::{NewCampaign, StoredCampaign};

/// The most characters of texts.
pub(super) const LONGEST_NAME: usize = 200;
pub(super) const LONGEST_EXTERNAL_ID: usize = 128;
pub(super) const LONGEST_NOTE: usize = 1000;

/// `POST /v1/campaigns`
pub(super) async fn create(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    domains: Domains,
    JsonObject(members): JsonObject,
) -> Result<impl IntoResponse, Problem> {
    let mut fields = Fields::new(members);
    let name = read_name(&mut fields);
    if name.is_none() {
        fields.require("name");
    }
    let declared = fields.list("parameters", |name| Ok::<_, String>(name.to_owned()));
    let declared = declared.value().unwrap_or_default();
    let target = read_target(&app, &mut fields, &declared, &domains.own, &caller);
    if target.is_none() {
        fields.require("longUrl");
    }
    let redirect_status = fields.redirect_status("redirectStatus").value();
    let forward_query = fields.truth("forwardQuery").value();
    let validity = read_validity(&mut fields, Validity::ALWAYS, app.clock.now());
    let external_id = fields.short_text("externalId", LONGEST_EXTERNAL_ID).value();
    let note = fields.short_text("note", LONGEST_NOTE).value();
    let defaults = read_defaults(&app, &mut fields, &caller.key().policy).value();
    fields.finish()?;
    let new = NewCampaign {
        name: name.ok_or_else(Problem::internal)?,
        target: target.ok_or_else(Problem::internal)?,
        redirect_status: redirect_status.unwrap_or(app.default_redirect_status),
        forward_query: forward_query.unwrap_or(false),
        validity: validity.unwrap_or_default(),
        created_by: caller.key().id.clone(),
        external_id,
        note,
        defaults: defaults.unwrap_or_default(),
    };
    let stored = app.campaigns.create(new).await?;
    let location = format!("/v1/campaigns/{}", stored.campaign.id);
    let body = Json(body_of(&stored, &app));
    Ok((StatusCode::CREATED, [(LOCATION, location)], body))
}

/// `GET /v1/campaigns/{id}`
pub(super) async fn find(
    State(app): State<SharedApp>,
    _: MayReadCampaigns,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<CampaignBody>, Problem> {
    let campaign = app.campaigns.find(id).await?.ok_or_else(no_such_campaign)?;
    Ok(Json(CampaignBody::new(&campaign, app.clock.now())))
}

/// `PATCH /v1/campaigns/{id}`
pub(super) async fn change(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    CampaignInPath(id): CampaignInPath,
    domains: Domains,
    JsonObject(members): JsonObject,
) -> Result<Json<CampaignBody>, Problem> {
    let present = app.campaigns.find(id).await?.ok_or_else(no_such_campaign)?;
    let mut fields = Fields::new(members);
    let mut change = CampaignChange {
        name: read_name(&mut fields),
        ..CampaignChange::default()
    };
    let names = present.target.names();
    if let Some(target) = read_target(&app, &mut fields, names, &domains.own, &caller) {
        // Its links have no values for others.
        match target.names().get(names.len()) {
            Some(name) => fields.refuse(
                "longUrl",
                format!("names the parameter {name}, which the links of this campaign have not"),
            ),
            None => change.target = Some(target),
        }
    }
    match fields.redirect_status("redirectStatus") {
        Member::Value(status) => change.redirect_status = Some(status),
        Member::Null => fields.refuse("redirectStatus", "must be a number"),
        Member::Absent => {}
    }
    match fields.truth("forwardQuery") {
        Member::Value(truth) => change.forward_query = Some(truth),
        Member::Null => fields.refuse("forwardQuery", "must be true or false"),
        Member::Absent => {}
    }
    change.validity = read_validity(&mut fields, present.validity, app.clock.now());
    match fields.short_text("note", LONGEST_NOTE) {
        Member::Value(note) => change.note = Some(Some(note)),
        Member::Null => change.note = Some(None),
        Member::Absent => {}
    }
    change.defaults = match read_defaults(&app, &mut fields, &caller.key().policy) {
        Member::Value(defaults) => Some(defaults),
        Member::Null => Some(CampaignDefaults::default()),
        Member::Absent => None,
    };
    fields.finish()?;
    changed(&app, id, change, &caller).await
}

/// `POST /v1/campaigns/{id}/pause`
pub(super) async fn pause(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<CampaignBody>, Problem> {
    set_paused(&app, id, true, &caller).await
}

/// `POST /v1/campaigns/{id}/resume`
pub(super) async fn resume(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<CampaignBody>, Problem> {
    set_paused(&app, id, false, &caller).await
}

/// `DELETE /v1/campaigns/{id}`
pub(super) async fn revoke(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<CampaignBody>, Problem> {
    let stored = app.campaigns.revoke(id, &caller.key().id).await?;
    let stored = stored.ok_or_else(no_such_campaign)?;
    Ok(Json(body_of(&stored, &app)))
}

/// `GET /v1/campaigns`
pub(super) async fn list(
    State(app): State<SharedApp>,
    _: MayReadCampaigns,
    RawQuery(text): RawQuery,
) -> Result<Json<PageBody>, Problem> {
    let (mut after, mut limit) = (None, query::DEFAULT_LIMIT);
    for (name, value) in url::form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
        match &*name {
            "limit" => limit = query::limit(&value)?,
            "cursor" => {
                let id = query::cursor(&value, |id| CampaignId::parse(id.as_bytes()))?;
                after = Some(id);
            }
            _ => {
                return Err(Problem::query(
                    "There are only the parameters limit and cursor.",
                ));
            }
        }
    }
    // One more tells whether there is another page.
    let mut campaigns = app.campaigns.list(after, limit + 1).await?;
    let next_cursor = query::page(&mut campaigns, limit).map(|last| last.id.to_string());
    let now = app.clock.now();
    let campaigns = campaigns.iter();
    Ok(Json(PageBody {
        campaigns: campaigns
            .map(|campaign| CampaignBody::new(campaign, now))
            .collect(),
        next_cursor,
    }))
}

async fn set_paused(
    app: &SharedApp,
    id: CampaignId,
    paused: bool,
    caller: &Caller,
) -> Result<Json<CampaignBody>, Problem> {
    let change = CampaignChange {
        paused: Some(paused),
        ..CampaignChange::default()
    };
    changed(app, id, change, caller).await
}

async fn changed(
    app: &SharedApp,
    id: CampaignId,
    change: CampaignChange,
    caller: &Caller,
) -> Result<Json<CampaignBody>, Problem> {
    let stored = app.campaigns.change(id, change, &caller.key().id).await?;
    let stored = stored.ok_or_else(no_such_campaign)?;
    Ok(Json(body_of(&stored, app)))
}

fn read_name(fields: &mut Fields) -> Option<String> {
    match fields.short_text("name", LONGEST_NAME) {
        Member::Value(name) if name.trim().is_empty() => {
            fields.refuse("name", "must not be empty");
            None
        }
        Member::Value(name) => Some(name),
        Member::Null => {
            fields.refuse("name", "must be a string");
            None
        }
        Member::Absent => None,
    }
}

fn read_target(
    app: &SharedApp,
    fields: &mut Fields,
    declared: &[String],
    own: &OwnHosts,
    caller: &Caller,
) -> Option<CampaignTarget> {
    match fields.text("longUrl") {
        Member::Value(text) => {
            let refusal = match CampaignTarget::parse(&text, declared, app.policy, own) {
                Ok(target) => {
                    // The host has no places, so that it is that of every link.
                    let of_all = Target::from_stored(target.template().to_owned());
                    match app.target_domains.check(&of_all, &caller.key().policy) {
                        Ok(()) => return Some(target),
                        Err(error) => error.to_string(),
                    }
                }
                Err(error) => error.to_string(),
            };
            fields.refuse("longUrl", refusal);
            None
        }
        Member::Null => {
            fields.refuse("longUrl", "must be a string");
            None
        }
        Member::Absent => None,
    }
}

/// Reads when links redirect; what is not given stays as it is.
fn read_validity(fields: &mut Fields, present: Validity, now: Timestamp) -> Option<Validity> {
    let mut bounds = [present.since(), present.until()];
    let mut is_given = false;
    for (bound, name) in bounds.iter_mut().zip(["validSince", "validUntil"]) {
        match fields.moment(name) {
            Member::Absent => {}
            Member::Null => {
                *bound = None;
                is_given = true;
            }
            Member::Value(moment) => {
                is_given = true;
                let second = match name {
                    // Never live outside of what was asked for.
                    "validSince" => Second::not_before(moment),
                    _ => Second::at(moment),
                };
                if second.is_none() || (name == "validUntil" && moment <= now) {
                    fields.refuse(name, "must be in the future");
                }
                *bound = second.map(Second::non_zero);
            }
        }
    }
    if !is_given {
        return None;
    }
    let validity = Validity::new(bounds[0], bounds[1]);
    if validity.is_none() {
        fields.refuse("validUntil", "must be later than validSince");
    }
    validity
}

/// A campaign as clients see it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Campaign")]
pub(super) struct CampaignBody {
    #[schemars(with = "words::CampaignId")]
    id: String,
    /// What people call it.
    name: String,
    /// Where its links lead, with the names of parameters in braces.
    long_url: String,
    /// The names of its links' parameters.
    parameters: Vec<String>,
    #[schemars(with = "words::RedirectStatus")]
    redirect_status: u16,
    /// Whether the visitor's query is appended to the target's.
    forward_query: bool,
    #[schemars(with = "words::CampaignState")]
    state: &'static str,
    valid_since: Option<Timestamp>,
    valid_until: Option<Timestamp>,
    external_id: Option<String>,
    note: Option<String>,
    /// For new links that say nothing else.
    defaults: DefaultsBody,
    /// 1 for a new campaign, one more for each change.
    revision: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Whether Redis has confirmed this revision; only where it was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    published: Option<bool>,
}

impl CampaignBody {
    fn new(campaign: &Campaign, now: Timestamp) -> Self {
        let moment = |second: std::num::NonZeroU64| {
            Timestamp::from_second(second.get() as i64).unwrap_or(Timestamp::MAX)
        };
        Self {
            id: campaign.id.to_string(),
            name: campaign.name.clone(),
            long_url: campaign.target.with_names(),
            parameters: campaign.target.names().to_vec(),
            redirect_status: campaign.redirect_status.code(),
            forward_query: campaign.forward_query,
            state: campaign.state(now).name(),
            valid_since: campaign.validity.since().map(moment),
            valid_until: campaign.validity.until().map(moment),
            external_id: campaign.external_id.clone(),
            note: campaign.note.clone(),
            defaults: DefaultsBody::new(&campaign.defaults),
            revision: campaign.revision,
            created_at: campaign.created_at,
            updated_at: campaign.updated_at,
            published: None,
        }
    }
}

/// A page of a listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CampaignPage")]
pub(super) struct PageBody {
    /// The campaigns.
    campaigns: Vec<CampaignBody>,
    /// Where the listing goes on; `None` at its end.
    next_cursor: Option<String>,
}

fn body_of(stored: &StoredCampaign, app: &SharedApp) -> CampaignBody {
    CampaignBody {
        published: Some(stored.published),
        ..CampaignBody::new(&stored.campaign, app.clock.now())
    }
}

/// The id of a campaign in the path.
pub(super) struct CampaignInPath(pub(super) CampaignId);

impl FromRequestParts<SharedApp> for CampaignInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, Problem> {
        Path::<String>::from_request_parts(parts, app)
            .await
            .ok()
            .and_then(|Path(id)| CampaignId::parse(id.as_bytes()))
            .map(Self)
            .ok_or_else(no_such_campaign)
    }
}

/// There is no campaign of the id in the path.
pub(super) fn no_such_campaign() -> Problem {
    Problem::not_found("There is no campaign with this id.")
}
