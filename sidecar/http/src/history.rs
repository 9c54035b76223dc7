//! `GET /v1/links/{code}/history`

use axum::Json;
use axum::extract::{RawQuery, State};

use super::app::SharedApp;
use super::auth::MayRead;
use super::campaign_links::Campaigns;
use super::extract::{CodeInPath, no_such_link};
use super::operation::operations;
use super::operation::parameter::Parameter;
use super::problem::Problem;
use super::query::{CURSOR, LIMIT};
use super::wire::{HistoryBody, PastChangeBody};
use super::{cursor, query};

/// The parameters of the listing.
const QUERY: [Parameter; 2] = [LIMIT, CURSOR];

operations! {
    get "/v1/links/{code}/history", "listLinkHistory", "Lists the history of a link", list {
        .text("The link before each of its changes, the latest change first.")
        .query(&QUERY).answers::<HistoryBody>(200, "A page of changes.")
    }
}

/// `GET /v1/links/{code}/history`: the changes of a link, the latest first.
async fn list(
    State(app): State<SharedApp>,
    _: MayRead,
    CodeInPath(code): CodeInPath,
    RawQuery(query): RawQuery,
) -> Result<Json<HistoryBody>, Problem> {
    let mut limit = query::DEFAULT_LIMIT;
    let mut before = None;
    for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*name {
            "limit" => limit = query::limit(&value)?,
            "cursor" => {
                before = Some(cursor::decode(cursor::HISTORY, &value)?);
            }
            _ => return Err(query::only(&QUERY)),
        }
    }
    // One extra change shows whether there is another page.
    let history = app.links.history(&code, before, limit + 1).await?;
    let mut history = history.ok_or_else(no_such_link)?;
    let next_cursor = query::page(&mut history, limit)
        .map(|change| cursor::encode(cursor::HISTORY, change.before.revision));
    // A link never leaves its campaign.
    let links = history.iter().map(|change| &change.before);
    let campaigns = Campaigns::of(&app, links).await?;
    let history = history
        .iter()
        .map(|change| PastChangeBody::new(change, campaigns.of_link(&change.before)))
        .collect();
    Ok(Json(HistoryBody {
        history,
        next_cursor,
    }))
}
