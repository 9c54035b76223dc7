//! HTTP connections to S3, by the parts that the service has for its own: no second HTTP client and no second TLS.

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};

/// The time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit from a request to the head of its answer: a file of some 100 MB is sent within it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Makes clients of S3.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        let tls = HttpsConnectorBuilder::new().with_native_roots();
        let tls = tls.map_err(|source| object_store::Error::Generic {
            store: "S3",
            source: source.into(),
        })?;
        let connector = tls.https_or_http().enable_http1().wrap_connector(tcp);
        Ok(HttpClient::new(Service(
            Client::builder(TokioExecutor::new()).build(connector),
        )))
    }
}

#[derive(Debug)]
struct Service(Client<HttpsConnector<Tcp>, HttpRequestBody>);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.0.request(request)).await;
        let answer = answer.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
        let answer = answer.map_err(|error| {
            let kind = if error.is_connect() {
                HttpErrorKind::Connect
            } else {
                HttpErrorKind::Interrupted
            };
            HttpError::new(kind, error)
        })?;
        let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(answer.map(|body| HttpResponseBody::new(body.map_err(broken))))
    }
}
