//! `/v1/jobs`: changes of many links at once, in the background.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use futures_util::{Stream, stream};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use shortlink_api::fields::Fields;
use shortlink_api::kinds::link::{CampaignId as CampaignText, ExternalId, Parameters};
use shortlink_api::kinds::{List, ShortText, Truth};
use shortlink_api::link::LinkPatch;
use shortlink_api::members::Usage;
use shortlink_core::bulk::{
    BulkAction, BulkJob, BulkOutcome, BulkState, Erased, MAX_CODES, NewBulkJob, SelectedBy,
    Selection,
};
use shortlink_core::link::{Change, Refusal, UploadId};
use shortlink_core::ports::StoreError;
use shortlink_service::access::Caller;
use shortlink_service::new_link::LinkError;
use shortlink_service::repeat::RowsDigest;
use shortlink_store::{BulkCreated, Store};
use vocabulary::{CampaignId, Code};

use super::app::{App, SharedApp};
use super::auth::{MayRead, MayWrite, check_reach, own_ids};
use super::cursor;
use super::extract::{Domains, LongJsonObject, header, in_path, no_such_link};
use super::idempotency::{IDEMPOTENCY_KEY, bad_key, idempotency_key};
use super::link_members::read_members;
use super::operation::parameter::parameters;
use super::operation::{operations, rows_of, text_of};
use super::problem::{Problem, ProblemBody};
use super::query::{Asked, PageQuery, cut, one_more};
use super::words;

/// The number of parts of results that are read at a time.
const PARTS_TOGETHER: u32 = 50;

/// The members that select links, of which a job has one.
const SELECTIONS: [&str; 5] = ["codes", "tag", "externalId", "campaignId", "uploadId"];

parameters! {
    JOB: path "id", "JobId", "Id of the job.", |_| json!({ "type": "integer", "minimum": 1 });
}

in_path! {
    /// The id of a job in the path.
    JobInPath(u64): JOB, no_such_job
}

/// 404: the job in the path is unknown.
fn no_such_job() -> Problem {
    Problem::not_found("There is no job with this id. Jobs are deleted 30 days after their end.")
}

/// A new job. One of `codes`, `tag`, `externalId`, `campaignId` and `uploadId` selects the links.
#[derive(JsonSchema)]
#[schemars(rename = "NewJob", rename_all = "camelCase")]
#[expect(
    dead_code,
    reason = "describes the body, whose members are read one by one"
)]
struct NewJobBody {
    /// Action for each link.
    action: words::JobAction,
    /// Members to change, for the action `change`; as in `PATCH /v1/links/{code}`, without `parameters`.
    #[schemars(with = "LinkPatch", skip_serializing_if = "Option::is_none")]
    change: Option<LinkPatch>,
    /// Codes of the links, at most 100,000; a repeated one counts once.
    #[schemars(with = "Vec<words::Code>", skip_serializing_if = "Option::is_none")]
    codes: Option<Vec<words::Code>>,
    /// Tag of the links.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    /// External id of the links.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    external_id: Option<String>,
    /// Campaign of the links.
    #[schemars(with = "words::CampaignId", skip_serializing_if = "Option::is_none")]
    campaign_id: Option<words::CampaignId>,
    /// Upload that created the links.
    #[schemars(with = "words::UploadId", skip_serializing_if = "Option::is_none")]
    upload_id: Option<words::UploadId>,
    /// Only find out what would happen: the job has the same results and changes nothing.
    #[schemars(with = "bool", skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
}

/// A job.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Job")]
pub(super) struct JobBody {
    id: u64,
    #[schemars(with = "words::JobAction")]
    action: &'static str,
    selection: SelectionBody,
    /// The job changes nothing.
    dry_run: bool,
    #[schemars(with = "words::JobState")]
    state: &'static str,
    /// Reason why the job has failed.
    reason: Option<String>,
    /// Number of selected links; `null` until they are counted.
    selected: Option<u64>,
    /// Number of links with a result.
    done: u64,
    /// Links that were changed; with `dryRun`, that would be.
    changed: u64,
    /// Links that needed no change.
    unchanged: u64,
    /// Links that could not be changed, and codes without a link.
    failed: u64,
    /// Id of the API key that the job acts for.
    created_by: String,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    /// Numbers of rows that an erasure has removed; only of the action `erase`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ErasedBody")]
    erased: Option<ErasedBody>,
}

/// Rows that an erasure has removed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Erased")]
pub(super) struct ErasedBody {
    /// Visits.
    visits: u64,
    /// User agents that may have lost their last visit: a daily job deletes those that have, after two days.
    agents: u64,
    /// Hourly counts of links, which were added to the totals of the links.
    counts: u64,
}

impl From<Erased> for ErasedBody {
    fn from(erased: Erased) -> Self {
        Self {
            visits: erased.visits,
            agents: erased.agents,
            counts: erased.counts,
        }
    }
}

