//! `/v1/visits` and `/v1/links/{code}/visits`: visits one by one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;
use futures_util::stream;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::bulk::{BulkAction, BulkState, NewBulkJob, Selection};
use shortlink_core::link::Change;
use shortlink_core::ports::{KeptVisit, Listed, StoreError, VisitListing};
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::Versioned;
use shortlink_core::visit::class::Class;
use shortlink_service::access::Caller;
use shortlink_service::live::Full;
use shortlink_store::{BulkCreated, Store};
use vocabulary::{CampaignId, Code};

use super::app::{App, SharedApp};
use super::audit::circumstances;
use super::auth::{MayListen, MayReadStats, MayWrite, check_reach, check_reaches_all, own_ids};
use super::bulk::{ELSEWHERE, Elsewhere, ErasedBody, JobBody, accepted};
use super::extract::{CodeInPath, creator, no_such_link};
use super::feed::{self, AFTER, FeedBody, WAIT, Wait};
use super::operation::operations;
use super::problem::Problem;
use super::query::{
    Asked, CLASS, CURSOR, EXTERNAL_ID, LIMIT, Limit, OF_CAMPAIGN, OF_CODE, SINCE, UNTIL, cut,
    one_more, query,
};
use super::rows::{Format, RAW, page_or_rows};
use super::{cursor, words};

/// The number of visits read at a time for an export.
const TOGETHER: u32 = 1000;

/// A visit.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", remote = "KeptVisit")]
#[schemars(rename = "Visit")]
struct VisitMembers {
    #[serde(skip)]
    number: i64,
    at: Timestamp,
    #[serde(rename = "shortCode")]
    code: String,
    /// The short domain.
    #[serde(rename = "domain")]
    host: String,
    /// Status of the answer.
    status: u16,
    method: String,
    #[schemars(with = "words::VisitClass")]
    class: String,
    /// Reason for the class.
    reason: String,
    /// Version of the rules that determined the class.
    ruleset: u16,
    /// Pseudonym of the client, the same for all its visits on a day.
    visitor: Option<String>,
    /// Stored part of the client's address.
    client: Option<String>,
    country: Option<String>,
    province: Option<String>,
    city: Option<String>,
    isp: Option<String>,
    language: Option<String>,
    device: String,
    os: Option<String>,
    browser: Option<String>,
    /// App whose built-in browser was used.
    app: Option<String>,
    referrer_host: Option<String>,
    referrer: String,
    purpose: String,
    user_agent: String,
    /// Click id that the target got in the parameter that clickId of the campaign names.
    click_id: Option<String>,
    /// Variant of the rule that was followed; null for a rule without a name, and for the default target.
    variant: Option<String>,
}

// A visit in an answer. Not a doc comment: the schema is that of the members.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct VisitBody(#[serde(with = "VisitMembers")] pub(super) KeptVisit);

impl From<&Visit> for VisitBody {
    /// Equals the answer for the stored visit.
    fn from(visit: &Visit) -> Self {
        let (agent, place) = (&visit.agent, &visit.place);
        Self(KeptVisit {
            number: 0,
            at: visit.at,
            code: visit.code.clone(),
            host: visit.host.clone(),
            status: visit.status,
            method: visit.method_name().to_owned(),
            class: visit.classification.class.name().to_owned(),
            reason: visit.classification.reason.to_owned(),
            ruleset: visit.classification.ruleset,
            visitor: visit.visitor.map(|visitor| visitor.to_string()),
            client: visit.client.map(|client| client.to_string()),
            country: place.country.clone(),
            province: place.province.clone(),
            city: place.city.clone(),
            isp: place.isp.clone(),
            language: visit.language.clone(),
            device: agent.device.kind.name().to_owned(),
            os: agent.os.as_ref().map(Versioned::to_string),
            browser: agent.browser.as_ref().map(Versioned::to_string),
            app: agent.app.map(str::to_owned),
            referrer_host: visit.referrer_host.clone(),
            referrer: visit.referrer.clone(),
            purpose: visit.purpose.clone(),
            user_agent: visit.user_agent.clone(),
            click_id: visit.click.map(|id| id.to_string()),
            variant: visit.variant.clone(),
        })
    }
}

