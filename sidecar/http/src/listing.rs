//! `GET /v1/links`

use std::collections::HashMap;

use axum::Json;
use axum::extract::{RawQuery, State};
use jiff::Timestamp;
use shortlink_core::ports::{LinkTotal, Listing, Position};
use vocabulary::{CampaignId, Code, State as LinkState};

use super::app::SharedApp;
use super::auth::MayRead;
use super::campaign_links::Campaigns;
use super::extract::Domains;
use super::operation::operations;
use super::operation::parameter::{Parameter, of, parameters, string};
use super::problem::Problem;
use super::query::{CURSOR, EXTERNAL_ID, LIMIT, OF_CAMPAIGN};
use super::wire::{LinkBody, PageBody};
use super::{cursor, query, words};

parameters! {
    STATE: query "state", "LinkState", "Only links in this state.", of::<words::LinkState>;
    TAG: query "tag", "Tag", "Only links with this tag.", string;
    CREATED_BY: query "createdBy", "CreatedBy",
        "Only links that this API key has created.", string;
}

/// The parameters of the listing.
const QUERY: [Parameter; 7] = [
    LIMIT,
    CURSOR,
    STATE,
    TAG,
    EXTERNAL_ID,
    OF_CAMPAIGN,
    CREATED_BY,
];

operations! {
    get "/v1/links", "listLinks", "Lists links, the latest first", list {
        .query(&QUERY).answers::<PageBody>(200, "A page of links.")
    }
}

/// `GET /v1/links`
async fn list(
    State(app): State<SharedApp>,
    _: MayRead,
    domains: Domains,
    RawQuery(query): RawQuery,
) -> Result<Json<PageBody>, Problem> {
    let now = app.clock.now();
    let mut listing = read_listing(&query.unwrap_or_default(), now)?;
    let limit = listing.limit;
    // One extra link shows whether there is another page.
    listing.limit += 1;
    let page = app.links.page(&listing).await?;
    let mut links = page.links;
    let next = query::page(&mut links, limit).map(|link| Position {
        created_at: link.created_at,
        code: link.code,
    });
    let next = next.or(page.read_to);
    let next_cursor =
        next.map(|it| cursor::encode(cursor::LINKS, cursor::Dated(it.created_at, it.code)));
    let bases = &domains.bases;
    let campaigns = Campaigns::of(&app, &links).await?;
    let codes: Vec<Code> = links.iter().map(|link| link.code).collect();
    let totals = app.store.visit_totals(&codes).await?;
    let totals: HashMap<Code, LinkTotal> = totals.into_iter().map(|it| (it.code, it)).collect();
    let links = links
        .iter()
        .map(|link| {
            let body = LinkBody::new(link, campaigns.of_link(link), now, bases);
            body.visited(totals.get(&link.code))
        })
        .collect();
    Ok(Json(PageBody { links, next_cursor }))
}

fn read_listing(query: &str, now: Timestamp) -> Result<Listing, Problem> {
    let mut listing = Listing {
        limit: query::DEFAULT_LIMIT,
        ..Listing::default()
    };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => listing.limit = query::limit(&value)?,
            "cursor" => {
                listing.after = {
                    let cursor::Dated(created_at, code) = cursor::decode(cursor::LINKS, &value)?;
                    Some(Position { created_at, code })
                };
            }
            "state" => {
                let state = LinkState::by_name(&value);
                let state = state.ok_or_else(|| {
                    let names = LinkState::ALL.map(LinkState::name).join(", ");
                    Problem::query(format!("state must be one of {names}."))
                })?;
                listing.state = Some((state, now));
            }
            "tag" => listing.tag = Some(value.into_owned()),
            "externalId" => listing.external_id = Some(value.into_owned()),
            "campaignId" => {
                let id = CampaignId::parse(value.as_bytes()).ok_or_else(|| {
                    Problem::query("campaignId must be the id of a campaign.".to_owned())
                })?;
                listing.campaign = Some(id);
            }
            "createdBy" => listing.created_by = Some(value.into_owned()),
            _ => return Err(query::only(&QUERY)),
        }
    }
    Ok(listing)
}
