//! `/v1/links`: single links, their listing and their history.

use std::collections::HashMap;
use std::num::NonZeroU64;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ETAG, LOCATION};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::json;
use shortlink_api::fields::Fields;
use shortlink_api::kinds::Kind;
use shortlink_api::kinds::link::LongUrl;
use shortlink_api::link::{LinkPatch, NewLink};
use shortlink_api::members::Usage;
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Change, Dedupe, Expected, Link, Refusal, UploadId};
use shortlink_core::ports::{
    ChunkKey, LinkClicks, LinkTotal, Listing, Position, QuotaOwner, UsedUp,
};
use shortlink_core::short_url::Owners;
use shortlink_core::target::Target;
use shortlink_service::access::Caller;
use shortlink_service::links::EditedBy;
use shortlink_service::new_link::{LinkError, Stored};
use shortlink_store::TargetSearch;
use vocabulary::{CampaignId, Code, State as LinkState};

use super::app::{App, SharedApp};
use super::auth::{MayRead, MayWrite, own_ids};
use super::campaign_links::{Campaigns, read_values};
use super::extract::{CODE, CodeInPath, Domains, JsonObject, no_such_link};
use super::idempotency::{
    IDEMPOTENCY_KEY, Once, bad_key, create_once, dedupes_twice, digest, idempotency_key,
};
use super::link_members::{
    LengthsFrom, PLAN_TOO_LONG, check_periods, check_short_domain, not_created, period,
    read_members, read_new_link,
};
use super::operation::parameter::{of, parameters, string};
use super::operation::{Operation, operations};
use super::precondition::{IfMatch, etag};
use super::problem::{FieldError, Problem};
use super::query::{
    Asked, CLICKED, CURSOR, EXTERNAL_ID, LIMIT, Limit, OF_CAMPAIGN, OF_UPLOAD, PageQuery, cut,
    one_more, query,
};
use super::wire::{HistoryBody, LinkBody, PageBody, PastChangeBody, WrittenBody};
use super::{cursor, words};

operations! {
    get "/v1/links", "listLinks", "Lists links, the latest first", list {
        .text("`longUrl` needs the setting `links.find_by_target`. The answer is 503 while links are still being indexed.")
        .answers::<PageBody>(200, "A page of links.")
        .problems([Problem::targets_not_found()])
    }
    post "/v1/links", "createLink", "Creates a link", create {
        .text("With `dedupe`, an existing link of an identical request is returned with 200.")
        .takes(&[IDEMPOTENCY_KEY])
        .takes_json::<NewLink, 2>([
            ("target", json!({
                "longUrl": "https://www.example.com/spring",
                "validUntil": "2030-12-31T23:59:59Z",
                "tags": ["spring"],
                "externalId": "m-17",
            })),
            ("campaign", json!({ "campaignId": "1", "parameters": { "member": "4711" } })),
        ])
        .answers::<WrittenBody>(201, "The new link.").with(["ETag", "Location"])
        .leads_to("shortCode", CODE)
        .answers::<WrittenBody>(200, "The existing link (`dedupe`).").with(["ETag"])
        .problems([
            bad_key(), Problem::taken(), Problem::forgotten(), Problem::other_request(), over_quota(),
        ])
    }
    get "/v1/links/{code}", "getLink", "Shows a link", find {
        .answers::<LinkBody>(200, "The link.").with(["ETag"])
    }
    patch "/v1/links/{code}", "changeLink", "Changes a link", change {
        .also(changes)
        .takes_json::<LinkPatch, 1>([
            ("target", json!({ "longUrl": "https://www.example.com/summer", "validUntil": null })),
        ])
    }
    delete "/v1/links/{code}", "revokeLink", "Revokes a link permanently", revoke {
        .also(changes)
        .text("The link answers 410 from then on, and stays in listings.")
    }
    post "/v1/links/{code}/pause", "pauseLink", "Pauses a link", pause {
        .also(changes)
        .text("The link answers 410 until it is resumed. Idempotent.")
    }
    post "/v1/links/{code}/resume", "resumeLink", "Resumes a link", resume {
        .also(changes).text("Idempotent.")
    }
    get "/v1/links/{code}/history", "listLinkHistory", "Lists the history of a link", history {
        .text("The link before each of its changes, the latest change first.")
        .answers::<HistoryBody>(200, "A page of changes.")
    }
}

/// 403: a quota is used up.
fn over_quota() -> Problem {
    Problem::over_quota(&UsedUp {
        owner: QuotaOwner::Key(String::new()),
        limit: NonZeroU64::MIN,
        used: 1,
    })
}

