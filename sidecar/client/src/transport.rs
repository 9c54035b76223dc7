//! Requests and answers.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures_util::{TryStreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::http::response::Parts;
use hyper::{Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Pool, Error as PoolError};
use hyper_util::rt::TokioExecutor;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::io::StreamReader;

use super::settings::Settings;
use super::{ClientArguments, Failure, Problem};

/// The time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The least time limit of an upload without progress: rows beyond the API key's rate limit are
/// created slowly.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(300);

/// The most retries of a request that had no effect.
const REPEATS: u32 = 5;

/// The longest pause before a retry, whatever the service asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The most bytes of an answer that is taken into memory.
const MOST_BYTES: usize = 64 << 20;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Sends requests to one service, with one API key.
#[derive(Debug)]
pub struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Body>,
    settings: Settings,
    /// `None` for public requests.
    authorization: Option<HeaderValue>,
}

/// A body that is sent while it is produced.
#[derive(Debug)]
pub struct Upload {
    /// The media type.
    pub media_type: &'static str,
    /// The key that makes a retry safe.
    pub idempotency_key: String,
    /// Its parts.
    pub parts: mpsc::Receiver<io::Result<Bytes>>,
    /// The number of bytes that were taken from the parts.
    pub sent: Arc<AtomicU64>,
    /// True while the producer is reading: the service is not late then.
    pub is_reading: Arc<AtomicBool>,
}

/// An answer that is read line by line, while the request may still be under way.
pub struct Answered {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    pace: Pace,
}

/// The progress of an upload.
struct Pace {
    patience: Duration,
    sent: Arc<AtomicU64>,
    is_reading: Arc<AtomicBool>,
}

impl Pace {
    /// Waits as long as something is sent, or the service waits for this process.
    async fn wait<T>(&self, answer: impl Future<Output = T>) -> Result<T, Failure> {
        let mut answer = pin!(answer);
        loop {
            let before = self.sent.load(Ordering::Relaxed);
            if let Ok(answer) = timeout(self.patience, &mut answer).await {
                return Ok(answer);
            }
            let has_sent = self.sent.load(Ordering::Relaxed) != before;
            if !has_sent && !self.is_reading.load(Ordering::Relaxed) {
                let seconds = self.patience.as_secs();
                return Err(Failure::Other(anyhow!(
                    "the service has sent nothing for {seconds} s"
                )));
            }
        }
    }
}

