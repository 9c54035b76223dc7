//! `/v1/links/batch`: creates any number of links with one request; `/v1/messages` does so for the URLs of texts.
//!
//! Rows are read as they arrive, processed in chunks, and answered in order with one result each.
//! Memory is bounded: reading pauses while chunks arrive faster than they finish, or while the
//! client does not read its answer. An invalid row is reported by its index and does not affect
//! other rows.
//!
//! With an `Idempotency-Key` the request can be retried at any time: only the body determines where
//! chunks begin, and the outcome of each chunk is stored with its links.

mod about_links;
mod chunks;
pub(super) mod conversions;
mod finishing;
mod futile;
mod messages;
mod receipts;
mod results;
mod rows;
mod said_of_all;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, StreamExt, future};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};
use shortlink_api::encoding::Charset;
use shortlink_api::{link, message, receipt};
use shortlink_core::link::{Dedupe, UploadId};
use shortlink_core::ports::ChunkKey;
use shortlink_core::trace;
use shortlink_service::access::{Caller, ChargeError};
use shortlink_service::new_link::{LinkError, NewLink};
use shortlink_service::repeat::{RowResult, RowsDigest};
use shortlink_store::UploadEnd;

use super::app::{App, SharedApp};
use super::auth::MayWrite;
use super::campaign_links::Campaigns;
use super::campaigns::no_such_campaign;
use super::extract::{BODY_PATIENCE, Domains, charset, header, media_type};
use super::idempotency::{IDEMPOTENCY_KEY, bad_key, create_chunk, dedupes_twice, idempotency_key};
use super::link_members::{LengthsFrom, read_new_link};
use super::operation::parameter::of;
use super::operation::{Content, json_of, operations};
use super::problem::Problem;
use super::qr::no_domain;
use super::query::Query;
use chunks::{RawChunk, chunks};
use finishing::{Finish, finishing};
use futile::until_futile;
use receipts::{ReceiptResult, create as store_receipts};
use results::{
    Answer, Counts, MessageResult, ResultBody, SummaryBody, Teller, array, lines, result_of_problem,
};
use rows::{BrokenBody, Csv, Format, Rows};
use said_of_all::SaidOfAll;

/// The time for which the answer waits for rows, to refuse a batch that has none. A client may wait for the answer
/// before it sends them.
const EMPTY_WITHIN: Duration = Duration::from_secs(1);

/// The header with the line at which the rows of the body begin in a file that the console sends in parts, so that
/// problems name lines of the file.
const FIRST_LINE: &str = "x-shortlink-first-line";

/// The header of the answer that names the upload of the links.
const UPLOAD_ID: HeaderName = HeaderName::from_static("upload-id");

/// The maximum number of chunks in progress: one is committed while another is read and a third
/// published.
const CHUNKS_AT_ONCE: usize = 4;

