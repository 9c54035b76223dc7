//! `/v1/campaigns`

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use shortlink_api::campaign::{
    CampaignBody, CampaignIdentity, CampaignPatch, CampaignSettings, DefaultMembers,
    NewCampaign as NewCampaignBody,
};
use shortlink_api::fields::Fields;
use shortlink_api::kinds::link::IN_THE_FUTURE;
use shortlink_api::members::{Members, Usage};
use shortlink_core::api_key::{KeyPolicy, Scope};
use shortlink_core::campaign::{
    Campaign, CampaignChange, CampaignDefaults, CampaignTarget, ClickParameter,
};
use shortlink_core::link::Second;
use shortlink_core::plan::PlanChange;
use shortlink_core::ports::QuotaOwner;
use shortlink_core::short_url::Owners;
use shortlink_core::target::{OwnHosts, Target};
use shortlink_service::access::Caller;
use shortlink_service::campaigns::{CampaignError, StoredCampaign};
use vocabulary::{CampaignId, Validity};

use super::app::{App, SharedApp};
use super::auth::{MayReadCampaigns, MayWriteCampaigns, own_ids};
use super::extract::{Domains, JsonObject, in_path};
use super::link_members::{check_codes, check_periods, read_plan};
use super::operation::parameter::{number, of, parameters};
use super::operation::{Operation, operations};
use super::problem::Problem;
use super::query::{Asked, Number, PageQuery, Query, cut, one_more, query};
use super::words;

parameters! {
    pub(super) ID: path "id", "CampaignId", "Id of the campaign.", of::<words::CampaignId>;
}

operations! {
    get "/v1/campaigns", "listCampaigns", "Lists campaigns, the latest first", list {
        .answers::<PageBody>(200, "A page of campaigns.")
    }
    post "/v1/campaigns", "createCampaign", "Creates a campaign", create {
        .takes_json::<NewCampaignBody, 1>([("campaign", json!({
            "name": "Spring",
            "longUrl": "https://shop.example.com/p?m={member}&c={code}",
            "defaults": { "tags": ["spring"] },
        }))])
        .answers::<WrittenBody>(201, "The campaign.").with(["Location"]).leads_to("id", ID)
    }
    get "/v1/campaigns/{id}", "getCampaign", "Shows a campaign", find {
        .answers::<CampaignBody>(200, "The campaign.")
    }
    patch "/v1/campaigns/{id}", "changeCampaign", "Changes a campaign", change {
        .also(changes)
        .text("A new `longUrl` changes the targets of all its links at once.")
        .takes_json::<CampaignPatch, 1>([
            ("target", json!({ "longUrl": "https://shop.example.com/summer?m={member}" })),
        ])
    }
    delete "/v1/campaigns/{id}", "revokeCampaign", "Revokes a campaign", revoke {
        .also(changes)
        .text("All its links answer 410 from then on, permanently. The campaign stays in listings.")
    }
    post "/v1/campaigns/{id}/pause", "pauseCampaign", "Pauses a campaign", pause {
        .also(changes)
        .text("All its links answer 410 until the campaign is resumed. Idempotent.")
    }
    post "/v1/campaigns/{id}/resume", "resumeCampaign", "Resumes a campaign", resume {
        .also(changes).text("Idempotent.")
    }
    get "/v1/campaigns/{id}/links", "countCampaignLinks", "Counts a campaign's links", count {
        .text("Stops at `most`. `GET /v1/links?campaignId=…` lists the links.")
        .takes(&[COUNTED])
        .answers::<SizeBody>(200, "The number of links.")
        .problems([Problem::query(format!("most must be a number from 1 to {MOST}."))])
    }
}

/// Describes what all changes of a campaign share.
pub(super) fn changes(operation: Operation) -> Operation {
    operation
        .answers::<WrittenBody>(200, "The campaign after the change.")
        .problems([CampaignError::Revoked.into()])
}

