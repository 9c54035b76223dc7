//! Reads rows of conversions, and reports the outcome of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use shortlink_api::conversion::Conversion;
use shortlink_api::fields::Fields;
use shortlink_api::members::{Members, Usage};
use shortlink_core::conversion::{ConversionOutcome, Converted, MAX_AHEAD, NewConversion};
use shortlink_service::access::Caller;
use vocabulary::{CampaignId, ClickId};

use super::about_links::{self, Request, text_of, told};
use super::chunks::RawChunk;
use super::results::{Answer, Counts, to_line};
use super::{Problem, lines_of, pay_for, result_of_end, said_of_all};
use crate::app::SharedApp;
use crate::auth::own_ids;
use crate::operation::Content;
use crate::operation::parameter::Parameter;
use crate::words;

/// The parameters of the query.
pub(crate) const PARAMETERS: [Parameter; 4] = said_of_all::OF_OTHERS;

/// The result of a row.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConversionResult {
    /// Number of the row, from 0.
    index: u64,
    /// The row's `conversionId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    conversion_id: Option<String>,
    /// 201 if the conversion or its refund was counted now, 200 if it was counted before; the status of the problem if there is one.
    status: u16,
    /// Code of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::Code")]
    short_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "crate::problem::ProblemBody<'static>")]
    problem: Option<Box<RawValue>>,
}

/// An answer in lines.
pub(crate) const LINES: Content = lines_of::<ConversionResult>();

/// 400: an array has no line for a summary, or the delimiter is unknown.
pub(crate) fn problems() -> [Problem; 2] {
    [super::no_summary(), said_of_all::bad_delimiter()]
}

/// Rows that this process was sent, by their outcome.
#[derive(Debug, Default)]
pub struct ConversionCounters {
    counted: AtomicU64,
    repeated: AtomicU64,
    refused: AtomicU64,
}

