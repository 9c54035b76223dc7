//! `/v1/links`: one link at a time.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ETAG, LOCATION};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::json;
use shortlink_api::fields::Fields;
use shortlink_api::link::{LinkPatch, NewLink};
use shortlink_api::members::Usage;
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Change, Expected, Link, Refusal};
use shortlink_core::ports::ChunkKey;
use shortlink_service::access::Caller;
use shortlink_service::links::EditedBy;
use shortlink_service::new_link::{LinkError, Stored};
use vocabulary::Code;

use super::app::{App, SharedApp};
use super::auth::{MayRead, MayWrite};
use super::campaign_links::{Campaigns, read_values};
use super::extract::{CODE, CodeInPath, Domains, JsonObject, no_such_link};
use super::idempotency::{
    IDEMPOTENCY_KEY, Once, bad_key, create_once, dedupes_twice, digest, idempotency_key,
};
use super::link_members::read_members;
use super::new_link::{not_created, read_new_link};
use super::operation::{Operation, operations};
use super::precondition::{IfMatch, etag};
use super::problem::{FieldError, Problem};
use super::wire::LinkBody;

operations! {
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
        .answers::<LinkBody>(201, "The new link.").with(["ETag", "Location"])
        .leads_to("shortCode", CODE)
        .answers::<LinkBody>(200, "The existing link (`dedupe`).").with(["ETag"])
        .problems([bad_key(), Problem::taken(), Problem::forgotten(), Problem::other_request()])
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
    delete "/v1/links/{code}", "revokeLink", "Revokes a link, for good", revoke {
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
}

/// Describes what all changes of a link share.
fn changes(operation: Operation) -> Operation {
    operation
        .answers::<LinkBody>(200, "The link after the change.")
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
    let campaigns = Campaigns::named(&app, [&members]).await?;
    let new = read_new_link(&app, members, &domains, &caller, &campaigns);
    let stored = match request {
        None => {
            let new = new?;
            let policy = new.policy;
            let created = app.links.create(new).await;
            created.map_err(|error| not_created(&app, policy, error))?
        }
        Some(_) if new.as_ref().is_ok_and(|new| new.dedupe) => {
            return Err(dedupes_twice());
        }
        Some((key, digest)) => match create_once(&app, key, digest, new).await? {
            Once::Made(stored) => *stored,
            Once::Told(answer) => return Ok(answer),
        },
    };
    let answer = answer_with(&stored, &app, &domains, &campaigns);
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
    let link = app.links.find(&code).await?.ok_or_else(no_such_link)?;
    let campaigns = Campaigns::of(&app, [&link]).await?;
    let totals = app.store.visit_totals(&[code]).await?;
    let body = body(&link, &app, &domains, &campaigns).visited(totals.first());
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
    fields.finish()?;
    let of_campaign = [
        (change.target.is_some(), "/longUrl"),
        (change.redirect_status.is_some(), "/redirectStatus"),
        (change.forward_query.is_some(), "/forwardQuery"),
    ];
    let (pointer, detail) = match change.valid_until {
        Some(_) => ("/validUntil", "must be later than the link's validSince"),
        None => ("/validSince", "must be before the link's validUntil"),
    };
    let editor = edited_by(&caller, expected);
    let changed = app.links.change(&code, change, editor).await;
    match changed {
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
        changed => answer_found(changed, &app, &domains).await,
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
    let link = app.links.find(code).await?.ok_or_else(no_such_link)?;
    let campaigns = Campaigns::of(app, [&link]).await?;
    let Some(campaign) = campaigns.of_link(&link) else {
        fields.refuse("parameters", "is for links of campaigns");
        fields.ignore("parameters");
        return Ok(None);
    };
    Ok(read_values(fields, campaign))
}

fn edited_by(caller: &Caller, expected: Expected) -> EditedBy {
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
    answer_found(app.links.pause(&code, editor).await, &app, &domains).await
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
    answer_found(app.links.resume(&code, editor).await, &app, &domains).await
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
    answer_found(app.links.revoke(&code, editor).await, &app, &domains).await
}

/// Answers with the link after a change, or with 404.
async fn answer_found(
    outcome: Result<Option<Stored>, LinkError>,
    app: &SharedApp,
    domains: &Domains,
) -> Result<Response<Body>, Problem> {
    let stored = outcome?.ok_or_else(no_such_link)?;
    let campaigns = Campaigns::of(app, [&stored.link]).await?;
    Ok(answer_with(&stored, app, domains, &campaigns))
}

fn answer_with(
    stored: &Stored,
    app: &App,
    domains: &Domains,
    campaigns: &Campaigns,
) -> Response<Body> {
    let body = body(&stored.link, app, domains, campaigns).published(stored.published);
    tagged(&stored.link, body)
}

fn body(link: &Link, app: &App, domains: &Domains, campaigns: &Campaigns) -> LinkBody {
    let bases = &domains.bases;
    LinkBody::new(link, campaigns.of_link(link), app.clock.now(), bases)
}

fn tagged(link: &Link, body: LinkBody) -> Response<Body> {
    ([(ETAG, etag(link))], Json(body)).into_response()
}