/// A page of a listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "VisitPage")]
pub(super) struct PageBody {
    /// The visits.
    visits: Vec<VisitBody>,
    /// Cursor of the next page; `null` on the last page.
    next_cursor: Option<String>,
}

/// An answer to the listing: a page of it, or of the feed.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum ListedBody {
    Page(PageBody),
    Feed(FeedBody),
}

query! {
    /// The filter of the listing.
    VisitQuery {
        limit: Limit = LIMIT,
        cursor: String = CURSOR,
        after: String = AFTER,
        wait: Wait = WAIT,
        class: Class = CLASS,
        code: Code = OF_CODE,
        campaign: CampaignId = OF_CAMPAIGN,
        since: Timestamp = SINCE,
        until: Timestamp = UNTIL,
        raw: bool = RAW,
    }
}

query! {
    /// The filter of the visits of one link.
    LinkVisitQuery {
        limit: Limit = LIMIT,
        cursor: String = CURSOR,
        class: Class = CLASS,
        since: Timestamp = SINCE,
        until: Timestamp = UNTIL,
        raw: bool = RAW,
    }
}

query! {
    /// Selects links whose visits are erased.
    ErasureQuery {
        external_id: String = EXTERNAL_ID,
        campaign: CampaignId = OF_CAMPAIGN,
    }
}

const ALL_VISITS: &str = "With `Accept: application/x-ndjson` or `text/csv`, the answer has all visits, one per line. \
                          After an error it breaks off.";

const ALL_OR_FEED: &str = "With `Accept: application/x-ndjson` or `text/csv`, the answer has all visits, one per line. \
                           After an error it breaks off. With `after`, the answer is a page of the feed: visits in the \
                           order in which they were stored, each exactly once. A page of the feed may have fewer visits \
                           than `limit`, or none, although more follow; it always has a cursor.";

operations! {
    get "/v1/visits", "listVisits", "Lists visits, the latest first", list {
        .text(ALL_OR_FEED)
        .answer(200, "A page of visits, or all visits.", page_or_rows::<ListedBody, VisitBody>())
        .problems([Problem::cursor_ahead(), feed::no_place(Full::OfKey)])
    }
    delete "/v1/visits", "eraseVisits", "Erases visits of some links", erase {
        .text(
            "Deletes the stored visits of all links with an `externalId` or of a campaign, also of deleted ones; one of \
             both parameters is required. Totals stay: they identify no visitor.",
        )
        .answers::<ErasureBody>(200, "The receipt.")
        .answers::<JobBody>(202, "The job that continues a large erasure.").with(["Location"])
    }
    get "/v1/links/{code}/visits", "listLinkVisits", "Lists visits of a link", of_link {
        .text(ALL_VISITS)
        .answer(200, "A page of visits, or all visits.", page_or_rows::<PageBody, VisitBody>())
    }
    delete "/v1/links/{code}/visits", "eraseLinkVisits", "Erases visits of a link", erase_of_link {
        .text("Deletes the stored visits of the link. Totals stay: they identify no visitor.")
        .answers::<ErasureBody>(200, "The receipt.")
        .answers::<JobBody>(202, "The job that continues a large erasure.").with(["Location"])
    }
}

/// `GET /v1/links/{code}/visits`: as [`list`] of one link.
async fn of_link(
    State(app): State<SharedApp>,
    MayReadStats(caller): MayReadStats,
    CodeInPath(code): CodeInPath,
    headers: HeaderMap,
    Asked(asked): Asked<LinkVisitQuery>,
) -> Result<Response<Body>, Problem> {
    let asked = VisitQuery {
        limit: asked.limit,
        cursor: asked.cursor,
        class: asked.class,
        code: Some(code),
        since: asked.since,
        until: asked.until,
        raw: asked.raw,
        ..VisitQuery::default()
    };
    answer(&app, &caller, &headers, asked).await
}

