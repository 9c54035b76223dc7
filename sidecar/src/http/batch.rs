//! `/v1/links/batch`: any number of links with one request.
//!
//! Rows are read while they arrive, made into links a chunk at a time, and answered in their
//! order, one result for each. Memory is bounded: when chunks are not finished as fast as they
//! arrive, or the client does not read its answer, no more is read. A row that is wrong is told
//! by its index and harms no other.
//!
//! With an `Idempotency-Key` the request can be sent again after whatever has happened: chunks
//! are cut by what the client has sent and nothing else, and what became of each is kept with its
//! links.

mod rows;
pub(super) mod said_of_all;

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Peekable};
use futures_util::{Stream, StreamExt};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::SharedApp;
use super::auth::MayWrite;
use super::campaign_links::Campaigns;
use super::extract::Domains;
use super::idempotency::{idempotency_key, status_of};
use super::new_link::read_new_link;
use super::problem::{FieldError, Problem, ProblemBody};
use super::wire::LinkBody;
use crate::domain::ports::{ChunkKey, MAX_TOGETHER};
use crate::domain::service::access::{Caller, ChargeError};
use crate::domain::service::links::{LinkError, NewLink};
use crate::domain::service::repeat::{RepeatError, RowResult, RowsDigest};
use crate::trace;
use rows::{BadRow, BrokenBody, Format, RawRow, Rows};
use said_of_all::SaidOfAll;

/// The most bytes of rows in a chunk, so that long rows do not make it large.
const CHUNK_BYTES: usize = 2 << 20;

/// How many chunks are worked on at once. While one is being made durable another is read and a
/// third published.
const CHUNKS_AT_ONCE: usize = 4;

/// How long the rows that are there wait for others to fill a chunk.
const PATIENCE: Duration = Duration::from_millis(50);

/// `POST /v1/links/batch`
pub(super) async fn create(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    let format = format_of(&headers).ok_or_else(Problem::not_rows)?;
    let said = SaidOfAll::read(&app, &query.unwrap_or_default(), format).await?;
    let idempotency_key = idempotency_key(&headers)?;
    let answers_array = wants_array(&headers, format);
    let rows = Rows::new(format, app.body_limit_bytes, said.csv.clone());
    let context = Arc::new(Context {
        app: Arc::clone(&app),
        domains,
        caller,
        said,
        idempotency_key,
    });
    // Who expects "100 Continue" is told it when the body is asked for, and no more once the answer
    // has begun: curl would wait a second for it.
    let mut body = body.into_data_stream().peekable();
    if headers.contains_key(EXPECT) {
        Pin::new(&mut body).peek().await;
    }
    let reader = Reader {
        body,
        rows,
        read: Vec::new(),
        waits: context.idempotency_key.is_some(),
        next_index: 0,
        next_chunk: 0,
        end: None,
    };
    let results = chunks(reader)
        .map(move |chunk| {
            let context = Arc::clone(&context);
            // On its own, so that other chunks go on meanwhile, and so that what was begun is
            // finished when the client leaves.
            trace::spawn(async move { context.answer(chunk).await })
        })
        .buffered(CHUNKS_AT_ONCE)
        .map(|answered| answered.unwrap_or_else(|_panic| Answer::broken_off()));
    let (media_type, body) = if answers_array {
        ("application/json", Body::from_stream(array(results)))
    } else {
        ("application/x-ndjson", Body::from_stream(lines(results)))
    };
    Ok((StatusCode::OK, [(CONTENT_TYPE, media_type)], body).into_response())
}

/// What all chunks of a request share.
struct Context {
    app: SharedApp,
    domains: Domains,
    caller: Caller,
    said: SaidOfAll,
    idempotency_key: Option<String>,
}

/// Cuts a body into chunks.
struct Reader {
    body: Peekable<BodyDataStream>,
    rows: Rows,
    /// Rows that are in no chunk yet.
    read: Vec<RawRow>,
    /// Whether chunks are filled, however long that takes: when a request is sent again its
    /// chunks must be the same.
    waits: bool,
    next_index: u64,
    next_chunk: u32,
    /// How the body has ended, once it has.
    end: Option<Result<(), BrokenBody>>,
}

/// Rows that are made into links together.
struct RawChunk {
    number: u32,
    /// The index of the first row.
    first_index: u64,
    rows: Vec<RawRow>,
    /// The names of CSV values; those without one are left out.
    names: Vec<Option<String>>,
    /// Why there are no more rows, if that is not because all were read.
    broken: Option<BrokenBody>,
}

