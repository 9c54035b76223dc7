//! Rows about links that exist, such as receipts: what their requests and members share.

use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use shortlink_api::fields::Fields;
use shortlink_service::access::Caller;
use vocabulary::{CampaignId, Code};

use super::Incoming;
use super::chunks::RawChunk;
use super::results::{Answer, raw};
use super::said_of_all::OF_OTHERS;
use crate::app::SharedApp;
use crate::problem::Problem;
use crate::query::only;

/// The state that all chunks of a request share.
pub(super) struct Request {
    pub(super) app: SharedApp,
    pub(super) caller: Caller,
    /// The campaign of the rows that name none.
    pub(super) campaign: Option<CampaignId>,
}

/// Reads the rows of a body in chunks, and streams what `answer` returns for each.
pub(super) async fn stream<F: Future<Output = Answer> + Send + 'static>(
    app: SharedApp,
    caller: Caller,
    headers: &HeaderMap,
    query: Option<String>,
    body: Body,
    answer: impl Fn(Arc<Request>, RawChunk) -> F + Send + 'static,
) -> Result<Response, Problem> {
    let (incoming, said) = Incoming::read(&app, &caller, headers, query).await?;
    if said.upload.is_some() {
        return Err(only(&OF_OTHERS));
    }
    let request = Arc::new(Request {
        app,
        caller,
        campaign: said.campaign_id,
    });
    let answer = move |chunk| answer(Arc::clone(&request), chunk);
    incoming.stream(body, false, None, answer).await
}

/// The text of a member of a row, which its result names also if the row is refused.
pub(super) fn text_of(row: &Result<Map<String, Value>, Problem>, name: &str) -> Option<String> {
    let value = row.as_ref().ok()?.get(name)?;
    value.as_str().map(str::to_owned)
}

/// Reads the code of a link.
pub(super) fn code(fields: &mut Fields, text: Option<String>) -> Option<Code> {
    let code = text?.parse().map_err(|_error| "must be the code of a link");
    fields.checked("shortCode", code)
}

/// Reads the id of a campaign.
pub(super) fn campaign(fields: &mut Fields, text: Option<String>) -> Option<CampaignId> {
    let id = text?.parse();
    fields.checked(
        "campaignId",
        id.map_err(|_error| "must be the id of a campaign"),
    )
}

/// Reads the time of a row, now by default, which may be ahead of the clock by so much.
pub(super) fn time(
    fields: &mut Fields,
    at: Option<Timestamp>,
    now: Timestamp,
    ahead: SignedDuration,
) -> Timestamp {
    let at = at.unwrap_or(now);
    if at > now + ahead {
        let most = ahead.as_secs();
        let detail = format!(
            "is {at}, and may be at most {most} seconds after the clock of the service: {now}"
        );
        fields.refuse("at", detail);
    }
    at
}

/// The status of a row with its result, or with its problem.
pub(super) fn told<T>(
    outcome: Result<(u16, T), Problem>,
) -> (u16, Option<T>, Option<Box<RawValue>>) {
    match outcome {
        Ok((status, result)) => (status, Some(result), None),
        Err(problem) => {
            let (status, problem) = problem.to_json();
            (status.as_u16(), None, raw(problem))
        }
    }
}