/// `POST /v1/campaigns`
async fn create(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    domains: Domains,
    JsonObject(members): JsonObject,
) -> Result<impl IntoResponse, Problem> {
    let mut fields = Fields::new(members);
    let identity = CampaignIdentity::read(&mut fields, Usage::New);
    let declared = identity.parameters.unwrap_or_default();
    let given = CampaignSettings::read(&mut fields, Usage::New);
    let target = given
        .long_url
        .as_deref()
        .and_then(|text| check_target(&app, &mut fields, text, &declared, &domains.own, &caller));
    let name = fields.required("name", given.name);
    let target = fields.required("longUrl", target);
    let click_id = given.click_id.flatten();
    check_click_id(&mut fields, click_id.as_ref(), target.as_ref());
    let plan = read_campaign_plan(
        &app,
        &mut fields,
        Usage::New,
        target.as_ref(),
        &domains.own,
        &caller,
    );
    let bounds = (given.valid_since, given.valid_until);
    let validity = check_validity(&mut fields, Validity::ALWAYS, bounds, app.clock.now());
    check_periods(&mut fields, &plan, validity.unwrap_or_default(), None);
    let defaults = given.defaults.map(|members| {
        let owners = Owners {
            campaign: None,
            key: &caller.key().id,
        };
        let check = |name: &str| domains.bases.check(name, owners, None);
        read_defaults(&app, &mut fields, members, &caller.key().policy, check)
    });
    fields.finish()?;
    let name = name.ok_or_else(Problem::internal)?;
    let target = target.ok_or_else(Problem::internal)?;
    let key = caller.key().id.clone();
    let mut new = Campaign {
        redirect_status: given.redirect_status.unwrap_or(app.default_redirect_status),
        forward_query: given.forward_query.unwrap_or(false),
        validity: validity.unwrap_or_default(),
        external_id: identity.external_id.flatten(),
        note: given.note.flatten(),
        defaults: defaults.unwrap_or_default(),
        max_links: given.max_links.flatten(),
        click_id: click_id.map(|name| ClickParameter::new(name, &target)),
        ..Campaign::new(name, target, key, app.clock.now())
    };
    new.plan_anew(&plan);
    if !new.plan_fits() {
        return Err(CampaignError::PlanTooLong.into());
    }
    let stored = app.campaigns.create(new).await?;
    let location = format!("/v1/campaigns/{}", stored.campaign.id);
    let body = Json(WrittenBody::new(&stored, &caller, &app));
    Ok((StatusCode::CREATED, [(LOCATION, location)], body))
}