operations! {
    post "/v1/links/batch", "createLinks", "Creates any number of links", create {
        .text(
            "Each row has the members that `POST /v1/links` accepts. The service returns results in \
             the order of the rows, while the client is still sending rows: as an array if the body is \
             an array and the client does not accept `application/x-ndjson`, else one line per row. \
             An invalid row does not affect the other rows. The first line of CSV names the columns, \
             `|` separates `tags`, and `parameters.member` names a member of an object. With `summary=true`, \
             the last line has the number of rows that were read. After 10,000 consecutive \
             refused rows, a result without an index reports that the rest was not read. All new \
             links carry the id of the upload, \
             which the answer names; an existing link (`dedupe`) keeps its own.",
        )
        .takes(&[IDEMPOTENCY_KEY])
        .takes(said_of_all::BatchQuery::PARAMETERS)
        .takes_rows::<link::NewLink>(json!([
            { "longUrl": "https://www.example.com/a" },
            { "longUrl": "https://www.example.com/b", "externalId": "m-18" },
        ]))

        .answer(200, "One result per row.", [json_of::<Vec<ResultBody>>(), LINES]).with(["Upload-Id"])
        .problems([bad_key(), said_of_all::bad_delimiter(), no_summary(), no_such_campaign()])
    }
    post "/v1/messages", "createMessages", "Replaces the URLs of messages by short links", create_messages {
        .text(
            "Each row is a message: `text`, `parameters` for its variables, and the members of `POST /v1/links` that \
             each link of it gets. The result has the text with short links, and encoding, length and number of \
             segments before and after. With `campaignId`, each URL of the text must be the target of the campaign. \
             Rows, results, limits and idempotency are those of `POST /v1/links/batch`; each link takes one unit of \
             the rate limit. A text without a URL has no links, and the status 200.",
        )
        .takes(&[IDEMPOTENCY_KEY])
        .takes(said_of_all::BatchQuery::PARAMETERS)
        .takes_rows::<message::NewMessage>(json!([{
            "text": "Hi {name}, your offer: https://www.example.com/spring?m={member}.",
            "parameters": { "name": "Ann", "member": "4711" },
        }]))
        .answer(200, "One result per row.", [json_of::<Vec<MessageResult>>(), MESSAGE_LINES]).with(["Upload-Id"])
        .problems([
            bad_key(), said_of_all::bad_delimiter(), no_summary(), no_such_campaign(), no_domain(),
        ])
    }
    post "/v1/receipts", "storeReceipts", "Stores delivery receipts", store_receipts {
        .text(
            "Each row is the status of the message with a link, as your SMS provider reports it. \
             A status replaces one of an earlier time, in whatever order they arrive, so receipts \
             can be repeated. Rows \
             are sent as to `POST /v1/links/batch`, and each has a result; a receipt of an unknown link has the status \
             404. `GET /v1/reports/campaigns` counts messages by status and network.",
        )
        .takes(&said_of_all::OF_OTHERS)
        .takes_rows::<receipt::NewReceipt>(json!([
            { "shortCode": "pM69SXfs", "status": "delivered", "network": "Example Mobile" },
            { "campaignId": "1", "externalId": "m-18", "status": "failed", "at": "2026-11-25T10:00:00Z" },
        ]))
        .answer(200, "One result per row.", [json_of::<Vec<ReceiptResult>>(), receipts::LINES])
        .problems([said_of_all::bad_delimiter(), no_summary(), no_such_campaign()])
    }
}

/// An answer in lines: results of a type, and the summary if the request asks for it.
pub(super) const fn lines_of<T: JsonSchema>() -> Content {
    ("application/x-ndjson", |generator| {
        let line = [of::<T>(generator), of::<SummaryBody>(generator)];
        json!({ "schema": { "type": "string" }, "x-itemSchema": { "anyOf": line } })
    })
}

/// An answer in lines about links.
const LINES: Content = lines_of::<ResultBody>();

/// An answer in lines about messages.
const MESSAGE_LINES: Content = lines_of::<MessageResult>();

/// The content of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A link each.
    Links,
    /// Texts with any number of links.
    Messages,
}

/// 400: an array has no line for a summary.
fn no_summary() -> Problem {
    Problem::query("summary is for answers of application/x-ndjson; send it in the header Accept.")
}

/// `POST /v1/links/batch`
async fn create(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    answer(Kind::Links, app, caller, domains, headers, query, body).await
}

/// `POST /v1/messages`
async fn create_messages(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    domains: Domains,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    // Without a domain, the texts would have no short URLs.
    if domains.bases.is_empty() {
        return Err(no_domain());
    }
    answer(Kind::Messages, app, caller, domains, headers, query, body).await
}

async fn answer(
    kind: Kind,
    app: SharedApp,
    caller: Caller,
    domains: Domains,
    headers: HeaderMap,
    query: Option<String>,
    body: Body,
) -> Result<Response, Problem> {
    let (incoming, said) = Incoming::read(&app, &caller, &headers, query).await?;
    let idempotency_key = idempotency_key(&headers)?;
    let upload = said.upload.unwrap_or_else(|| {
        let key_id = &caller.key().id;
        app.uploads.of(key_id, idempotency_key.as_deref())
    });
    let waits = idempotency_key.is_some();
    let context = Arc::new(Context {
        kind,
        app: Arc::clone(&app),
        domains,
        caller,
        said,
        upload,
        idempotency_key,
    });
    let finish: Finish = {
        let context = Arc::clone(&context);
        Box::new(move |counts| async move { context.finish(counts).await }.boxed())
    };
    let answer = move |chunk| {
        let context = Arc::clone(&context);
        async move { context.answer(chunk).await }
    };
    let of = Some((upload, finish));
    let response = incoming.stream(body, waits, of, answer).await?;
    Ok(([(UPLOAD_ID, upload.to_string())], response).into_response())
}

