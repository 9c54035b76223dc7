//! `GET /v1/links`

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use shortlink_core::ports::{LinkTotal, Listing, Position};
use vocabulary::{CampaignId, Code, State as LinkState};

use super::app::SharedApp;
use super::auth::MayRead;
use super::campaign_links::Campaigns;
use super::extract::Domains;
use super::operation::operations;
use super::operation::parameter::{of, parameters, string};
use super::problem::Problem;
use super::query::{Asked, CURSOR, EXTERNAL_ID, LIMIT, Limit, OF_CAMPAIGN, cut, one_more, query};
use super::wire::{LinkBody, PageBody};
use super::{cursor, words};

parameters! {
    STATE: query "state", "LinkState", "Only links in this state.", of::<words::LinkState>;
    TAG: query "tag", "Tag", "Only links with this tag.", string;
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
        campaign: CampaignId = OF_CAMPAIGN,
        created_by: String = CREATED_BY,
    }
}

operations! {
    get "/v1/links", "listLinks", "Lists links, the latest first", list {
        .answers::<PageBody>(200, "A page of links.")
    }
}

/// `GET /v1/links`
async fn list(
    State(app): State<SharedApp>,
    _: MayRead,
    domains: Domains,
    Asked(asked): Asked<LinkQuery>,
) -> Result<Json<PageBody>, Problem> {
    let now = app.clock.now();
    let after = cursor::decode(cursor::LINKS, asked.cursor)?;
    let listing = Listing {
        state: asked.state.map(|state| (state, now)),
        tag: asked.tag,
        external_id: asked.external_id,
        campaign: asked.campaign,
        created_by: asked.created_by,
        after: after.map(|cursor::Dated(created_at, code)| Position { created_at, code }),
        until: None,
        limit: one_more(asked.limit),
    };
    let page = app.links.page(&listing).await?;
    let (links, next) = cut(page.links, listing.limit, |last| Position {
        created_at: last.created_at,
        code: last.code,
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