/// `GET /v1/campaigns/{id}`
async fn find(
    State(app): State<SharedApp>,
    _: MayReadCampaigns,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<CampaignBody>, Problem> {
    let campaign = app
        .store
        .find_campaign(id)
        .await?
        .ok_or_else(no_such_campaign)?;
    let owner = QuotaOwner::Campaign(id);
    let created = app
        .store
        .created_links(std::slice::from_ref(&owner))
        .await?;
    let mut body = CampaignBody::new(&campaign, app.clock.now());
    body.links_created = Some(created.get(&owner).copied().unwrap_or_default());
    Ok(Json(body))
}

/// `PATCH /v1/campaigns/{id}`
async fn change(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    CampaignInPath(id): CampaignInPath,
    domains: Domains,
    JsonObject(members): JsonObject,
) -> Result<Json<WrittenBody>, Problem> {
    let present = app
        .store
        .find_campaign(id)
        .await?
        .ok_or_else(no_such_campaign)?;
    let mut fields = Fields::new(members);
    let given = CampaignSettings::read(&mut fields, Usage::Patch);
    let names = present.target.names();
    let target = given
        .long_url
        .as_deref()
        .and_then(|text| check_target(&app, &mut fields, text, names, &domains.own, &caller));
    // The links of the campaign have no values for others.
    let other = target
        .as_ref()
        .and_then(|target| target.names().get(names.len()));
    if let Some(name) = other {
        fields.refuse(
            "longUrl",
            format!("names the parameter {name}, which the links of this campaign do not have"),
        );
    }
    let before = present.click_id.as_ref().map(|it| it.name().to_owned());
    let click_id = given.click_id.clone().unwrap_or(before);
    let after = target.as_ref().unwrap_or(&present.target);
    check_click_id(&mut fields, click_id.as_ref(), Some(after));
    let plan = read_campaign_plan(
        &app,
        &mut fields,
        Usage::Patch,
        Some(after),
        &domains.own,
        &caller,
    );
    let defaults = given.defaults.map(|members| {
        let owners = Owners {
            campaign: Some(id),
            key: &caller.key().id,
        };
        let before = present.defaults.domain.as_deref();
        let check = |name: &str| domains.bases.check(name, owners, before);
        read_defaults(&app, &mut fields, members, &caller.key().policy, check)
    });
    let bounds = (given.valid_since, given.valid_until);
    let validity = check_validity(&mut fields, present.validity, bounds, app.clock.now());
    let period = validity.unwrap_or(present.validity);
    check_periods(&mut fields, &plan, period, present.plan.as_deref());
    let change = CampaignChange {
        name: given.name,
        redirect_status: given.redirect_status,
        forward_query: given.forward_query,
        valid_since: given.valid_since,
        valid_until: given.valid_until,
        paused: None,
        note: given.note,
        defaults,
        target,
        max_links: given.max_links,
        click_id: given.click_id,
        plan,
    };
    fields.finish()?;
    let changed = app.campaigns.change(id, change, &caller.key().id);
    answer_found(changed.await, &caller, &app)
}

/// `POST /v1/campaigns/{id}/pause`
async fn pause(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<WrittenBody>, Problem> {
    let changed = app.campaigns.change(id, paused(true), &caller.key().id);
    answer_found(changed.await, &caller, &app)
}

/// `POST /v1/campaigns/{id}/resume`
async fn resume(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<WrittenBody>, Problem> {
    let changed = app.campaigns.change(id, paused(false), &caller.key().id);
    answer_found(changed.await, &caller, &app)
}

/// `DELETE /v1/campaigns/{id}`
async fn revoke(
    State(app): State<SharedApp>,
    MayWriteCampaigns(caller): MayWriteCampaigns,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<WrittenBody>, Problem> {
    let revoked = app.campaigns.revoke(id, &caller.key().id).await;
    answer_found(revoked, &caller, &app)
}

/// `GET /v1/campaigns`
async fn list(
    State(app): State<SharedApp>,
    MayReadCampaigns(caller): MayReadCampaigns,
    Asked(asked): Asked<PageQuery>,
) -> Result<Json<PageBody>, Problem> {
    let after = asked.cursor.map(|id| id.parse());
    let after = after.transpose().map_err(|_error| Problem::cursor())?;
    let limit = one_more(asked.limit);
    let own = own_ids(&caller);
    let campaigns = app.listings.list_campaigns(after, limit, own.as_deref());
    let campaigns = campaigns.await?;
    let (campaigns, next_cursor) = cut(campaigns, limit, |last| last.id.to_string());
    let now = app.clock.now();
    let campaigns = campaigns.iter();
    Ok(Json(PageBody {
        campaigns: campaigns
            .map(|campaign| CampaignBody::new(campaign, now))
            .collect(),
        next_cursor,
    }))
}

fn paused(paused: bool) -> CampaignChange {
    CampaignChange {
        paused: Some(paused),
        ..CampaignChange::default()
    }
}

/// Answers with the campaign after a change, or with 404.
pub(super) fn answer_found(
    outcome: Result<Option<StoredCampaign>, CampaignError>,
    caller: &Caller,
    app: &App,
) -> Result<Json<WrittenBody>, Problem> {
    let stored = outcome?.ok_or_else(no_such_campaign)?;
    Ok(Json(WrittenBody::new(&stored, caller, app)))
}

fn check_target(
    app: &SharedApp,
    fields: &mut Fields,
    text: &str,
    declared: &[String],
    own: &OwnHosts,
    caller: &Caller,
) -> Option<CampaignTarget> {
    let target = parse_target(app, text, declared, own, caller);
    fields.checked("longUrl", target)
}

/// Checks a target against the rules for all and for the caller; an error is worded for the caller.
fn parse_target(
    app: &SharedApp,
    text: &str,
    declared: &[String],
    own: &OwnHosts,
    caller: &Caller,
) -> Result<CampaignTarget, String> {
    let target = CampaignTarget::parse(text, declared, app.policy, own);
    let target = target.map_err(|error| error.to_string())?;
    // The host has no places, so that it is that of every link.
    let of_all = Target::from_stored(target.template().to_owned());
    let allowed = app.check_domain(&of_all, caller);
    allowed.map(|()| target).map_err(|error| error.to_string())
}

/// Reads rules and targets instead of answers for a campaign with a target, whose parameters they have.
fn read_campaign_plan(
    app: &SharedApp,
    fields: &mut Fields,
    usage: Usage,
    target: Option<&CampaignTarget>,
    own: &OwnHosts,
    caller: &Caller,
) -> PlanChange {
    let names = target.map(CampaignTarget::names).unwrap_or_default();
    read_plan(app, fields, usage, own, caller, |text| {
        let parsed = parse_target(app, text, names, own, caller)?;
        match parsed.names().get(names.len()) {
            // Without a target, that is a fault of its own.
            Some(name) if target.is_some() => Err(format!(
                "names the parameter {name}, which the campaign does not have"
            )),
            _ => Ok(parsed.template().to_owned()),
        }
    })
}

/// Checks that the target of a campaign can have the parameter with a click id.
fn check_click_id(fields: &mut Fields, name: Option<&String>, target: Option<&CampaignTarget>) {
    let (Some(name), Some(target)) = (name, target) else {
        return;
    };
    let parameter = ClickParameter::new(name.clone(), target);
    if parameter.check_fit().is_err() {
        fields.refuse(
            "clickId",
            "does not fit into the target, which may have 8192 bytes",
        );
    }
}

/// The bounds in a patch: `None` leaves a bound unchanged, `Some(None)` removes it.
type Bounds = (Option<Option<Second>>, Option<Option<Second>>);

/// Returns the validity after a request; `None` if it does not change.
fn check_validity(
    fields: &mut Fields,
    present: Validity,
    (since, until): Bounds,
    now: Timestamp,
) -> Option<Validity> {
    if since.is_none() && until.is_none() {
        return None;
    }
    if until.flatten().is_some_and(|end| end.moment() <= now) {
        fields.refuse("validUntil", IN_THE_FUTURE);
    }
    let bound = |given: Option<Option<Second>>, present| match given {
        Some(bound) => bound.map(Second::non_zero),
        None => present,
    };
    let bounds = (bound(since, present.since()), bound(until, present.until()));
    let validity = Validity::new(bounds.0, bounds.1);
    if validity.is_none() {
        fields.refuse("validUntil", "must be later than validSince");
    }
    validity
}

/// A page of a listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CampaignPage")]
pub(super) struct PageBody {
    /// The campaigns.
    campaigns: Vec<CampaignBody>,
    /// Cursor of the next page; `null` on the last page.
    next_cursor: Option<String>,
}

/// A campaign after it was created or changed: the whole campaign if the API key has the scope `campaigns:read`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "WrittenCampaign")]
pub(super) enum WrittenBody {
    Campaign(Box<CampaignBody>),
    Receipt(ReceiptBody),
}

/// A campaign as an API key without the scope `campaigns:read` sees it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CampaignReceipt")]
pub(super) struct ReceiptBody {
    #[schemars(with = "words::CampaignId")]
    id: String,
    /// True if Redis has confirmed this revision.
    published: bool,
}

impl WrittenBody {
    /// Describes a stored campaign as far as the caller may read it.
    fn new(stored: &StoredCampaign, caller: &Caller, app: &App) -> Self {
        if !caller.key().allows(Scope::CampaignsRead) {
            return Self::Receipt(ReceiptBody {
                id: stored.campaign.id.to_string(),
                published: stored.published,
            });
        }
        let mut body = CampaignBody::new(&stored.campaign, app.clock.now());
        body.published = Some(stored.published);
        Self::Campaign(Box::new(body))
    }
}

in_path! {
    /// The id of a campaign in the path.
    pub(super) CampaignInPath(CampaignId): ID, no_such_campaign, creator
}

/// The API key that a campaign was created with, if there is such a campaign.
async fn creator(app: &SharedApp, id: &CampaignId) -> Result<Option<String>, Problem> {
    let campaign = app.store.find_campaign(*id).await?;
    Ok(campaign.map(|campaign| campaign.created_by))
}

/// 404: the campaign in the path is unknown.
pub(super) fn no_such_campaign() -> Problem {
    Problem::not_found("There is no campaign with this id.")
}

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

/// `GET /v1/campaigns/{id}/links`
async fn count(
    State(app): State<SharedApp>,
    _: MayReadCampaigns,
    CampaignInPath(id): CampaignInPath,
    RawQuery(text): RawQuery,
) -> Result<Json<SizeBody>, Problem> {
    let asked = SizeQuery::read(&text.unwrap_or_default())?;
    let most = asked.most.map_or(DEFAULT_MOST, |most| most.0);
    app.store
        .find_campaign(id)
        .await?
        .ok_or_else(no_such_campaign)?;
    // One extra link shows whether the count is complete.
    let found = app.listings.count_campaign_links(id, most + 1).await?;
    Ok(Json(SizeBody {
        count: found.min(most),
        is_all: found <= most,
    }))
}

/// Reads defaults of new links and checks them against the caller's policy; `check_domain` checks their short domain.
pub(super) fn read_defaults(
    app: &App,
    fields: &mut Fields,
    members: Map<String, Value>,
    allowed: &KeyPolicy,
    check_domain: impl Fn(&str) -> Result<(), String>,
) -> CampaignDefaults {
    fields.within("defaults", members, |fields| {
        let given = DefaultMembers::read(fields, Usage::New);
        let (strategy, lengths) = (given.strategy.flatten(), given.code_length.flatten());
        let default = app.default_policy.strategy;
        let codes = check_codes(fields, strategy, lengths, default, allowed);
        CampaignDefaults {
            strategy: codes.strategy,
            code_lengths: codes.lengths,
            max_visits: given.max_visits.flatten(),
            tags: given.tags.unwrap_or_default(),
            domain: given
                .domain
                .flatten()
                .filter(|name| fields.checked("domain", check_domain(name)).is_some()),
        }
    })
}