/// The results of a chunk, as JSON values.
struct Answer(Vec<String>);

impl Answer {
    /// Something that must not happen has happened.
    fn broken_off() -> Self {
        Self(vec![result_of_problem(None, None, &Problem::internal())])
    }
}

fn chunks(reader: Reader) -> impl Stream<Item = RawChunk> {
    stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((chunk, reader))
    })
}

impl Reader {
    async fn next(&mut self) -> Option<RawChunk> {
        let mut cut = self.cut();
        while cut == 0 && self.end.is_none() {
            let part = if self.read.is_empty() || self.waits {
                self.body.next().await
            } else {
                match tokio::time::timeout(PATIENCE, self.body.next()).await {
                    Ok(part) => part,
                    Err(_elapsed) => {
                        cut = self.read.len();
                        break;
                    }
                }
            };
            let pushed = match part {
                Some(Ok(part)) => self.rows.push(&part, &mut self.read),
                Some(Err(_broken)) => {
                    // Made into links, what there is of a chunk would be another chunk than the whole
                    // one that comes when the request is sent again.
                    if self.waits {
                        self.read.clear();
                    }
                    Err(BrokenBody("broke off"))
                }
                None => {
                    self.end = Some(Ok(()));
                    self.rows.finish(&mut self.read)
                }
            };
            if let Err(broken) = pushed {
                self.end = Some(Err(broken));
            }
            cut = self.cut();
        }
        if cut == 0 {
            cut = self.read.len();
        }
        let rest = self.read.split_off(cut);
        let rows = std::mem::replace(&mut self.read, rest);
        // Told once, behind the last row.
        let broken = match &mut self.end {
            Some(end) if self.read.is_empty() => std::mem::replace(end, Ok(())).err(),
            _ => None,
        };
        if rows.is_empty() && broken.is_none() {
            return None;
        }
        let chunk = RawChunk {
            number: self.next_chunk,
            first_index: self.next_index,
            names: self.rows.names().to_vec(),
            rows,
            broken,
        };
        self.next_chunk += 1;
        self.next_index += chunk.rows.len() as u64;
        Some(chunk)
    }

    /// How many of the rows that were read fill a chunk; 0 when they do not. It depends on the
    /// rows alone.
    fn cut(&self) -> usize {
        let mut bytes = 0;
        for (place, row) in self.read.iter().enumerate() {
            bytes += row.len();
            if place + 1 == MAX_TOGETHER || bytes >= CHUNK_BYTES {
                return place + 1;
            }
        }
        0
    }
}

/// A row that was read: what is echoed of it, and the link that is to be.
struct Read {
    external_id: Option<String>,
    link: Result<NewLink, Problem>,
}

impl Context {
    /// Makes the links of a chunk and says what became of each.
    async fn answer(&self, chunk: RawChunk) -> Answer {
        self.pay(&chunk).await;
        let mut external_ids = Vec::with_capacity(chunk.rows.len());
        let mut links = Vec::with_capacity(chunk.rows.len());
        let mut digest = RowsDigest::default();
        self.said.add_to(&mut digest);
        let mut rows = Vec::with_capacity(chunk.rows.len());
        for row in &chunk.rows {
            if self.idempotency_key.is_some() {
                row.for_each_part(|part| digest.add(part));
            }
            let mut members = row.members(&chunk.names);
            if let (Ok(members), Some(id)) = (&mut members, self.said.campaign_id) {
                let campaign = members.entry("campaignId");
                campaign.or_insert_with(|| Value::from(id.to_string()));
            }
            rows.push(members);
        }
        let named = rows.iter().filter_map(|row| row.as_ref().ok());
        let campaigns = Campaigns::named(&self.app, named).await;
        for row in rows {
            let Read { external_id, link } = self.read(row, campaigns.as_ref());
            external_ids.push(external_id);
            links.push(link);
        }
        let results = match &self.idempotency_key {
            // Nothing is kept of a chunk that has no rows: where they are missing, they may yet come.
            _ if links.is_empty() => Vec::new(),
            None => self.create(links).await,
            Some(key) => {
                let key = ChunkKey {
                    key_id: self.caller.key().id.clone(),
                    idempotency_key: key.clone(),
                    chunk: chunk.number,
                };
                self.create_once(key, digest, links).await
            }
        };
        let now = self.app.clock.now();
        let bases = &self.domains.bases;
        let mut failures = Failures::default();
        let mut answers: Vec<String> = results
            .into_iter()
            .zip(external_ids)
            .zip(chunk.first_index..)
            .map(|((result, external_id), index)| {
                let (status, link, problem) = match result {
                    RowResult::Link(stored) => {
                        // The same campaigns: a link that was found is as it was asked for.
                        let campaign = campaigns.as_ref().ok();
                        let campaign = campaign.and_then(|known| known.of_link(&stored.link));
                        let body = LinkBody::new(&stored.link, campaign, now, bases);
                        let status = if stored.is_new { 201 } else { 200 };
                        (status, Some(body.published(stored.published)), None)
                    }
                    RowResult::Problem(problem) => (status_of(&problem), None, raw(problem)),
                    RowResult::Failed(error) => {
                        let (status, problem) = failures.tell(error);
                        (status, None, raw(problem))
                    }
                };
                to_line(&ResultBody {
                    index: Some(index),
                    external_id,
                    status,
                    link,
                    problem,
                })
            })
            .collect();
        if let Some(BrokenBody(reason)) = chunk.broken {
            let problem = Problem::malformed(format!("The body {reason}."));
            let index = chunk.first_index + chunk.rows.len() as u64;
            answers.push(result_of_problem(Some(index), None, &problem));
        }
        Answer(answers)
    }

