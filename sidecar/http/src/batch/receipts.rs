//! `/v1/receipts`: stores delivery receipts, one per row.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use shortlink_api::fields::Fields;
use shortlink_api::members::{Members, Usage};
use shortlink_api::receipt;
use shortlink_core::receipt::{DeliveryReceipt, MAX_AHEAD, ReceiptOf, ReceiptOutcome};

use super::about_links::{self, Request, text_of, told};
use super::chunks::RawChunk;
use super::results::{Answer, Counts, to_line};
use super::{lines_of, pay_for, result_of_end};
use crate::app::SharedApp;
use crate::auth::{MayWriteReceipts, own_ids};
use crate::operation::Content;
use crate::problem::{Problem, ProblemBody};

/// An answer in lines.
pub(super) const LINES: Content = lines_of::<ReceiptResult>();

/// The result of a receipt.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReceiptResult {
    /// Number of the row, from 0.
    index: u64,
    /// 201 if the receipt was stored, 200 if the message has a status from a later time, or this one already; else the
    /// status of the problem, which is 404 if there is no such link.
    status: u16,
    /// The row's `externalId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    external_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ProblemBody<'static>")]
    problem: Option<Box<RawValue>>,
}

/// `POST /v1/receipts`
pub(super) async fn create(
    State(app): State<SharedApp>,
    MayWriteReceipts(caller): MayWriteReceipts,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    about_links::stream(app, caller, &headers, query, body, answer).await
}

/// Stores the receipts of a chunk.
async fn answer(request: Arc<Request>, chunk: RawChunk) -> Answer {
    let Request { app, caller, .. } = &*request;
    pay_for(caller, &chunk).await;
    let rows = chunk.rows.iter();
    let rows = rows.map(|row| row.members(&chunk.names, app.body_limit_bytes));
    let read: Vec<(Option<String>, Result<DeliveryReceipt, Problem>)> = rows
        .map(|row| {
            let external_id = text_of(&row, "externalId");
            (external_id, row.and_then(|row| read(&request, row)))
        })
        .collect();
    let receipts = read.iter().filter_map(|(_, receipt)| receipt.as_ref().ok());
    let receipts: Vec<DeliveryReceipt> = receipts.cloned().collect();
    let stored = match receipts.is_empty() {
        true => Ok(Vec::new()),
        false => app.store.keep_receipts(receipts, own_ids(caller)).await,
    };
    let mut stored = stored.map_err(Problem::from).map(Vec::into_iter);
    let mut results = Vec::with_capacity(read.len() + 1);
    let (mut counts, mut accepted) = (Counts::default(), 0);
    for ((external_id, receipt), index) in read.into_iter().zip(chunk.first_index..) {
        let outcome = receipt.and_then(|receipt| match &mut stored {
            Ok(outcomes) => match outcomes.next() {
                Some(ReceiptOutcome::Stored) => Ok((201, ())),
                Some(ReceiptOutcome::Unchanged) => Ok((200, ())),
                Some(ReceiptOutcome::Unknown) => Err(unknown(&receipt.of)),
                None => Err(Problem::internal()),
            },
            Err(problem) => Err(problem.clone()),
        });
        let (status, _, problem) = told(outcome);
        counts.count(status);
        accepted += u64::from(status < 400);
        results.push(to_line(&ReceiptResult {
            index,
            external_id,
            status,
            problem,
        }));
    }
    app.visit_counters
        .receipts
        .fetch_add(accepted, Ordering::Relaxed);
    results.extend(result_of_end(&chunk));
    Answer {
        results,
        counts,
        is_cut_off: chunk.broken.is_some(),
    }
}

fn unknown(of: &ReceiptOf) -> Problem {
    Problem::not_found(match of {
        ReceiptOf::Code(code) => format!("There is no link with the code {code}."),
        ReceiptOf::Recipient(campaign, external_id) => {
            format!("Campaign {campaign} has no link with the externalId {external_id:?}.")
        }
    })
}

/// Reads a row.
fn read(request: &Request, members: Map<String, Value>) -> Result<DeliveryReceipt, Problem> {
    let mut fields = Fields::new(members);
    let given = receipt::Receipt::read(&mut fields, Usage::New);
    let is_timed = given.at.is_some();
    let now = request.app.clock.now();
    let at = about_links::time(&mut fields, given.at, now, MAX_AHEAD);
    let status = fields.required("status", given.status);
    let code = about_links::code(&mut fields, given.short_code);
    let campaign = about_links::campaign(&mut fields, given.campaign_id);
    let of = match (code, given.external_id) {
        (Some(_), Some(_)) => {
            fields.refuse("externalId", "cannot be combined with shortCode");
            None
        }
        (Some(_), None) if campaign.is_some() => {
            fields.refuse(
                "campaignId",
                "is for externalId, and cannot be combined with shortCode",
            );
            None
        }
        (Some(code), None) => Some(ReceiptOf::Code(code)),
        (None, Some(external_id)) => fields
            .required("campaignId", campaign.or(request.campaign))
            .map(|campaign| ReceiptOf::Recipient(campaign, external_id)),
        (None, None) => {
            if !fields.is_refused("externalId") {
                fields.require("shortCode");
            }
            None
        }
    };
    fields.finish()?;
    match (of, status) {
        (Some(of), Some(status)) => Ok(DeliveryReceipt {
            of,
            at,
            is_timed,
            status,
            network: given.network.unwrap_or_default().trim().to_owned(),
        }),
        // Each has a fault above.
        _ => Err(Problem::internal()),
    }
}
