//! `/v1/campaigns/{id}/clicks` and `/v1/campaigns/{id}/recipients`: which links were clicked, and since when.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;
use axum::{BoxError, Json};
use futures_util::stream;
use jiff::{Timestamp, Unit};
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::ports::{MOST_EXAMINED, Position, QuotaOwner, Recipient, StoreError};
use shortlink_core::trace;
use shortlink_store::Store;
use tokio_util::task::AbortOnDropHandle;
use vocabulary::{CampaignId, Code};

use super::app::SharedApp;
use super::audit::circumstances;
use super::auth::{MayRead, MayReadStats, own_ids};
use super::calendar::floor;
use super::campaigns::{self, CampaignInPath, no_such_campaign};
use super::operation::operations;
use super::problem::Problem;
use super::query::{Asked, CLICKED, CURSOR, LIMIT, Limit, cut, one_more, query};
use super::rows::{Format, RAW, page_or_rows};
use super::{cursor, words};

/// The number of links that are read at a time for a file.
const TOGETHER: u32 = 5_000;

operations! {
    get "/v1/campaigns/{id}/clicks", "getCampaignClicks", "Counts the clicked links of a campaign", count {
        .takes(&[campaigns::ID])
        .text("A link was clicked if it has a human visit that is not erased.")
        .answers::<ClicksBody>(200, "The counts.")
    }
    get "/v1/campaigns/{id}/recipients", "listRecipients", "Lists the links of a campaign with their clicks", list {
        .takes(&[campaigns::ID])
        .text(
            "The latest link first; `clicked` selects those with or without clicks. With \
             `Accept: application/x-ndjson` or `text/csv`, the answer has all of them, one per line. After an error it \
             breaks off."
        )
        .answer(200, "A page of recipients, or all recipients.", page_or_rows::<PageBody, RecipientBody>())
    }
}

/// The clicked links of a campaign.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CampaignClicks")]
pub(super) struct ClicksBody {
    /// Number of links that were ever created in the campaign.
    issued: u64,
    /// Number of these that were clicked, including links that were deleted afterwards.
    clicked: u64,
    /// Clicked links divided by issued ones, 0 to 1; null without links.
    click_rate: Option<f64>,
    /// Time at which the first of the campaign's links that are not deleted was created.
    first_link_at: Option<Timestamp>,
    /// Hours in which links were clicked for the first time, in chronological order.
    hours: Vec<HourBody>,
}

/// The links that were clicked for the first time in an hour.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FirstClicks")]
struct HourBody {
    begin: Timestamp,
    /// Number of hours since the hour of `firstLinkAt`: 0 for that hour itself; null without `firstLinkAt`.
    hours_after: Option<i64>,
    /// Number of links.
    links: u64,
}

/// `GET /v1/campaigns/{id}/clicks`
async fn count(
    State(app): State<SharedApp>,
    _: MayReadStats,
    CampaignInPath(id): CampaignInPath,
) -> Result<Json<ClicksBody>, Problem> {
    if app.store.find_campaign(id).await?.is_none() {
        return Err(no_such_campaign());
    }
    let hours = app.listings.first_clicks(id).await?;
    let owner = QuotaOwner::Campaign(id);
    let issued = app
        .listings
        .created_links(std::slice::from_ref(&owner))
        .await?;
    let issued = issued.get(&owner).copied().unwrap_or_default();
    let clicked = hours.iter().map(|it| it.links).sum();
    let first_link_at = app.listings.first_link_at(id).await?;
    let first_hour = first_link_at.map(|at| floor(at, Unit::Hour));
    let hours = hours.into_iter().map(|it| HourBody {
        begin: it.hour,
        hours_after: first_hour.map(|first| it.hour.duration_since(first).as_hours()),
        links: it.links,
    });
    Ok(Json(ClicksBody {
        issued,
        clicked,
        click_rate: (issued > 0).then(|| clicked as f64 / issued as f64),
        first_link_at,
        hours: hours.collect(),
    }))
}

/// A link of a campaign with its clicks.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Recipient")]
pub(super) struct RecipientBody {
    /// The caller's id of the link.
    external_id: Option<String>,
    #[schemars(with = "words::Code")]
    short_code: String,
    /// Time of the first human visit; null without one.
    first_click_at: Option<Timestamp>,
    /// Time of the last human visit.
    last_click_at: Option<Timestamp>,
    /// Number of human visits.
    clicks: u64,
}

impl From<Recipient> for RecipientBody {
    fn from(recipient: Recipient) -> Self {
        let clicks = recipient.clicks;
        Self {
            external_id: recipient.external_id,
            short_code: recipient.code.to_string(),
            first_click_at: clicks.map(|it| it.first_at),
            last_click_at: clicks.map(|it| it.last_at),
            clicks: clicks.map_or(0, |it| it.visits),
        }
    }
}

/// A page of a listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RecipientPage")]
struct PageBody {
    /// The recipients. A page can have fewer than `limit` of them, or none, although more pages follow.
    recipients: Vec<RecipientBody>,
    /// Cursor of the next page; `null` on the last page.
    next_cursor: Option<String>,
}

query! {
    /// The filter of the listing.
    RecipientQuery {
        limit: Limit = LIMIT,
        cursor: String = CURSOR,
        clicked: bool = CLICKED,
        raw: bool = RAW,
    }
}