/// Describes what all changes of a link share.
pub(super) fn changes(operation: Operation) -> Operation {
    operation
        .answers::<WrittenBody>(200, "The link after the change.")
        .with(["ETag"])
        .problems([Problem::revoked()])
}

/// `POST /v1/links`: 201 for a new link, 200 for an existing one.
async fn create(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    headers: HeaderMap,
    JsonObject(members): JsonObject,
) -> Result<Response<Body>, Problem> {
    let idempotency_key = idempotency_key(&headers)?;
    let request = idempotency_key.map(|key| {
        let key = ChunkKey {
            key_id: caller.key().id.clone(),
            idempotency_key: key,
            chunk: 0,
        };
        (key, digest(&members))
    });
    let campaigns = Campaigns::named(&app, &caller, [&members]).await?;
    let lengths_from = LengthsFrom::of(&app, &members, &caller, &campaigns);
    let new = read_new_link(&app, members, &domains, &caller, &campaigns);
    let stored = match request {
        None => {
            let created = app.links.issuer.create(new?).await;
            created.map_err(|error| not_created(error, lengths_from))?
        }
        Some(_) if new.as_ref().is_ok_and(|new| new.dedupe != Dedupe::Never) => {
            return Err(dedupes_twice());
        }
        Some((key, digest)) => match create_once(&app, key, digest, new, lengths_from).await? {
            Once::Made(stored) => *stored,
            Once::Told(answer) => return Ok(answer),
        },
    };
    let answer = answer_with(&stored, &app, &caller, &domains, &campaigns);
    if !stored.is_new {
        return Ok(answer);
    }
    let location = format!("/v1/links/{}", stored.link.code);
    Ok((StatusCode::CREATED, [(LOCATION, location)], answer).into_response())
}

/// `GET /v1/links/{code}`
async fn find(
    State(app): State<SharedApp>,
    _: MayRead,
    domains: Domains,
    CodeInPath(code): CodeInPath,
) -> Result<Response<Body>, Problem> {
    let link = app.store.find_link(&code).await?.ok_or_else(no_such_link)?;
    let campaigns = Campaigns::of(&app, [&link]).await?;
    let totals = app.store.visit_totals(&[code]).await?;
    let clicks = app.store.link_clicks(&[code]).await?;
    let clicks = clicks.first().map(|(_, it)| it);
    let names = app.store.key_names(&[&link.created_by]).await?;
    let body = body(&link, &app, &domains, &campaigns);
    let body = body.visited(totals.first(), clicks).made_by(&names);
    Ok(tagged(&link, body))
}

/// `PATCH /v1/links/{code}`
async fn change(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    CodeInPath(code): CodeInPath,
    IfMatch(expected): IfMatch,
    JsonObject(members): JsonObject,
) -> Result<Response<Body>, Problem> {
    let mut fields = Fields::new(members);
    let values = read_changed_values(&app, &mut fields, &code).await?;
    let change = Change {
        values,
        ..read_members(&app, &mut fields, &domains.own, &caller, Usage::Patch)
    };
    if change.plan.rules.is_some() || change.domain.as_ref().is_some_and(Option::is_some) {
        let link = app.store.find_link(&code).await?.ok_or_else(no_such_link)?;
        let before = link.domain.as_deref();
        check_short_domain(&mut fields, &change, &domains, Owners::of(&link), before);
        let since = change.valid_since.unwrap_or(link.valid_since);
        let until = change.valid_until.unwrap_or(link.valid_until);
        check_periods(
            &mut fields,
            &change.plan,
            period(since, until),
            link.plan.as_deref(),
        );
    }
    fields.finish()?;
    let of_campaign = [
        (change.target.is_some(), "/longUrl"),
        (change.redirect_status.is_some(), "/redirectStatus"),
        (change.forward_query.is_some(), "/forwardQuery"),
        (change.plan.rules.is_some(), "/rules"),
        (change.plan.variants.is_some(), "/variants"),
        (change.plan.preview.is_some(), "/preview"),
        (change.plan.click_id.is_some(), "/clickId"),
        (change.plan.instead[0].is_some(), "/expiredTarget"),
        (change.plan.instead[1].is_some(), "/pausedTarget"),
        (change.plan.instead[2].is_some(), "/notYetTarget"),
    ];
    let (pointer, detail) = match change.valid_until {
        Some(_) => ("/validUntil", "must be later than the link's validSince"),
        None => ("/validSince", "must be before the link's validUntil"),
    };
    let plan = &change.plan;
    let is_only = |is_changed: bool| is_changed && plan.rules.is_none() && plan.variants.is_none();
    let planned = match () {
        () if is_only(plan.click_id.is_some()) => "/clickId",
        () if is_only(plan.preview.is_some()) => "/preview",
        () if is_only(change.target.is_some()) => "/longUrl",
        () => "/rules",
    };
    let editor = edited_by(&caller, expected);
    match app.links.change(&code, change, editor).await {
        Err(LinkError::Refused {
            refusal: Refusal::PlanTooLong,
            ..
        }) => Err(Problem::invalid(planned, PLAN_TOO_LONG)),
        Err(LinkError::Refused {
            refusal: Refusal::NeverValid,
            ..
        }) => Err(Problem::invalid(pointer, detail)),
        Err(LinkError::Refused {
            refusal: Refusal::OfCampaign,
            ..
        }) => {
            let refused = of_campaign.iter().filter(|(is_changed, _)| *is_changed);
            let refused = refused.map(|(_, pointer)| FieldError {
                pointer: (*pointer).to_owned(),
                detail: "is defined by the link's campaign".to_owned(),
            });
            Err(Problem::validation(refused.collect()))
        }
        changed => answer_found(changed, &app, &caller, &domains).await,
    }
}