/// The rows of a request, before they are read.
struct Incoming {
    rows: Rows,
    /// The answer is an array.
    answers_array: bool,
    has_summary: bool,
    /// The client waits for "100 Continue" before it sends the rows.
    expects: bool,
}

impl Incoming {
    /// Reads the headers and the query.
    async fn read(
        app: &App,
        caller: &Caller,
        headers: &HeaderMap,
        query: Option<String>,
    ) -> Result<(Self, SaidOfAll), Problem> {
        let format = format_of(headers).ok_or_else(Problem::not_rows)?;
        let charset = charset(headers).map(|name| Charset::by_name(&name).ok_or(name));
        let charset = charset
            .transpose()
            .map_err(|name| Problem::other_charset(&name))?;
        let said = SaidOfAll::read(app, caller, &query.unwrap_or_default(), format).await?;
        let answers_array = wants_array(headers, format);
        if answers_array && said.has_summary {
            return Err(no_summary());
        }
        let csv = Csv {
            first_line: header(headers, FIRST_LINE).and_then(|line| line.parse().ok()),
            ..said.csv.clone()
        };
        let rows = Rows::new(format, app.body_limit_bytes, csv);
        let incoming = Self {
            rows: rows.encoded(charset.unwrap_or_default()),
            answers_array,
            has_summary: said.has_summary,
            expects: headers.contains_key(EXPECT),
        };
        Ok((incoming, said))
    }

    /// Reads the rows in chunks, and streams what `answer` returns for each. `waits` fills the chunks; the summary names
    /// the upload, whose end is stored.
    async fn stream<F: Future<Output = Answer> + Send + 'static>(
        self,
        body: Body,
        waits: bool,
        upload: Option<(UploadId, Finish)>,
        answer: impl Fn(RawChunk) -> F + Send + 'static,
    ) -> Result<Response, Problem> {
        // A client that expects "100 Continue" gets it when the body is polled, but no longer once the
        // answer has begun: curl would wait a second for it.
        let mut body = body.into_data_stream().peekable();
        if self.expects {
            let first = Pin::new(&mut body).peek();
            // A body that does not come in time is reported by the reader of its rows.
            drop(tokio::time::timeout(BODY_PATIENCE, first).await);
        }
        let (upload, finish) = upload.unzip();
        let bytes = Arc::new(AtomicU64::new(0));
        let summed = self.has_summary.then(|| (Arc::clone(&bytes), upload));
        let mut chunks = Box::pin(chunks(body, self.rows, waits, bytes).peekable());
        let first = tokio::time::timeout(EMPTY_WITHIN, chunks.as_mut().peek());
        if first.await.is_ok_and(|chunk| chunk.is_none()) {
            return Err(Problem::no_rows());
        }
        let has_ended = Arc::new(AtomicBool::new(false));
        let is_futile = Arc::clone(&has_ended);
        let results = chunks
            .take_while(move |_| future::ready(!is_futile.load(Ordering::Relaxed)))
            // A separate task, so that other chunks proceed meanwhile, and so that a disconnect of
            // the client does not interrupt it.
            .map(move |chunk| trace::spawn(answer(chunk)))
            .buffered(CHUNKS_AT_ONCE)
            .map(|answered| answered.unwrap_or_else(|_panic| Answer::broken_off()));
        let results = finishing(until_futile(results, has_ended), finish);
        let (media_type, body) = if self.answers_array {
            ("application/json", Body::from_stream(array(results)))
        } else {
            let lines = lines(results, summed);
            ("application/x-ndjson", Body::from_stream(lines))
        };
        Ok(([(CONTENT_TYPE, media_type)], body).into_response())
    }
}

/// The state that all chunks of a request share.
struct Context {
    kind: Kind,
    app: SharedApp,
    domains: Domains,
    caller: Caller,
    said: SaidOfAll,
    /// The upload of the links.
    upload: UploadId,
    idempotency_key: Option<String>,
}