/// The links that a job concerns: one of these members.
#[derive(Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "JobSelection")]
struct SelectionBody {
    /// Number of codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    codes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    external_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::CampaignId")]
    campaign_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::UploadId")]
    upload_id: Option<String>,
}

impl From<BulkJob> for JobBody {
    fn from(job: BulkJob) -> Self {
        let mut selection = SelectionBody::default();
        match job.selected_by {
            SelectedBy::Codes | SelectedBy::Other(Selection::Codes(_)) => {
                selection.codes = job.selected;
            }
            SelectedBy::Other(Selection::Tag(tag)) => selection.tag = Some(tag),
            SelectedBy::Other(Selection::ExternalId(id)) => selection.external_id = Some(id),
            SelectedBy::Other(Selection::Campaign(id)) => {
                selection.campaign_id = Some(id.to_string());
            }
            SelectedBy::Other(Selection::Upload(id)) => selection.upload_id = Some(id.to_string()),
        }
        Self {
            id: job.id,
            action: job.action.name(),
            selection,
            dry_run: job.is_trial,
            state: job.state.name(),
            reason: job.reason,
            selected: job.selected,
            done: job.counts.done(),
            changed: job.counts.changed,
            unchanged: job.counts.unchanged,
            failed: job.counts.failed,
            created_by: job.key_id,
            created_at: job.created_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
            erased: (job.action == BulkAction::Erase).then(|| job.erased.into()),
        }
    }
}

/// A page of a listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "JobPage")]
struct PageBody {
    /// The jobs.
    jobs: Vec<JobBody>,
    /// Cursor of the next page; `null` on the last page.
    next_cursor: Option<String>,
}

/// The result of a link.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "JobResult")]
struct ResultBody {
    /// Code of the link.
    #[schemars(with = "words::Code")]
    short_code: String,
    /// Status that a single request for this link would have had.
    status: u16,
    /// True if the link was changed; with `dryRun`, if it would be.
    changed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ProblemBody<'static>")]
    problem: Option<Box<RawValue>>,
}

impl ResultBody {
    fn new(code: Code, outcome: BulkOutcome) -> Self {
        let refused = |refusal| Some(Problem::from(LinkError::Refused { code, refusal }));
        let problem = match outcome {
            BulkOutcome::Changed | BulkOutcome::Unchanged => None,
            BulkOutcome::Unknown => Some(no_such_link()),
            BulkOutcome::Revoked => refused(Refusal::Revoked),
            BulkOutcome::NeverValid => refused(Refusal::NeverValid),
            BulkOutcome::OfCampaign => refused(Refusal::OfCampaign),
            BulkOutcome::OfNoCampaign => refused(Refusal::OfNoCampaign),
        };
        let problem = problem.map(|problem| problem.to_json());
        Self {
            short_code: code.to_string(),
            status: problem.as_ref().map_or(200, |(status, _)| status.as_u16()),
            changed: outcome == BulkOutcome::Changed,
            problem: problem.and_then(|(_, json)| RawValue::from_string(json).ok()),
        }
    }
}

operations! {
    post "/v1/jobs", "createJob", "Changes many links in the background", create {
        .text(
            "The job concerns the links that exist when it begins. Each link has the checks, the history and the entry in \
             the audit log of a single change. A job ends when its API key is revoked.",
        )
        .takes(&[IDEMPOTENCY_KEY])
        .takes_json::<NewJobBody, 2>([
            ("revoke", json!({ "action": "revoke", "uploadId": "3f0c9d24a6b1e857" })),
            ("extend", json!({
                "action": "change",
                "change": { "validUntil": "2030-12-31T23:59:59Z" },
                "tag": "spring",
                "dryRun": true,
            })),
        ])
        .answers::<JobBody>(202, "The job.").with(["Location"]).leads_to("id", JOB)
        .problems([bad_key(), Problem::other_request()])
    }
    get "/v1/jobs", "listJobs", "Lists jobs, the latest first", list {
        .answers::<PageBody>(200, "A page of jobs.")
    }
    get "/v1/jobs/{id}", "getJob", "Shows a job with its progress", find {
        .answers::<JobBody>(200, "The job.")
    }
    delete "/v1/jobs/{id}", "cancelJob", "Cancels a job", cancel {
        .text("Links that the job has changed stay changed. A job that has ended stays as it is.")
        .answers::<JobBody>(200, "The job.")
    }
    get "/v1/jobs/{id}/results", "listJobResults", "Lists the results of a job", results {
        .text(
            "A result for each link that the job is done with, each link once: one per line, or with `Accept: text/csv` \
             as CSV. After an error the answer breaks off.",
        )
        .answer(200, "The results so far.", [rows_of::<ResultBody>("application/x-ndjson"), text_of("text/csv")])
    }
}

