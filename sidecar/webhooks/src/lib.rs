//! Sends messages to endpoints.
//!
//! A name is resolved once for a connection. Addresses that the policy does not admit are left out, and the connection is
//! made to one of the others: a name that has another address a moment later does not lead elsewhere. Redirects are not
//! followed, and no proxy of the environment is used.
#![forbid(unsafe_code)]

mod resolver;

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use shortlink_core::causes::causes;
use shortlink_core::webhook::{
    Answer, EndpointError, EndpointPolicy, Message, MessageSender, SendError,
};

use resolver::AdmittedAddresses;

/// The time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time after which an unused connection is closed: a name that has moved is resolved again.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// The most bytes of an answer's body that are read, so that its connection can be used again.
const MOST_BYTES: usize = 64 << 10;

type HttpClient = Client<HttpsConnector<HttpConnector<AdmittedAddresses>>, Full<Bytes>>;

/// Sends messages over HTTP.
pub struct HttpSender {
    /// Made for the first message: a system without certificates needs none before.
    client: OnceLock<HttpClient>,
    policy: EndpointPolicy,
    timeout: Duration,
}

impl HttpSender {
    /// Creates a sender; `timeout` is that of an attempt, from the look-up of the name to the end of the answer.
    pub fn new(policy: EndpointPolicy, timeout: Duration) -> Self {
        Self {
            client: OnceLock::new(),
            policy,
            timeout,
        }
    }

    fn client(&self) -> io::Result<&HttpClient> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let mut tcp = HttpConnector::new_with_resolver(AdmittedAddresses(self.policy.clone()));
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_native_roots()?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(self.client.get_or_init(|| client))
    }

    async fn attempt(&self, message: Message) -> Result<Answer, SendError> {
        // The setting may have changed since the URL was stored.
        if message.url.is_plain() && !self.policy.plain_http {
            return Err(SendError(format!("the URL {}", EndpointError::Plain)));
        }
        // A connector takes an address in a URL without asking the resolver.
        let address = message.url.address();
        if address.is_some_and(|address| !self.policy.admits(address)) {
            return Err(SendError(resolver::REFUSED.to_owned()));
        }
        let request = Request::builder()
            .method(Method::POST)
            .uri(message.url.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("shortlink/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", message.id)
            .header("webhook-timestamp", message.at.as_second())
            .header("webhook-signature", message.signatures)
            .body(Full::new(Bytes::from(message.body)))
            .map_err(|error| SendError(format!("the request can't be made: {error}")))?;
        let client = self.client().map_err(|error| {
            SendError(format!("the system's certificates can't be read: {error}"))
        })?;
        let answer = client.request(request).await;
        let answer = answer.map_err(|error| SendError(causes(&error)))?;
        let found = Answer {
            status: answer.status().as_u16(),
            retry_after: retry_after(&answer),
        };
        // The status decides: a body that breaks off changes nothing.
        let _read = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
        Ok(found)
    }
}

#[async_trait]
impl MessageSender for HttpSender {
    async fn send(&self, message: Message) -> Result<Answer, SendError> {
        let answer = tokio::time::timeout(self.timeout, self.attempt(message)).await;
        answer.unwrap_or_else(|_elapsed| {
            let seconds = self.timeout.as_secs();
            Err(SendError(format!("no answer within {seconds} s")))
        })
    }
}

/// The time after which an endpoint asks for the next attempt, in seconds.
fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