impl Context {
    /// Creates the links of a chunk and returns the result of each.
    async fn answer(&self, chunk: RawChunk) -> Answer {
        pay_for(&self.caller, &chunk).await;
        let mut digest = RowsDigest::default();
        if self.kind == Kind::Messages {
            digest.add(b"messages");
        }
        self.said.add_to(&mut digest);
        // The same values mean something else under other names.
        if self.said.csv.columns.is_none() {
            for name in chunk.names.iter().flatten() {
                digest.add(name.as_bytes());
            }
        }
        let mut rows = Vec::with_capacity(chunk.rows.len());
        for row in &chunk.rows {
            if self.idempotency_key.is_some() {
                row.for_each_part(|part| digest.add(part));
            }
            let mut members = row.members(&chunk.names, self.app.body_limit_bytes);
            if let (Ok(members), Some(id)) = (&mut members, self.said.campaign_id) {
                let campaign = members.entry("campaignId");
                campaign.or_insert_with(|| Value::from(id.to_string()));
            }
            rows.push(members);
        }
        let named = rows.iter().filter_map(|row| row.as_ref().ok());
        let campaigns = Campaigns::named(&self.app, &self.caller, named).await;
        let rows = rows.into_iter();
        let (told, messages, results) = match self.kind {
            Kind::Links => {
                let read = rows.map(|row| self.read(row, campaigns.as_ref()));
                let (told, links): (Vec<_>, Vec<_>) = read.unzip();
                let results = self.create_once(chunk.number, digest, links).await;
                (told, Vec::new(), results)
            }
            Kind::Messages => {
                let mut links = Vec::new();
                let read = rows.map(|row| self.read_message(row, campaigns.as_ref(), &mut links));
                let (told, messages): (Vec<_>, Vec<_>) = read.unzip();
                let results = self.create_of_messages(&chunk, digest, links).await;
                (told, messages, results)
            }
        };
        let mut teller = Teller {
            campaigns: campaigns.as_ref().ok(),
            key: self.caller.key(),
            now: self.app.clock.now(),
            bases: &self.domains.bases,
            failures: HashMap::new(),
            counts: Counts::default(),
        };
        let mut results = results.into_iter();
        let mut answers: Vec<String> = match self.kind {
            Kind::Links => {
                let rows = results.zip(told).zip(chunk.first_index..);
                rows.map(|((result, told), index)| teller.tell(index, told, result))
                    .collect()
            }
            Kind::Messages => {
                let rows = messages.into_iter().zip(told).zip(chunk.first_index..);
                rows.map(|((message, told), index)| {
                    teller.tell_message(index, told, message, &mut results)
                })
                .collect()
            }
        };
        answers.extend(result_of_end(&chunk));
        Answer {
            results: answers,
            counts: teller.counts,
            is_cut_off: chunk.broken.is_some(),
        }
    }

    /// Stores the end of the batch, whose outcomes are these.
    async fn finish(&self, counts: Counts) -> Option<Answer> {
        let request = self.idempotency_key.clone();
        let mut data = Map::new();
        let kind = match self.kind {
            Kind::Links => "links",
            Kind::Messages => "messages",
        };
        data.insert("kind".to_owned(), kind.into());
        if let Ok(Value::Object(counts)) = serde_json::to_value(counts) {
            data.extend(counts);
        }
        let end = UploadEnd {
            upload: self.upload,
            campaign: self.said.campaign_id,
            request: request.map(|it| (self.caller.key().id.clone(), it)),
            data,
        };
        let now = self.app.clock.now();
        let stored = self.app.store.finish_upload(end, now).await;
        let problem = Problem::from(stored.err()?);
        Some(Answer {
            results: vec![result_of_problem(None, &problem)],
            ..Answer::default()
        })
    }

