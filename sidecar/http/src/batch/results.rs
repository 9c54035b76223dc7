//! The results of a batch: one for each row, as lines or as an array.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use futures_util::{Stream, StreamExt, stream};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use shortlink_core::api_key::ApiKey;
use shortlink_core::link::UploadId;
use shortlink_core::message::{Segments, replace};
use shortlink_core::short_url::Bases;
use shortlink_service::new_link::Stored;
use shortlink_service::repeat::RowResult;

use super::messages::Message;
use crate::campaign_links::Campaigns;
use crate::idempotency::status_of;
use crate::link_members::{LengthsFrom, not_created};
use crate::problem::{Problem, ProblemBody};
use crate::qr::no_domain;
use crate::wire::{WrittenBody, short_url};
use crate::words;

/// The results of a chunk, as JSON values, and the outcomes of its rows.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) results: Vec<String>,
    pub(super) counts: Counts,
    /// The rows behind it were not read, or its own not processed.
    pub(super) is_cut_off: bool,
}

impl Answer {
    /// The answer after an unexpected failure. Its rows are not counted, so that the summary differs from the file.
    pub(super) fn broken_off() -> Self {
        Self {
            results: vec![result_of_problem(None, &Problem::internal())],
            is_cut_off: true,
            ..Self::default()
        }
    }
}

/// The outcomes of rows.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "BatchCounts")]
pub(super) struct Counts {
    /// Number of rows that were read.
    pub(super) rows: u64,
    /// Number of results with the status 201.
    created: u64,
    /// Number of results with the status 200.
    existing: u64,
    /// Number of rows without a link.
    refused: u64,
}

impl Counts {
    /// Reports whether no row has a link.
    pub(super) fn is_refused(self) -> bool {
        self.refused == self.rows
    }

    /// Counts a row by its status.
    pub(super) fn count(&mut self, status: u16) {
        self.add(Self {
            rows: 1,
            created: u64::from(status == 201),
            existing: u64::from(status == 200),
            refused: u64::from(status >= 400),
        });
    }

    pub(super) fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.created += other.created;
        self.existing += other.existing;
        self.refused += other.refused;
    }
}

/// The last line of an answer, if the request asks for it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchSummary")]
pub(super) struct SummaryBody {
    summary: Sums,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BatchSums")]
struct Sums {
    #[serde(flatten)]
    counts: Counts,
    /// Number of bytes of the body that were read.
    bytes: u64,
    /// Upload that all links with the status 201 belong to; absent if rows are no links.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::UploadId")]
    upload_id: Option<String>,
}

/// The result of a row.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BatchResult")]
pub(crate) struct ResultBody {
    /// Number of the row, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    index: Option<u64>,
    /// The row's `externalId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    external_id: Option<String>,
    /// Status that a single request for this link would have had.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WrittenBody")]
    link: Option<WrittenBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ProblemBody<'static>")]
    problem: Option<Box<RawValue>>,
}

/// The result of a row of messages.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageResult {
    /// Number of the row, from 0.
    index: u64,
    /// The row's `externalId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    external_id: Option<String>,
    /// 201 if the message has a new link, else 200; the status of the problem if there is one.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MessageBody")]
    message: Option<MessageBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ProblemBody<'static>")]
    problem: Option<Box<RawValue>>,
}

/// A message with short links.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ShortenedMessage")]
struct MessageBody {
    /// Text with short links.
    text: String,
    /// Codes of the links, in the order of the text.
    #[schemars(with = "Vec<words::Code>")]
    codes: Vec<String>,
    /// Size of the text before.
    before: SizeBody,
    /// Size of the text with short links.
    after: SizeBody,
}

/// The size of a text as a message.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageSize")]
struct SizeBody {
    /// Encoding: GSM-7 if its alphabet has all characters, else UCS-2.
    #[schemars(extend("enum" = ["GSM-7", "UCS-2"]))]
    encoding: &'static str,
    /// Length in septets (GSM-7; characters of the extension table take two) or 16-bit units (UCS-2).
    length: usize,
    /// Number of segments that are sent.
    segments: usize,
}

impl SizeBody {
    fn of(text: &str) -> Self {
        let size = Segments::of(text);
        Self {
            encoding: size.encoding.name(),
            length: size.length,
            segments: size.count,
        }
    }
}

/// Writes the results of a chunk's rows.
pub(super) struct Teller<'a> {
    /// The campaigns that the rows name, if they could be read.
    pub(super) campaigns: Option<&'a Campaigns>,
    /// The API key that the results are for.
    pub(super) key: &'a ApiKey,
    pub(super) now: Timestamp,
    pub(super) bases: &'a Bases,
    /// Status and problem of links that could not be created, by error. One cause usually affects many rows, and is
    /// logged once for all of them.
    pub(super) failures: HashMap<String, (u16, String)>,
    pub(super) counts: Counts,
}