    /// Takes a unit of the key's rate limit for each row but the first of all, which the request
    /// has paid for, and waits until they are there: a batch is made slow and not refused.
    async fn pay(&self, chunk: &RawChunk) {
        let first = usize::from(chunk.first_index == 0);
        let rows = chunk.rows.len().saturating_sub(first);
        let mut due = u32::try_from(rows).unwrap_or(u32::MAX);
        let mut at_once = due;
        while due > 0 {
            match self.caller.charge(at_once) {
                Ok(()) => {
                    due -= at_once;
                    at_once = at_once.min(due);
                }
                Err(ChargeError::TooMany { most }) => at_once = most.clamp(1, due),
                Err(ChargeError::Exceeded { retry_after }) => {
                    tokio::time::sleep(retry_after).await;
                }
            }
        }
    }

    fn read(
        &self,
        row: Result<Map<String, Value>, BadRow>,
        campaigns: Result<&Campaigns, &Problem>,
    ) -> Read {
        let members = match row {
            Ok(members) => members,
            Err(bad) => {
                return Read {
                    external_id: None,
                    link: Err(self.problem_of(bad)),
                };
            }
        };
        let external_id = members.get("externalId").and_then(Value::as_str);
        Read {
            external_id: external_id.map(str::to_owned),
            link: campaigns
                .map_err(Problem::clone)
                .and_then(|campaigns| self.read_link(members, campaigns)),
        }
    }

    fn read_link(
        &self,
        members: Map<String, Value>,
        campaigns: &Campaigns,
    ) -> Result<NewLink, Problem> {
        let new = read_new_link(&self.app, members, &self.domains, &self.caller, campaigns)?;
        if new.dedupe && self.idempotency_key.is_some() {
            return Err(Problem::validation(vec![FieldError {
                pointer: "/dedupe".to_owned(),
                detail: "can't be with an Idempotency-Key, which does the same and more".to_owned(),
            }]));
        }
        Ok(new)
    }

    fn problem_of(&self, bad: BadRow) -> Problem {
        let about = |pointer: String, detail: String| {
            Problem::validation(vec![FieldError { pointer, detail }])
        };
        match bad {
            BadRow::Json { line, column } => Problem::malformed(format!(
                "The row is not valid JSON: line {line}, column {column} of the row."
            )),
            BadRow::NotAnObject => about(String::new(), "must be a JSON object".to_owned()),
            BadRow::Values { values, names } => about(
                String::new(),
                format!("has {values} values, but the first line has {names} names"),
            ),
            BadRow::Value { name, expected } => about(
                format!("/{}", name.replace('.', "/")),
                format!("must be {expected}"),
            ),
            BadRow::TooLong => Problem::too_large(self.app.body_limit_bytes),
        }
    }