/// Reads other values for the target of a link's campaign.
async fn read_changed_values(
    app: &App,
    fields: &mut Fields,
    code: &Code,
) -> Result<Option<ParameterValues>, Problem> {
    if !fields.has("parameters") {
        return Ok(None);
    }
    let link = app.store.find_link(code).await?.ok_or_else(no_such_link)?;
    let campaigns = Campaigns::of(app, [&link]).await?;
    let Some(campaign) = campaigns.of_link(&link) else {
        fields.refuse("parameters", "is for links of campaigns");
        fields.ignore("parameters");
        return Ok(None);
    };
    Ok(read_values(fields, campaign))
}

pub(super) fn edited_by(caller: &Caller, expected: Expected) -> EditedBy {
    EditedBy {
        key_id: caller.key().id.clone(),
        expected,
    }
}

/// `POST /v1/links/{code}/pause`
async fn pause(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    CodeInPath(code): CodeInPath,
    IfMatch(expected): IfMatch,
) -> Result<Response<Body>, Problem> {
    let editor = edited_by(&caller, expected);
    answer_found(
        app.links.pause(&code, editor).await,
        &app,
        &caller,
        &domains,
    )
    .await
}

/// `POST /v1/links/{code}/resume`
async fn resume(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    CodeInPath(code): CodeInPath,
    IfMatch(expected): IfMatch,
) -> Result<Response<Body>, Problem> {
    let editor = edited_by(&caller, expected);
    answer_found(
        app.links.resume(&code, editor).await,
        &app,
        &caller,
        &domains,
    )
    .await
}

/// `DELETE /v1/links/{code}`
async fn revoke(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    CodeInPath(code): CodeInPath,
    IfMatch(expected): IfMatch,
) -> Result<Response<Body>, Problem> {
    let editor = edited_by(&caller, expected);
    answer_found(
        app.links.revoke(&code, editor).await,
        &app,
        &caller,
        &domains,
    )
    .await
}

/// Answers with the link after a change, or with 404.
pub(super) async fn answer_found(
    outcome: Result<Option<Stored>, LinkError>,
    app: &SharedApp,
    caller: &Caller,
    domains: &Domains,
) -> Result<Response<Body>, Problem> {
    let stored = outcome?.ok_or_else(no_such_link)?;
    let campaigns = Campaigns::of(app, [&stored.link]).await?;
    Ok(answer_with(&stored, app, caller, domains, &campaigns))
}

fn answer_with(
    stored: &Stored,
    app: &App,
    caller: &Caller,
    domains: &Domains,
    campaigns: &Campaigns,
) -> Response<Body> {
    let campaign = campaigns.of_link(&stored.link);
    let (now, bases) = (app.clock.now(), &domains.bases);
    let body = WrittenBody::new(stored, caller.key(), campaign, now, bases);
    tagged(&stored.link, body)
}

fn body(link: &Link, app: &App, domains: &Domains, campaigns: &Campaigns) -> LinkBody {
    let bases = &domains.bases;
    LinkBody::new(link, campaigns.of_link(link), app.clock.now(), bases)
}

fn tagged(link: &Link, body: impl Serialize) -> Response<Body> {
    ([(ETAG, etag(link))], Json(body)).into_response()
}