impl Teller<'_> {
    /// Writes the result of a row.
    pub(super) fn tell(
        &mut self,
        index: u64,
        (external_id, lengths_from): (Option<String>, LengthsFrom),
        result: RowResult,
    ) -> String {
        let (status, link, problem) = match self.outcome(result, lengths_from) {
            Ok(stored) => {
                // The campaigns of the request suffice: a link that is found equals the requested one.
                let campaign = self.campaigns.and_then(|known| known.of_link(&stored.link));
                let body = WrittenBody::new(&stored, self.key, campaign, self.now, self.bases);
                let status = if stored.is_new { 201 } else { 200 };
                (status, Some(body), None)
            }
            Err((status, problem)) => (status, None, raw(problem)),
        };
        self.counts.count(status);
        to_line(&ResultBody {
            index: Some(index),
            external_id,
            status,
            link,
            problem,
        })
    }

    /// Writes the result of a message; takes the results of its links.
    pub(super) fn tell_message(
        &mut self,
        index: u64,
        (external_id, lengths_from): (Option<String>, LengthsFrom),
        message: Result<Message, Problem>,
        results: &mut impl Iterator<Item = RowResult>,
    ) -> String {
        let told = message.map_err(|problem| {
            let (status, problem) = problem.to_json();
            (status.as_u16(), problem)
        });
        let told = told.and_then(|Message { text, urls }| {
            // All are taken, also after one that failed.
            let links: Vec<_> = results
                .take(urls.len())
                .map(|result| self.outcome(result, lengths_from))
                .collect();
            let links: Vec<_> = links.into_iter().collect::<Result<_, _>>()?;
            let on = |stored: &Stored| short_url(&stored.link, self.bases);
            let short: Option<Vec<String>> = links.iter().map(|stored| on(stored)).collect();
            let short = short.ok_or_else(|| {
                let (status, problem) = no_domain().to_json();
                (status.as_u16(), problem)
            })?;
            let shortened = replace(&text, &urls, short.into_iter().map(Cow::Owned));
            let codes = links
                .iter()
                .map(|stored| stored.link.code.as_str().to_owned());
            let body = MessageBody {
                before: SizeBody::of(&text),
                after: SizeBody::of(&shortened),
                text: shortened,
                codes: codes.collect(),
            };
            let is_new = links.iter().any(|stored| stored.is_new);
            Ok((if is_new { 201 } else { 200 }, body))
        });
        let (status, message, problem) = match told {
            Ok((status, body)) => (status, Some(body), None),
            Err((status, problem)) => (status, None, raw(problem)),
        };
        self.counts.count(status);
        to_line(&MessageResult {
            index,
            external_id,
            status,
            message,
            problem,
        })
    }

    /// The link of a result, or the status and the text of its problem.
    fn outcome(
        &mut self,
        result: RowResult,
        lengths_from: LengthsFrom,
    ) -> Result<Box<Stored>, (u16, String)> {
        match result {
            RowResult::Link(stored) => Ok(stored),
            RowResult::Problem(problem) => Err((status_of(&problem), problem)),
            RowResult::Failed(error) => {
                let cause = format!("{lengths_from:?} {error:?}");
                let told = self.failures.entry(cause).or_insert_with(|| {
                    let (status, problem) = not_created(error, lengths_from).to_json();
                    (status.as_u16(), problem)
                });
                Err(told.clone())
            }
        }
    }
}

/// Writes the result of an unreadable row, or of all rows that follow.
pub(super) fn result_of_problem(index: Option<u64>, problem: &Problem) -> String {
    let (status, problem) = problem.to_json();
    to_line(&ResultBody {
        index,
        external_id: None,
        status: status.as_u16(),
        link: None,
        problem: raw(problem),
    })
}

pub(super) fn to_line(body: &impl Serialize) -> String {
    // Serialization of these types cannot fail.
    serde_json::to_string(body).unwrap_or_default()
}

pub(super) fn raw(json: String) -> Option<Box<RawValue>> {
    RawValue::from_string(json).ok()
}

/// The answer as a result a line. With the number of bytes that were read, which is known at the end, and the upload, a
/// line with the summary follows.
pub(super) fn lines(
    answers: impl Stream<Item = Answer>,
    summed: Option<(Arc<AtomicU64>, Option<UploadId>)>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let mut counts = Counts::default();
    answers
        .map(Some)
        .chain(stream::iter([None]))
        .filter_map(move |answer| {
            let text = match (answer, &summed) {
                (Some(answer), _) => {
                    counts.add(answer.counts);
                    Some(answer.results.join("\n"))
                }
                (None, None) => None,
                (None, Some((bytes, upload))) => {
                    let summary = Sums {
                        counts,
                        bytes: bytes.load(Ordering::Relaxed),
                        upload_id: upload.map(|id| id.to_string()),
                    };
                    Some(to_line(&SummaryBody { summary }))
                }
            };
            std::future::ready(text.map(|text| Ok(Bytes::from(text + "\n"))))
        })
}

/// The answer as an array.
pub(super) fn array(
    answers: impl Stream<Item = Answer>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let mut begin = "[";
    answers
        .map(Some)
        .chain(stream::iter([None]))
        .map(move |answer| {
            Ok(Bytes::from(match answer {
                Some(Answer { results, .. }) => {
                    let begin = std::mem::replace(&mut begin, ",\n");
                    format!("{begin}{}", results.join(",\n"))
                }
                None if begin == "[" => "[]\n".to_owned(),
                None => "]\n".to_owned(),
            }))
        })
}