/// `POST /v1/jobs`
async fn create(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    headers: HeaderMap,
    LongJsonObject(members): LongJsonObject,
) -> Result<Response<Body>, Problem> {
    let idempotency = idempotency_key(&headers)?.map(|key| (key, digest(&members)));
    let new = NewBulkJob {
        idempotency,
        ..read_new(&app, members, &domains, &caller)?
    };
    accept(&app, new).await
}

/// Stores a job, and answers with it.
async fn accept(app: &App, new: NewBulkJob) -> Result<Response<Body>, Problem> {
    match app.store.create_bulk_job(new).await? {
        BulkCreated::Different => Err(Problem::other_request()),
        BulkCreated::Job(job) => Ok(accepted(*job)),
    }
}

/// 202: the job goes on in the background.
pub(super) fn accepted(job: BulkJob) -> Response<Body> {
    let location = format!("/v1/jobs/{}", job.id);
    let body = Json(JobBody::from(job));
    (StatusCode::ACCEPTED, [(LOCATION, location)], body).into_response()
}

fn digest(members: &Map<String, Value>) -> [u8; 32] {
    let mut digest = RowsDigest::default();
    digest.add(b"a job");
    digest.add(Value::from_iter(members.clone()).to_string().as_bytes());
    digest.finish()
}

/// Reads a new job.
fn read_new(
    app: &App,
    members: Map<String, Value>,
    domains: &Domains,
    caller: &Caller,
) -> Result<NewBulkJob, Problem> {
    let mut fields = Fields::new(members);
    let action = fields.read::<ShortText<16>>("action").value();
    let action = fields.required("action", action);
    let action = action.and_then(|name| {
        let known = BulkAction::by_name(&name);
        fields.checked(
            "action",
            known.ok_or(format!("must be one of {}", BulkAction::NAMES)),
        )
    });
    let change = read_change(app, &mut fields, action, domains, caller);
    let selection = read_selection(&mut fields);
    let is_trial = fields.read::<Truth>("dryRun").value().unwrap_or_default();
    fields.finish()?;
    Ok(NewBulkJob {
        key_id: caller.key().id.clone(),
        // Both were noted as faults if they are missing.
        action: action.ok_or_else(Problem::internal)?,
        selection: selection.ok_or_else(Problem::internal)?,
        own: own_ids(caller),
        change,
        is_trial,
        idempotency: None,
        created_at: app.clock.now(),
    })
}

/// Reads the members to change.
fn read_change(
    app: &App,
    fields: &mut Fields,
    action: Option<BulkAction>,
    domains: &Domains,
    caller: &Caller,
) -> Change {
    let given = fields.read::<Parameters>("change").value();
    let Some(members) = given else {
        if action == Some(BulkAction::Change) {
            fields.require("change");
        }
        return Change::default();
    };
    if action.is_some_and(|action| action != BulkAction::Change) {
        fields.refuse("change", "is for the action change");
    }
    if members.is_empty() {
        fields.refuse("change", "must have a member");
    }
    fields.within("change", members, |inner| {
        if inner.has("parameters") {
            inner.ignore("parameters");
            inner.refuse(
                "parameters",
                "can't be changed by a job: every link has its own",
            );
        }
        read_members(app, inner, &domains.own, caller, Usage::Patch)
    })
}

/// Reads the selection, which is one of several members.
fn read_selection(fields: &mut Fields) -> Option<Selection> {
    let given: Vec<&str> = SELECTIONS
        .into_iter()
        .filter(|name| fields.has(name))
        .collect();
    let [one] = given[..] else {
        let names = SELECTIONS.join(", ");
        match given.get(1) {
            Some(name) => fields.refuse(
                name,
                format!("can't be with {}: give one of {names}", given[0]),
            ),
            None => fields.refuse_at(&[], format!("must select links with one of {names}")),
        }
        for name in SELECTIONS {
            fields.ignore(name);
        }
        return None;
    };
    match one {
        "codes" => {
            let codes = fields.read::<List<Code, words::Code>>("codes").value()?;
            let mut seen = HashSet::with_capacity(codes.len());
            let codes: Vec<Code> = codes
                .into_iter()
                .filter(|code| seen.insert(*code))
                .collect();
            if codes.is_empty() || codes.len() > MAX_CODES {
                fields.refuse("codes", format!("must be 1 to {MAX_CODES} codes"));
                return None;
            }
            Some(Selection::Codes(codes))
        }
        "tag" => fields
            .read::<ShortText<64>>("tag")
            .value()
            .map(Selection::Tag),
        "externalId" => fields
            .read::<ExternalId>("externalId")
            .value()
            .map(Selection::ExternalId),
        "campaignId" => {
            let text = fields.read::<CampaignText>("campaignId").value()?;
            let id = text.parse::<CampaignId>();
            fields.checked("campaignId", id).map(Selection::Campaign)
        }
        _ => {
            let text = fields.read::<ShortText<16>>("uploadId").value()?;
            let id = text.parse::<UploadId>();
            fields.checked("uploadId", id).map(Selection::Upload)
        }
    }
}