/// `GET /v1/visits`: a page, the last stored visits first, or with `Accept: application/x-ndjson` or `text/csv` all of
/// them.
async fn list(
    State(app): State<SharedApp>,
    MayListen(admission): MayListen,
    headers: HeaderMap,
    Asked(mut asked): Asked<VisitQuery>,
) -> Result<Response<Body>, Problem> {
    if let Some(after) = asked.after.take() {
        let page = feed::page(&app, &admission, after, asked).await?;
        return Ok(Json(ListedBody::Feed(page)).into_response());
    }
    for (is_given, parameter) in [
        (asked.wait.is_some(), WAIT),
        (asked.campaign.is_some(), OF_CAMPAIGN),
    ] {
        if is_given {
            return Err(Problem::query(format!(
                "{} needs the parameter after.",
                parameter.name
            )));
        }
    }
    let caller = admission.caller();
    check_code(&app, caller, asked.code.as_ref()).await?;
    answer(&app, caller, &headers, asked).await
}

async fn answer(
    app: &SharedApp,
    caller: &Caller,
    headers: &HeaderMap,
    asked: VisitQuery,
) -> Result<Response<Body>, Problem> {
    let format = Format::accepted(headers, asked.raw);
    let mut listing = asked.listing()?;
    let Some(format) = format else {
        let page = page(app, listing).await?;
        return Ok(Json(ListedBody::Page(page)).into_response());
    };
    let entry = exported(&listing, caller, app.clock.now(), headers);
    listing.limit = TOGETHER;
    app.store.record(entry).await?;
    // Read before the answer begins, so that a failed query is answered with a problem.
    let first = app.listings.list_visits(&listing).await?;
    let body = Body::from_stream(export(Arc::clone(&app.listings), listing, format, first));
    Ok(format.answer(body))
}

/// Checks that the caller reaches the visits of a link, or without one those of all links.
pub(super) async fn check_code(
    app: &SharedApp,
    caller: &Caller,
    code: Option<&Code>,
) -> Result<(), Problem> {
    if caller.key().own_ids().is_none() {
        return Ok(());
    }
    match code {
        None => check_reaches_all(caller, "name a link with the parameter code"),
        Some(code) => check_reach(caller, creator(app, code).await?.as_deref(), no_such_link),
    }
}

/// The entry of the audit log for an export.
fn exported(
    listing: &VisitListing,
    caller: &Caller,
    at: Timestamp,
    headers: &HeaderMap,
) -> AuditEntry {
    let key_id = &caller.key().id;
    let mut detail = circumstances(headers);
    let filters = [
        ("class", listing.class.map(|class| class.name().to_owned())),
        ("since", listing.since.map(|since| since.to_string())),
        ("until", listing.until.map(|until| until.to_string())),
    ];
    let given = filters.into_iter();
    let given = given.filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    detail.extend(given);
    AuditEntry {
        at,
        key_id: Some(key_id.clone()),
        action: Action::VisitsExport,
        subject: listing
            .code
            .map_or_else(|| Subject::Key(key_id.clone()), Subject::Link),
        detail,
    }
}

/// The receipt of an erasure.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Erasure")]
pub(super) struct ErasureBody {
    /// Number of links whose visits were deleted.
    links: u64,
    /// Number of deleted visits.
    visits: u64,
    /// Visits up to this time are erased. Those that arrive later are dropped.
    erased_at: Timestamp,
    /// Id of the job, which has the same numbers.
    job_id: u64,
    erased: ErasedBody,
    /// Places that the erasure does not reach.
    elsewhere: &'static [Elsewhere],
}

/// The time for which a request waits for the end of an erasure.
const AT_ONCE: Duration = Duration::from_secs(2);

/// `DELETE /v1/links/{code}/visits`: deletes the stored visits of a link.
async fn erase_of_link(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    CodeInPath(code): CodeInPath,
) -> Result<Response<Body>, Problem> {
    erase_by(&app, &caller, Selection::Codes(vec![code])).await
}

