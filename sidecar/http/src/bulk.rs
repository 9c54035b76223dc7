//! `/v1/jobs`: changes of many links at once, in the background.

mod body;
mod request;
mod results;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_core::bulk::{BulkJob, BulkState, NewBulkJob};
use shortlink_service::access::Caller;
use shortlink_store::BulkCreated;

use super::app::{App, SharedApp};
use super::auth::{MayRead, MayWrite, check_reach, own_ids};
use super::cursor;
use super::extract::{Domains, LongJsonObject, in_path};
use super::idempotency::{IDEMPOTENCY_KEY, bad_key, idempotency_key};
use super::operation::parameter::parameters;
use super::operation::{operations, rows_of, text_of};
use super::problem::Problem;
use super::query::{Asked, PageQuery, cut, one_more};
pub(super) use body::{ELSEWHERE, Elsewhere, ErasedBody, JobBody};
use request::{NewJobBody, digest, read_new};
use results::ResultBody;

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

operations! {
    post "/v1/jobs", "createJob", "Changes many links in the background", create {
        .text(
            "The job concerns the links that exist when it begins. Each link gets the checks, the \
             history and the audit log entry of a single change. A job ends when its API key is \
             revoked.",
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
            "One result for each link that the job has finished: one per line, or as CSV with \
             `Accept: text/csv`. After an error the answer breaks off.",
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
    Ok(results::answer(&app, id, &headers))
}
