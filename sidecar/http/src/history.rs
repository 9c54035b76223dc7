//! `GET /v1/links/{code}/history`

use axum::Json;
use axum::extract::State;

use super::app::SharedApp;
use super::auth::MayRead;
use super::campaign_links::Campaigns;
use super::cursor;
use super::extract::{CodeInPath, no_such_link};
use super::operation::operations;
use super::problem::Problem;
use super::query::{Asked, PageQuery, cut, one_more};
use super::wire::{HistoryBody, PastChangeBody};

operations! {
    get "/v1/links/{code}/history", "listLinkHistory", "Lists the history of a link", list {
        .text("The link before each of its changes, the latest change first.")
        .answers::<HistoryBody>(200, "A page of changes.")
    }
}

/// `GET /v1/links/{code}/history`: the changes of a link, the latest first.
async fn list(
    State(app): State<SharedApp>,
    _: MayRead,
    CodeInPath(code): CodeInPath,
    Asked(asked): Asked<PageQuery>,
) -> Result<Json<HistoryBody>, Problem> {
    let before = cursor::decode(cursor::HISTORY, asked.cursor)?;
    let limit = one_more(asked.limit);
    let history = app.links.history(&code, before, limit).await?;
    let history = history.ok_or_else(no_such_link)?;
    let (history, next_cursor) = cut(history, limit, |last| {
        cursor::encode(cursor::HISTORY, last.before.revision)
    });
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