impl ConversionCounters {
    /// The names of outcomes and the numbers of rows.
    pub(crate) fn read(&self) -> [(&'static str, u64); 3] {
        let read = |it: &AtomicU64| it.load(Ordering::Relaxed);
        [
            ("counted", read(&self.counted)),
            ("repeated", read(&self.repeated)),
            ("refused", read(&self.refused)),
        ]
    }

    fn count(&self, status: u16) {
        let of_status = match status {
            201 => &self.counted,
            200 => &self.repeated,
            _ => &self.refused,
        };
        of_status.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts the conversions of a body, and answers with a result for each row.
pub(crate) async fn report(
    app: SharedApp,
    caller: Caller,
    headers: &HeaderMap,
    query: Option<String>,
    body: Body,
) -> Result<Response, Problem> {
    about_links::stream(app, caller, headers, query, body, answer).await
}

async fn answer(request: Arc<Request>, chunk: RawChunk) -> Answer {
    let Request {
        app,
        caller,
        campaign,
    } = &*request;
    pay_for(caller, &chunk).await;
    let now = app.clock.now();
    let mut reported = Vec::with_capacity(chunk.rows.len());
    let rows = chunk.rows.iter().map(|row| {
        let members = row.members(&chunk.names, app.body_limit_bytes);
        let id = text_of(&members, "conversionId");
        let read = members.and_then(|members| read(members, *campaign, now));
        let read = read.map(|conversion| reported.push(conversion));
        (id, read)
    });
    let rows: Vec<_> = rows.collect();
    let pointers: Vec<&str> = reported.iter().map(|it| pointer(&it.of)).collect();
    let outcomes = match reported.len() {
        0 => Ok(Vec::new()),
        _ => {
            app.store
                .report_conversions(reported, own_ids(caller))
                .await
        }
    };
    // One cause affects all rows, and is logged once.
    let outcomes = outcomes.map_err(Problem::from);
    let mut outcomes = outcomes.map(|it| it.into_iter().zip(pointers));
    let mut counts = Counts::default();
    let rows = rows.into_iter().zip(chunk.first_index..);
    let mut results: Vec<String> = rows
        .map(|((conversion_id, read), index)| {
            let outcome = read.and_then(|()| match &mut outcomes {
                Ok(outcomes) => {
                    let (outcome, pointer) = outcomes.next().ok_or_else(Problem::internal)?;
                    shown(outcome, pointer)
                }
                Err(problem) => Err(problem.clone()),
            });
            let (status, short_code, problem) = told(outcome);
            counts.count(status);
            app.conversions.count(status);
            to_line(&ConversionResult {
                index,
                conversion_id,
                status,
                short_code,
                problem,
            })
        })
        .collect();
    results.extend(result_of_end(&chunk));
    Answer {
        results,
        counts,
        is_cut_off: chunk.broken.is_some(),
    }
}

/// Reads a row; `of_all` is the campaign of rows that name none.
fn read(
    members: Map<String, Value>,
    of_all: Option<CampaignId>,
    now: Timestamp,
) -> Result<NewConversion, Problem> {
    let mut fields = Fields::new(members);
    let given = Conversion::read(&mut fields, Usage::New);
    let id = fields.required("conversionId", given.conversion_id);
    let code = about_links::code(&mut fields, given.short_code);
    let campaign = about_links::campaign(&mut fields, given.campaign_id).or(of_all);
    let click = given.click_id.and_then(|text| {
        let id = ClickId::parse(text.as_bytes());
        fields.checked("clickId", id.ok_or("must be a click id: 22 characters"))
    });
    let of = match (click, code, given.external_id) {
        (Some(_), Some(_), _) | (_, Some(_), Some(_)) => {
            fields.refuse("shortCode", "cannot be combined with clickId or externalId");
            None
        }
        (Some(_), None, Some(_)) => {
            fields.refuse("externalId", "cannot be combined with clickId");
            None
        }
        (Some(id), None, None) => Some(Converted::ClickId(id)),
        (None, Some(code), None) => Some(Converted::Code(code)),
        (None, None, Some(id)) => Some(Converted::ExternalId { id, campaign }),
        (None, None, None) => {
            if !["clickId", "shortCode"]
                .into_iter()
                .any(|it| fields.is_refused(it))
            {
                fields.require("externalId");
            }
            None
        }
    };
    let value = match (given.currency, given.value) {
        (None, Some(_)) if !fields.is_refused("currency") => {
            fields.refuse("currency", "is required with value");
            None
        }
        (Some(_), None) if !fields.is_refused("value") => {
            fields.refuse("value", "is required with currency");
            None
        }
        (currency, value) => currency.zip(value),
    };
    if given.refunded.is_some() {
        for (name, is_given) in [("value", value.is_some()), ("at", given.at.is_some())] {
            if is_given {
                fields.refuse(
                    name,
                    "cannot be combined with refunded: the conversion has it",
                );
            }
        }
    }
    let at = about_links::time(&mut fields, given.at, now, MAX_AHEAD);
    fields.finish()?;
    // Nothing was refused, so that both are there.
    let (id, of) = id.zip(of).ok_or_else(Problem::internal)?;
    Ok(NewConversion {
        of,
        id,
        at,
        value,
        refunded: given.refunded,
    })
}

/// The member that names the link.
fn pointer(of: &Converted) -> &'static str {
    match of {
        Converted::Code(_) => "/shortCode",
        Converted::ClickId(_) => "/clickId",
        Converted::ExternalId { .. } => "/externalId",
    }
}

/// The status and the code of an outcome.
fn shown(outcome: ConversionOutcome, pointer: &str) -> Result<(u16, String), Problem> {
    match outcome {
        ConversionOutcome::New(code) => Ok((201, code.to_string())),
        ConversionOutcome::Repeated(code) => Ok((200, code.to_string())),
        ConversionOutcome::Different(_) => Err(Problem::other_conversion()),
        ConversionOutcome::Erased(_) => Err(Problem::erased_conversion()),
        ConversionOutcome::NoConversion(_) => Err(Problem::unknown_conversion()),
        ConversionOutcome::TooMuch(_) => {
            let detail = "must be all, or at most the value of the conversion if it has one";
            Err(Problem::invalid("/refunded", detail))
        }
        ConversionOutcome::Unknown if pointer == "/clickId" => Err(Problem::unknown_click()),
        ConversionOutcome::Unknown => {
            let detail = "must name a link that this API key reaches";
            Err(Problem::invalid(pointer, detail))
        }
        ConversionOutcome::Ambiguous => {
            let detail = "is the id of several links: add campaignId, or send shortCode instead";
            Err(Problem::invalid(pointer, detail))
        }
    }
}
