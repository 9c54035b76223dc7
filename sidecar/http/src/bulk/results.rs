//! The results of a job, as NDJSON or CSV.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;
use futures_util::{Stream, stream};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use shortlink_core::bulk::BulkOutcome;
use shortlink_core::link::Refusal;
use shortlink_core::ports::StoreError;
use shortlink_service::new_link::LinkError;
use shortlink_store::Store;
use vocabulary::Code;

use crate::app::App;
use crate::extract::{header, no_such_link};
use crate::problem::{Problem, ProblemBody};
use crate::words;

/// The number of parts of results that are read at a time.
const PARTS_TOGETHER: u32 = 50;

/// The result of a link.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "JobResult")]
pub(super) struct ResultBody {
    /// Code of the link.
    #[schemars(with = "words::Code")]
    short_code: String,
    /// Status that a single request for this link would have had.
    status: u16,
    /// True if the link was changed; with `dryRun`, if it would be changed.
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
            BulkOutcome::PlanTooLong => refused(Refusal::PlanTooLong),
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

/// Answers with the results of a job so far, in the form that the client accepts.
pub(super) fn answer(app: &App, id: u64, headers: &HeaderMap) -> Response<Body> {
    let accept = header(headers, ACCEPT)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is_csv = accept.contains("text/csv");
    let media_type = match is_csv {
        true => "text/csv; charset=utf-8",
        false => "application/x-ndjson",
    };
    let body = Body::from_stream(lines(Arc::clone(&app.store), id, is_csv));
    ([(CONTENT_TYPE, media_type)], body).into_response()
}

/// Streams results in portions, as fast as the client reads them. If a read fails, the answer breaks off, so that the
/// client does not take it for complete.
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