/// The recipients that a request asks for.
#[derive(Clone)]
struct Selected {
    campaign: CampaignId,
    clicked: Option<bool>,
    /// The keys whose links the caller reaches; `None` if it reaches all.
    own: Option<Vec<String>>,
}

/// Selected recipients among the links of a campaign that were read, and the position of the last of these, if there may
/// be more.
struct Portion {
    recipients: Vec<Recipient>,
    next: Option<Position>,
}

impl Selected {
    /// Reads the next `most` links behind a position.
    async fn read(
        &self,
        store: &Store,
        after: Option<&Position>,
        most: u32,
    ) -> Result<Portion, StoreError> {
        let mut recipients = store.recipients(self.campaign, after, most).await?;
        let last = recipients
            .last()
            .filter(|_| recipients.len() == most as usize);
        let next = last.map(position);
        recipients.retain(|it| {
            let is_own = |own: &Vec<String>| own.contains(&it.created_by);
            self.clicked
                .is_none_or(|clicked| clicked == it.clicks.is_some())
                && self.own.as_ref().is_none_or(is_own)
        });
        Ok(Portion { recipients, next })
    }
}

fn position(recipient: &Recipient) -> Position {
    Position {
        created_at: recipient.created_at,
        code: recipient.code,
    }
}

/// `GET /v1/campaigns/{id}/recipients`: a page, or with `Accept: application/x-ndjson` or `text/csv` all of them.
async fn list(
    State(app): State<SharedApp>,
    MayRead(caller): MayRead,
    CampaignInPath(id): CampaignInPath,
    headers: HeaderMap,
    Asked(asked): Asked<RecipientQuery>,
) -> Result<Response<Body>, Problem> {
    let format = Format::accepted(&headers, asked.raw);
    let after: Option<cursor::Dated<Code>> = cursor::decode(cursor::RECIPIENTS, asked.cursor)?;
    let after = after.map(|cursor::Dated(created_at, code)| Position { created_at, code });
    if app.store.find_campaign(id).await?.is_none() {
        return Err(no_such_campaign());
    }
    let selected = Selected {
        campaign: id,
        clicked: asked.clicked,
        own: own_ids(&caller),
    };
    let Some(format) = format else {
        let page = page(&app.listings, &selected, after, one_more(asked.limit)).await?;
        return Ok(Json(page).into_response());
    };
    // Read before the answer begins, so that a failed query is answered with a problem.
    let first = selected
        .read(&app.listings, after.as_ref(), TOGETHER)
        .await?;
    let mut detail = circumstances(&headers);
    detail.extend(
        asked
            .clicked
            .map(|clicked| ("clicked".to_owned(), clicked.into())),
    );
    let entry = AuditEntry {
        at: app.clock.now(),
        key_id: Some(caller.key().id.clone()),
        action: Action::RecipientsExport,
        subject: Subject::Campaign(id),
        detail,
    };
    app.store.record(entry).await?;
    let rows = export(Arc::clone(&app.listings), selected, format, first);
    Ok(format.answer(Body::from_stream(rows)))
}

/// A page of recipients, of which `limit` are one more than it may have. Few of millions of links may match.
async fn page(
    store: &Store,
    selected: &Selected,
    mut after: Option<Position>,
    limit: u32,
) -> Result<PageBody, Problem> {
    let mut found = Vec::new();
    let mut examined = 0;
    loop {
        let portion = selected.read(store, after.as_ref(), limit).await?;
        found.extend(portion.recipients);
        after = portion.next;
        examined += limit;
        if found.len() >= limit as usize || after.is_none() || examined >= MOST_EXAMINED {
            break;
        }
    }
    let (recipients, next) = cut(found, limit, position);
    let next = next.or(after);
    let encode =
        |it: Position| cursor::encode(cursor::RECIPIENTS, cursor::Dated(it.created_at, it.code));
    Ok(PageBody {
        recipients: recipients.into_iter().map(RecipientBody::from).collect(),
        next_cursor: next.map(encode),
    })
}

/// Streams all selected recipients, as fast as the client reads them: a portion is read while the one before it is written.
/// If a read fails, the answer breaks off, so that the client does not take it for complete.
fn export(
    store: Arc<Store>,
    selected: Selected,
    format: Format,
    first: Portion,
) -> impl stream::Stream<Item = Result<Bytes, BoxError>> {
    let read_ahead = move |next: Option<Position>| {
        let (store, selected) = (Arc::clone(&store), selected.clone());
        let read = |after| async move { selected.read(&store, Some(&after), TOGETHER).await };
        next.map(|after| AbortOnDropHandle::new(trace::spawn(read(after))))
    };
    let reading = read_ahead(first.next);
    // The recipients that were read, the read that is under way, and whether nothing was written yet.
    let begin = (first.recipients, reading, true);
    stream::try_unfold(begin, move |(mut recipients, mut reading, is_first)| {
        let read_ahead = read_ahead.clone();
        async move {
            // A long walk may find nothing for a while.
            while recipients.is_empty() {
                let Some(read) = reading else {
                    return Ok(None);
                };
                let portion = read.await??;
                (recipients, reading) = (portion.recipients, read_ahead(portion.next));
            }
            let rows = recipients.into_iter().map(RecipientBody::from);
            Ok(Some((
                format.text(rows, is_first),
                (Vec::new(), reading, false),
            )))
        }
    })
}
