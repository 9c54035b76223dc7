//! `/v1/links`

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse;
use jiff::Timestamp;

use super::SharedApp;
use super::auth::{MayRead, MayWrite};
use super::cursor;
use super::extract::{CodeInPath, Domains, JsonObject, no_such_link};
use super::fields::{Fields, Member};
use super::new_link::{read_expiry, read_new_link, read_target};
use super::problem::Problem;
use super::wire::{LinkBody, PageBody, state_by_name};
use crate::domain::link::Change;
use crate::domain::ports::{Listing, Position};
use crate::domain::service::links::Stored;

/// How many links a page of a listing has, unless the client says otherwise, and at most.
const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 1000;

/// `POST /v1/links`
pub(super) async fn create(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    JsonObject(members): JsonObject,
) -> Result<impl IntoResponse, Problem> {
    let new = read_new_link(&app, members, &domains, &caller)?;
    let stored = app.links.create(new).await?;
    let location = format!("/v1/links/{}", stored.link.code);
    let body = body_of(&stored, &app, &domains);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(body)))
}

/// `GET /v1/links/{code}`
pub(super) async fn find(
    State(app): State<SharedApp>,
    _: MayRead,
    CodeInPath(code): CodeInPath,
    domains: Domains,
) -> Result<Json<LinkBody>, Problem> {
    let link = app.links.find(&code).await?.ok_or_else(no_such_link)?;
    let base = domains.base.as_deref();
    Ok(Json(LinkBody::new(&link, app.clock.now(), base)))
}

/// `PATCH /v1/links/{code}`
pub(super) async fn change(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    CodeInPath(code): CodeInPath,
    domains: Domains,
    JsonObject(members): JsonObject,
) -> Result<Json<LinkBody>, Problem> {
    let mut fields = Fields::new(members);
    let mut change = Change::default();
    match fields.text("longUrl") {
        Member::Value(text) => {
            change.target = read_target(&app, &mut fields, &text, &domains.own, &caller);
        }
        Member::Null => fields.refuse("longUrl", "must be a string"),
        Member::Absent => {}
    }
    match fields.redirect_status("redirectStatus") {
        Member::Value(status) => change.redirect_status = Some(status),
        Member::Null => fields.refuse("redirectStatus", "must be a number"),
        Member::Absent => {}
    }
    match fields.moment("validUntil") {
        Member::Value(moment) => {
            change.expires_at = Some(read_expiry(&app, &mut fields, moment));
        }
        Member::Null => change.expires_at = Some(None),
        Member::Absent => {}
    }
    fields.finish()?;

    let stored = app.links.change(&code, change).await?;
    let stored = stored.ok_or_else(no_such_link)?;
    Ok(Json(body_of(&stored, &app, &domains)))
}

/// `DELETE /v1/links/{code}`
pub(super) async fn revoke(
    State(app): State<SharedApp>,
    _: MayWrite,
    CodeInPath(code): CodeInPath,
    domains: Domains,
) -> Result<Json<LinkBody>, Problem> {
    let stored = app.links.revoke(&code).await?.ok_or_else(no_such_link)?;
    Ok(Json(body_of(&stored, &app, &domains)))
}

/// `GET /v1/links`
pub(super) async fn list(
    State(app): State<SharedApp>,
    _: MayRead,
    domains: Domains,
    RawQuery(query): RawQuery,
) -> Result<Json<PageBody>, Problem> {
    let now = app.clock.now();
    let mut listing = read_listing(&query.unwrap_or_default(), now)?;
    let page_length = listing.limit as usize;
    // One link more tells whether there is another page.
    listing.limit += 1;
    let mut links = app.links.list(&listing).await?;
    let has_more = links.len() > page_length;
    links.truncate(page_length);
    let last = links.last().filter(|_| has_more);
    let next_cursor = last.map(|link| {
        cursor::encode(&Position {
            created_at: link.created_at,
            code: link.code,
        })
    });
    let base = domains.base.as_deref();
    let links = links
        .iter()
        .map(|link| LinkBody::new(link, now, base))
        .collect();
    Ok(Json(PageBody { links, next_cursor }))
}

fn read_listing(query: &str, now: Timestamp) -> Result<Listing, Problem> {
    let mut listing = Listing {
        state: None,
        after: None,
        limit: DEFAULT_LIMIT,
    };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => {
                listing.limit = value
                    .parse()
                    .ok()
                    .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                    .ok_or_else(|| {
                        Problem::query(format!("limit must be a number from 1 to {MAX_LIMIT}."))
                    })?;
            }
            "cursor" => {
                let position = cursor::decode(&value).ok_or_else(|| {
                    Problem::query("cursor must be the nextCursor of an earlier answer.")
                })?;
                listing.after = Some(position);
            }
            "state" => {
                let state = state_by_name(&value).ok_or_else(|| {
                    Problem::query("state must be one of live, expired, revoked.")
                })?;
                listing.state = Some((state, now));
            }
            _ => {
                return Err(Problem::query(
                    "There are only the parameters limit, cursor and state.",
                ));
            }
        }
    }
    Ok(listing)
}

fn body_of(stored: &Stored, app: &SharedApp, domains: &Domains) -> LinkBody {
    LinkBody::new(&stored.link, app.clock.now(), domains.base.as_deref())
        .published(stored.published)
}