/// `DELETE /v1/visits`: the same for all links with an external id, or of a campaign.
async fn erase(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    Asked(asked): Asked<ErasureQuery>,
) -> Result<Response<Body>, Problem> {
    let selection = match (asked.external_id, asked.campaign) {
        (Some(id), None) => Selection::ExternalId(id),
        (None, Some(id)) => Selection::Campaign(id),
        _ => {
            return Err(Problem::query(
                "One of externalId and campaignId must be given.",
            ));
        }
    };
    erase_by(&app, &caller, selection).await
}

/// Creates a job that erases, and does its first steps: the answer to a small erasure has its receipt.
async fn erase_by(
    app: &App,
    caller: &Caller,
    selection: Selection,
) -> Result<Response<Body>, Problem> {
    let new = NewBulkJob {
        key_id: caller.key().id.clone(),
        action: BulkAction::Erase,
        selection,
        own: own_ids(caller),
        change: Change::default(),
        is_trial: false,
        idempotency: None,
        created_at: app.clock.now(),
    };
    let BulkCreated::Job(job) = app.store.create_bulk_job(new).await? else {
        return Err(Problem::internal());
    };
    let begun = Instant::now();
    let mut is_done = false;
    while !is_done && begun.elapsed() < AT_ONCE {
        let step = app.store.step_bulk_job(job.id, app.clock.now()).await?;
        is_done = step.is_last;
    }
    let found = app.store.find_bulk_job(job.id).await?;
    let job = found.ok_or_else(Problem::internal)?;
    // Another caller may have cancelled it meanwhile.
    if !is_done || job.state != BulkState::Done {
        return Ok(accepted(job));
    }
    let body = ErasureBody {
        links: job.counts.changed,
        visits: job.erased.visits,
        erased_at: job.created_at,
        job_id: job.id,
        erased: job.erased.into(),
        elsewhere: ELSEWHERE,
    };
    Ok(Json(body).into_response())
}

async fn page(app: &SharedApp, listing: VisitListing) -> Result<PageBody, Problem> {
    let Listed { items, read_to } = app.listings.list_visits(&listing).await?;
    let (visits, next) = cut(items, listing.limit, |last| last.number);
    let next = next.or(read_to);
    Ok(PageBody {
        visits: visits.into_iter().map(VisitBody).collect(),
        next_cursor: next.map(|number| cursor::encode(cursor::VISITS, number)),
    })
}

impl VisitQuery {
    fn listing(self) -> Result<VisitListing, Problem> {
        Ok(VisitListing {
            code: self.code,
            class: self.class,
            since: self.since,
            until: self.until,
            before: cursor::decode(cursor::VISITS, self.cursor)?,
            limit: one_more(self.limit),
        })
    }
}

/// Streams all visits of a listing in portions, as fast as the client reads them. If a read fails,
/// the answer breaks off, so that the client does not take it for complete.
fn export(
    store: Arc<Store>,
    listing: VisitListing,
    format: Format,
    first: Listed<KeptVisit>,
) -> impl stream::Stream<Item = Result<Bytes, StoreError>> {
    // The portion that was read, and the position of the next one.
    let begin = (Some(first), Some(listing), true);
    stream::try_unfold(begin, move |(mut read, mut next, is_first)| {
        let store = Arc::clone(&store);
        async move {
            loop {
                let portion = match (read.take(), &next) {
                    (Some(portion), _) => portion,
                    (None, Some(listing)) => store.list_visits(listing).await?,
                    (None, None) => return Ok(None),
                };
                let Listed { items, read_to } = portion;
                next = next.and_then(|listing| {
                    let is_full = items.len() >= listing.limit as usize;
                    let last = items.last().filter(|_| is_full);
                    let before = last.map(|last| last.number).or(read_to)?;
                    Some(VisitListing {
                        before: Some(before),
                        ..listing
                    })
                });
                // A long walk may find nothing for a while.
                if !items.is_empty() {
                    let text = format.text(items.into_iter().map(VisitBody), is_first);
                    return Ok(Some((text, (None, next, false))));
                }
            }
        }
    })
}