parameters! {
    STATE: query "state", "LinkState", "Only links in this state.", of::<words::LinkState>;
    TAG: query "tag", "Tag", "Only links with this tag.", string;
    LONG_URL: query "longUrl", "OfLongUrl",
        "Only links with this target of their own, in any spelling of the same URL; not links of \
         campaigns.", |generator| LongUrl::schema(generator);
    CREATED_BY: query "createdBy", "CreatedBy",
        "Only links that this API key has created.", string;
}

query! {
    /// The filter of the listing.
    LinkQuery {
        limit: Limit = LIMIT,
        cursor: String = CURSOR,
        state: LinkState = STATE,
        tag: String = TAG,
        external_id: String = EXTERNAL_ID,
        long_url: Target = LONG_URL,
        campaign: CampaignId = OF_CAMPAIGN,
        upload: UploadId = OF_UPLOAD,
        created_by: String = CREATED_BY,
        clicked: bool = CLICKED,
    }
}

/// `GET /v1/links`
async fn list(
    State(app): State<SharedApp>,
    MayRead(caller): MayRead,
    domains: Domains,
    Asked(asked): Asked<LinkQuery>,
) -> Result<Json<PageBody>, Problem> {
    let now = app.clock.now();
    let after = cursor::decode(cursor::LINKS, asked.cursor)?;
    let listing = Listing {
        state: asked.state.map(|state| (state, now)),
        tag: asked.tag,
        external_id: asked.external_id,
        target: asked.long_url,
        campaign: asked.campaign,
        upload: asked.upload,
        created_by: match (asked.created_by, own_ids(&caller)) {
            (None, own) => own,
            (Some(id), _) if caller.key().reaches(&id) => Some(vec![id]),
            (Some(_), _) => Some(Vec::new()),
        },
        clicked: asked.clicked,
        after: after.map(|cursor::Dated(created_at, code)| Position { created_at, code }),
        until: None,
        limit: one_more(asked.limit),
    };
    if listing.target.is_some() {
        match app.listings.target_search().await? {
            TargetSearch::Complete => {}
            TargetSearch::Filling => {
                return Err(Problem::unavailable(
                    "Links are still being indexed by their target.",
                ));
            }
            TargetSearch::Off => return Err(Problem::targets_not_found()),
        }
    }
    let page = app.links.page(&listing).await?;
    let (links, next) = cut(page.links, listing.limit, |last| Position {
        created_at: last.created_at,
        code: last.code,
    });
    let next = next.or(page.read_to);
    let next_cursor =
        next.map(|it| cursor::encode(cursor::LINKS, cursor::Dated(it.created_at, it.code)));
    let links = bodies(&app, &domains, &links).await?;
    Ok(Json(PageBody { links, next_cursor }))
}

/// Describes links with their visits, in their order.
pub(super) async fn bodies(
    app: &App,
    domains: &Domains,
    links: &[Link],
) -> Result<Vec<LinkBody>, Problem> {
    let campaigns = Campaigns::of(app, links).await?;
    let codes: Vec<Code> = links.iter().map(|link| link.code).collect();
    let totals = app.listings.visit_totals(&codes).await?;
    let totals: HashMap<Code, LinkTotal> = totals.into_iter().map(|it| (it.code, it)).collect();
    let clicks = app.listings.link_clicks(&codes).await?;
    let clicks: HashMap<Code, LinkClicks> = clicks.into_iter().collect();
    let bodies = links.iter().map(|link| {
        let body = body(link, app, domains, &campaigns);
        body.visited(totals.get(&link.code), clicks.get(&link.code))
    });
    Ok(bodies.collect())
}

/// `GET /v1/links/{code}/history`: the changes of a link, the latest first.
async fn history(
    State(app): State<SharedApp>,
    _: MayRead,
    CodeInPath(code): CodeInPath,
    Asked(asked): Asked<PageQuery>,
) -> Result<Json<HistoryBody>, Problem> {
    let before = cursor::decode(cursor::HISTORY, asked.cursor)?;
    let limit = one_more(asked.limit);
    let history = app.store.link_history(&code, before, limit).await?;
    let history = history.ok_or_else(no_such_link)?;
    let (history, next_cursor) = cut(history, limit, |last| {
        cursor::encode(cursor::HISTORY, last.before.revision)
    });
    // A link never leaves its campaign.
    let links = history.iter().map(|change| &change.before);
    let campaigns = Campaigns::of(&app, links).await?;
    let ids: Vec<&str> = history.iter().map(|change| &*change.changed_by).collect();
    let names = app.store.key_names(&ids).await?;
    let history = history
        .iter()
        .map(|change| PastChangeBody::new(change, campaigns.of_link(&change.before), &names))
        .collect();
    Ok(Json(HistoryBody {
        history,
        next_cursor,
    }))
}