/// `GET /v1/jobs`
async fn list(
    State(app): State<SharedApp>,
    MayRead(caller): MayRead,
    Asked(asked): Asked<PageQuery>,
) -> Result<Json<PageBody>, Problem> {
    let before = cursor::decode(cursor::JOBS, asked.cursor)?;
    let limit = one_more(asked.limit);
    let jobs = app
        .store
        .list_bulk_jobs(before, own_ids(&caller).as_deref(), limit)
        .await?;
    let (jobs, next) = cut(jobs, limit, |last| cursor::encode(cursor::JOBS, last.id));
    Ok(Json(PageBody {
        jobs: jobs.into_iter().map(JobBody::from).collect(),
        next_cursor: next,
    }))
}

/// `GET /v1/jobs/{id}`
async fn find(
    State(app): State<SharedApp>,
    MayRead(caller): MayRead,
    JobInPath(id): JobInPath,
) -> Result<Json<JobBody>, Problem> {
    Ok(Json(reached(&app, &caller, id).await?.into()))
}

/// Finds a job that a caller reaches.
async fn reached(app: &App, caller: &Caller, id: u64) -> Result<BulkJob, Problem> {
    let job = app.store.find_bulk_job(id).await?;
    let creator = job.as_ref().map(|job| &*job.key_id);
    check_reach(caller, creator, no_such_job)?;
    job.ok_or_else(no_such_job)
}

/// `DELETE /v1/jobs/{id}`
async fn cancel(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    JobInPath(id): JobInPath,
) -> Result<Json<JobBody>, Problem> {
    reached(&app, &caller, id).await?;
    let key_id = Some(caller.key().id.clone());
    let now = app.clock.now();
    let ended = app
        .store
        .end_bulk_job(id, BulkState::Cancelled, None, key_id, now);
    Ok(Json(ended.await?.ok_or_else(no_such_job)?.into()))
}

/// `GET /v1/jobs/{id}/results`
async fn results(
    State(app): State<SharedApp>,
    MayRead(caller): MayRead,
    JobInPath(id): JobInPath,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    reached(&app, &caller, id).await?;
    let accept = header(&headers, ACCEPT)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is_csv = accept.contains("text/csv");
    let media_type = match is_csv {
        true => "text/csv; charset=utf-8",
        false => "application/x-ndjson",
    };
    let body = Body::from_stream(lines(Arc::clone(&app.store), id, is_csv));
    Ok(([(CONTENT_TYPE, media_type)], body).into_response())
}

/// Streams results in portions, as fast as the client reads them. If a read fails, the answer breaks off, so that the client
/// does not take it for complete.
fn lines(
    store: Arc<Store>,
    id: u64,
    is_csv: bool,
) -> impl Stream<Item = Result<Bytes, StoreError>> {
    stream::try_unfold((0, true), move |(after, is_first)| {
        let store = Arc::clone(&store);
        async move {
            let portion = store.bulk_results(id, after, PARTS_TOGETHER).await?;
            let (last, results) = match portion {
                Some(portion) => portion,
                // The names of the columns come also without rows.
                None if is_first && is_csv => (after, Vec::new()),
                None => return Ok(None),
            };
            let results = results
                .into_iter()
                .map(|(code, outcome)| ResultBody::new(code, outcome));
            let text = match is_csv {
                true => table(results, is_first),
                false => rows(results),
            };
            Ok(Some((Bytes::from(text), (last, false))))
        }
    })
}

fn rows(results: impl Iterator<Item = ResultBody>) -> Vec<u8> {
    let mut text = Vec::new();
    for result in results {
        // Serialization of this type cannot fail.
        let _ = serde_json::to_writer(&mut text, &result);
        text.push(b'\n');
    }
    text
}

fn table(results: impl Iterator<Item = ResultBody>, is_first: bool) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    if is_first {
        // Cannot fail: it writes texts to memory.
        let _ = writer.write_record(["shortCode", "status", "changed", "problem"]);
    }
    for result in results {
        let problem = result.problem.as_ref();
        let problem = problem.and_then(|it| serde_json::from_str::<Value>(it.get()).ok());
        let title = problem
            .as_ref()
            .and_then(|it| it["title"].as_str())
            .unwrap_or_default();
        let (status, changed) = (result.status.to_string(), result.changed.to_string());
        let _ = writer.write_record([&*result.short_code, &*status, &*changed, title]);
    }
    writer.into_inner().unwrap_or_default()
}