    /// Creates links together, once if the request has an idempotency key.
    async fn create_once(
        &self,
        number: u32,
        digest: RowsDigest,
        links: Vec<Result<NewLink, Problem>>,
    ) -> Vec<RowResult> {
        match &self.idempotency_key {
            // The outcome of an empty chunk is not stored: its rows may arrive with a retry.
            _ if links.is_empty() => Vec::new(),
            None => self.create(links).await,
            Some(key) => {
                let key = ChunkKey {
                    key_id: self.caller.key().id.clone(),
                    idempotency_key: key.clone(),
                    chunk: number,
                };
                let count = links.len();
                let created = create_chunk(&self.app, key, digest, links).await;
                created.unwrap_or_else(|problem| {
                    let problem = problem.to_json().1;
                    let same = std::iter::repeat_n(problem, count);
                    same.map(RowResult::Problem).collect()
                })
            }
        }
    }

    /// Reads a row: the echoed id, the origin of the code's lengths, and the new link.
    fn read(
        &self,
        row: Result<Map<String, Value>, Problem>,
        campaigns: Result<&Campaigns, &Problem>,
    ) -> ((Option<String>, LengthsFrom), Result<NewLink, Problem>) {
        let members = match row {
            Ok(members) => members,
            Err(problem) => return ((None, LengthsFrom::Configuration), Err(problem)),
        };
        let external_id = members.get("externalId").and_then(Value::as_str);
        let external_id = external_id.map(str::to_owned);
        let lengths_from = campaigns.map_or(LengthsFrom::Configuration, |campaigns| {
            LengthsFrom::of(&self.app, &members, &self.caller, campaigns)
        });
        let told = (external_id, lengths_from);
        let link = campaigns.map_err(Problem::clone).and_then(|campaigns| {
            let new = read_new_link(&self.app, members, &self.domains, &self.caller, campaigns)?;
            let upload = Some(self.upload);
            Ok(NewLink { upload, ..new })
        });
        match link {
            Ok(new) if new.dedupe != Dedupe::Never && self.idempotency_key.is_some() => {
                (told, Err(dedupes_twice()))
            }
            link => (told, link),
        }
    }

    async fn create(&self, links: Vec<Result<NewLink, Problem>>) -> Vec<RowResult> {
        let mut good = Vec::with_capacity(links.len());
        let links = links.into_iter();
        let problems: Vec<Option<Problem>> = links
            .map(|link| link.map(|link| good.push(link)).err())
            .collect();
        let mut made = self.app.links.issuer.create_all(good).await.into_iter();
        let results = problems.into_iter().map(|problem| match problem {
            Some(problem) => RowResult::Problem(problem.to_json().1),
            None => match made.next() {
                Some(Ok(stored)) => RowResult::Link(Box::new(stored)),
                Some(Err(error)) => RowResult::Failed(error),
                None => RowResult::Failed(LinkError::Stopped),
            },
        });
        results.collect()
    }
}

/// Charges the key's rate limit for the rows of a chunk, except for the first row of all: the request has paid for that.
async fn pay_for(caller: &Caller, chunk: &RawChunk) {
    let paid = usize::from(chunk.first_index == 0);
    pay(caller, chunk.rows.len().saturating_sub(paid)).await;
}

/// The result that names the reason for which the rows end early, if they do.
fn result_of_end(chunk: &RawChunk) -> Option<String> {
    let BrokenBody(reason) = chunk.broken.as_ref()?;
    let problem = Problem::malformed(format!("The body {reason}."));
    let index = chunk.first_index + chunk.rows.len() as u64;
    Some(result_of_problem(Some(index), &problem))
}

/// Charges the key's rate limit for some units and waits for them: a batch is slowed down instead of rejected.
async fn pay(caller: &Caller, units: usize) {
    let mut due = u32::try_from(units).unwrap_or(u32::MAX);
    let mut at_once = due;
    while due > 0 {
        match caller.charge(at_once) {
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

fn format_of(headers: &HeaderMap) -> Option<Format> {
    match media_type(headers)?.as_str() {
        "application/json" => Some(Format::Json),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Some(Format::Ndjson),
        "text/csv" => Some(Format::Csv),
        _ => None,
    }
}

/// Returns whether the answer is an array: if the request is one, unless the client asks for lines.
fn wants_array(headers: &HeaderMap, format: Format) -> bool {
    match header(headers, ACCEPT)
        .unwrap_or_default()
        .to_ascii_lowercase()
    {
        accept if accept.contains("ndjson") || accept.contains("jsonl") => false,
        accept if accept.contains("application/json") => true,
        _ => format == Format::Json,
    }
}