    async fn create(&self, links: Vec<Result<NewLink, Problem>>) -> Vec<RowResult> {
        let mut good = Vec::with_capacity(links.len());
        let mut results: Vec<Option<RowResult>> = Vec::with_capacity(links.len());
        for link in links {
            match link {
                Ok(link) => {
                    good.push(link);
                    results.push(None);
                }
                Err(problem) => results.push(Some(RowResult::Problem(problem.to_json().1))),
            }
        }
        let mut made = self.app.links.issuer.create_all(good).await.into_iter();
        let results = results.into_iter().map(|result| match result {
            Some(result) => result,
            None => match made.next() {
                Some(Ok(stored)) => RowResult::Link(Box::new(stored)),
                Some(Err(error)) => RowResult::Failed(error),
                None => RowResult::Failed(LinkError::Stopped),
            },
        });
        results.collect()
    }

    async fn create_once(
        &self,
        key: ChunkKey,
        digest: RowsDigest,
        links: Vec<Result<NewLink, Problem>>,
    ) -> Vec<RowResult> {
        let count = links.len();
        let rows = links.into_iter();
        let rows = rows.map(|link| link.map_err(|problem| problem.to_json().1));
        let describe = |error| Problem::from(error).to_json().1;
        let issuer = &self.app.links.issuer;
        let problem = match issuer
            .create_chunk(key, digest.finish(), rows.collect(), describe)
            .await
        {
            Ok(results) => return results,
            Err(RepeatError::Different) => Problem::other_request(),
            Err(RepeatError::Store(error)) => error.into(),
        };
        let problem = problem.to_json().1;
        (0..count)
            .map(|_| RowResult::Problem(problem.clone()))
            .collect()
    }
}

/// What was told of rows for which no link could be made. What has kept one from being made has
/// mostly kept others too, and is logged once for all of them.
#[derive(Default)]
struct Failures(HashMap<String, (u16, String)>);

impl Failures {
    fn tell(&mut self, error: LinkError) -> (u16, String) {
        let told = self.0.entry(error.to_string()).or_insert_with(|| {
            let (status, problem) = Problem::from(error).to_json();
            (status.as_u16(), problem)
        });
        told.clone()
    }
}

/// What became of a row.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BatchResult")]
pub(super) struct ResultBody {
    /// Which row it is, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    index: Option<u64>,
    /// The row's `externalId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    external_id: Option<String>,
    /// What a request for this link alone would have been answered with.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LinkBody")]
    link: Option<LinkBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ProblemBody<'static>")]
    problem: Option<Box<RawValue>>,
}

fn result_of_problem(index: Option<u64>, external_id: Option<String>, problem: &Problem) -> String {
    let (status, problem) = problem.to_json();
    to_line(&ResultBody {
        index,
        external_id,
        status: status.as_u16(),
        link: None,
        problem: raw(problem),
    })
}

fn to_line(result: &ResultBody) -> String {
    // Nothing in there can't be JSON.
    serde_json::to_string(result).unwrap_or_default()
}

fn raw(json: String) -> Option<Box<RawValue>> {
    RawValue::from_string(json).ok()
}

fn lines(answers: impl Stream<Item = Answer>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    answers.map(|Answer(results)| {
        let mut text = results.join("\n");
        text.push('\n');
        Ok(Bytes::from(text))
    })
}

fn array(answers: impl Stream<Item = Answer>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let mut is_first = true;
    let parts = answers.map(move |Answer(results)| {
        let begin = if std::mem::take(&mut is_first) {
            "["
        } else {
            ",\n"
        };
        format!("{begin}{}", results.join(",\n"))
    });
    let mut has_begun = false;
    let parts = parts.map(Some).chain(stream::iter([None]));
    parts.map(move |part| {
        let text = match part {
            Some(text) => {
                has_begun = true;
                text
            }
            None if has_begun => "]\n".to_owned(),
            None => "[]\n".to_owned(),
        };
        Ok(Bytes::from(text))
    })
}

fn format_of(headers: &HeaderMap) -> Option<Format> {
    let essence = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = essence.split(';').next()?.trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Some(Format::Json),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Some(Format::Ndjson),
        "text/csv" => Some(Format::Csv),
        _ => None,
    }
}

/// Whether the answer is an array: as the request is, unless the client asks for lines.
fn wants_array(headers: &HeaderMap, format: Format) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    match accept.unwrap_or_default().to_ascii_lowercase() {
        accept if accept.contains("ndjson") || accept.contains("jsonl") => false,
        accept if accept.contains("application/json") => true,
        _ => format == Format::Json,
    }
}