impl Client {
    /// Creates a client from options, the environment and the client file.
    pub fn new(arguments: &ClientArguments) -> Result<Self, Failure> {
        let settings = arguments.settle(|name| std::env::var(name).ok())?;
        let key = settings.key.expose_secret().trim();
        let header = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut authorization = match header {
            Ok(header) if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                header
            }
            _ => {
                let origin = &settings.key_origin;
                return Err(Failure::Usage(format!("{origin} holds no API key")));
            }
        };
        authorization.set_sensitive(true);
        Ok(Self {
            pool: pool()?,
            settings,
            authorization: Some(authorization),
        })
    }

    /// Creates a client for public requests to a server.
    pub fn anonymous(server: &str, timeout: Duration) -> Result<Self, Failure> {
        Ok(Self {
            pool: pool()?,
            settings: Settings::anonymous(server, timeout)?,
            authorization: None,
        })
    }

    /// The time limit of an answer.
    pub(crate) fn time_limit(&self) -> Duration {
        self.settings.timeout
    }

    /// Reads a resource, whatever the status: returns the status and the body.
    pub async fn look(&self, path: &str) -> Result<(u16, Bytes), Failure> {
        let (parts, bytes) = self.exchange(Method::GET, path, &[], None).await?;
        Ok((parts.status.as_u16(), bytes))
    }

    /// Reads a resource.
    pub async fn get(&self, path: &str) -> Result<Bytes, Failure> {
        self.send(Method::GET, path, &[], None).await
    }

    /// Sends a request and reads the whole answer. Retries it only if it had no effect: after a
    /// 429, or after a 503 of a GET.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Option<&Value>,
    ) -> Result<Bytes, Failure> {
        let mut repeats = 0;
        loop {
            let asked = self.exchange(method.clone(), path, headers, body);
            let (parts, bytes) = asked.await?;
            if parts.status.is_success() {
                return Ok(bytes);
            }
            let has_no_effect = parts.status == StatusCode::TOO_MANY_REQUESTS
                || (parts.status == StatusCode::SERVICE_UNAVAILABLE && method == Method::GET);
            match pause(&parts) {
                Some(pause) if has_no_effect && repeats < REPEATS => {
                    repeats += 1;
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(self.refused(&parts, &bytes)),
            }
        }
    }

    /// Sends a body while it is produced, and reads the answer at the same time: the service
    /// answers while it reads, and stops reading when its answers are not taken.
    pub async fn upload(&self, path: &str, upload: Upload) -> Result<Answered, Failure> {
        let pace = Pace {
            patience: self.settings.timeout.max(UPLOAD_PATIENCE),
            sent: Arc::clone(&upload.sent),
            is_reading: upload.is_reading,
        };
        let counted = upload.sent;
        let parts = stream::unfold(upload.parts, move |mut parts| {
            let counted = Arc::clone(&counted);
            async move {
                let part = parts.recv().await?;
                if let Ok(part) = &part {
                    counted.fetch_add(part.len() as u64, Ordering::Relaxed);
                }
                Some((part.map(Frame::data), parts))
            }
        });
        let request = self
            .request(Method::POST, path)
            .header(CONTENT_TYPE, upload.media_type)
            .header("Idempotency-Key", upload.idempotency_key)
            .body(StreamBody::new(parts).boxed_unsync())
            .context("the request can't be made")?;
        let answer = pace.wait(self.pool.request(request)).await?;
        let answer = answer.map_err(|error| self.away(error))?;
        let (head, body) = answer.into_parts();
        if !head.status.is_success() {
            let bytes = self.in_time(collect(body)).await?;
            return Err(self.refused(&head, &bytes));
        }
        let parts = body.into_data_stream().map_err(io::Error::other);
        Ok(Answered {
            body: Box::pin(StreamReader::new(parts)),
            pace,
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Option<&Value>,
    ) -> Result<(Parts, Bytes), Failure> {
        let mut request = self.request(method, path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let bytes = match body {
            None => Bytes::new(),
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
        };
        let request = request
            .body(
                Full::new(bytes)
                    .map_err(|never| match never {})
                    .boxed_unsync(),
            )
            .map_err(|error| Failure::Usage(format!("the request can't be made: {error}")))?;
        self.in_time(async {
            let answer = self.pool.request(request).await;
            let (parts, body) = answer.map_err(|error| self.away(error))?.into_parts();
            Ok((parts, collect(body).await?))
        })
        .await
    }

    fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.settings.server));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request
            .header(
                ACCEPT,
                "application/json, application/x-ndjson;q=0.9, */*;q=0.1",
            )
            .header(USER_AGENT, concat!("shortlink/", env!("CARGO_PKG_VERSION")))
    }

    fn away(&self, error: PoolError) -> Failure {
        let server = &self.settings.server;
        let what = if error.is_connect() {
            format!(
                "{server} cannot be reached: start the service there, or name another with --server or \
                 SHORTLINK_SERVER"
            )
        } else {
            format!("{server} has not answered")
        };
        Failure::Other(anyhow::Error::new(error).context(what))
    }

    /// Waits for an answer within the time limit.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Settings {
            server, timeout, ..
        } = &self.settings;
        let answered = tokio::time::timeout(*timeout, answer).await;
        answered.unwrap_or_else(|_elapsed| {
            let seconds = timeout.as_secs();
            Err(Failure::Other(anyhow!(
                "{server} has not answered within {seconds} s (--timeout)"
            )))
        })
    }

    /// The failure for an unsuccessful answer.
    fn refused(&self, parts: &Parts, bytes: &[u8]) -> Failure {
        let status = parts.status;
        let Ok(mut problem) = serde_json::from_slice::<Problem>(bytes) else {
            let server = &self.settings.server;
            return Failure::Other(anyhow!(
                "{server} has answered {status}, and not as the API does: is it the internal server?"
            ));
        };
        if status == StatusCode::UNAUTHORIZED {
            problem.hint = Some(format!("the key is that of {}", self.settings.key_origin));
        } else if status.is_server_error()
            && let Some(id) = parts.headers.get("x-request-id")
            && let Ok(id) = id.to_str()
        {
            problem.hint = Some(format!("the request has the id {id} in its log"));
        }
        Failure::Problem(problem)
    }
}

fn pool() -> Result<Pool<HttpsConnector<HttpConnector>, Body>, Failure> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_native_roots()
        .context("the system's certificates can't be read")?
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(Pool::builder(TokioExecutor::new()).build(connector))
}

/// The pause before a retry; `None` when the service does not specify one.
fn pause(parts: &Parts) -> Option<Duration> {
    let seconds = parts.headers.get(RETRY_AFTER)?.to_str().ok()?;
    let seconds = Duration::from_secs(seconds.parse().ok()?);
    Some(seconds.clamp(Duration::from_millis(100), LONGEST_PAUSE))
}

async fn collect(body: Incoming) -> Result<Bytes, Failure> {
    let limited = http_body_util::Limited::new(body, MOST_BYTES);
    let collected = limited.collect().await;
    let collected =
        collected.map_err(|error| Failure::Other(anyhow!("the answer broke off: {error}")))?;
    Ok(collected.to_bytes())
}

impl Answered {
    /// The next line; `None` at the end.
    pub async fn next_line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut line = Vec::new();
        let read = self.body.read_until(b'\n', &mut line);
        let read = self.pace.wait(read).await?;
        read.context("the answer broke off")?;
        // A line without a newline was cut off.
        Ok((line.pop() == Some(b'\n')).then_some(line))
    }
}
