//! Requests to the provider. Redirects are not followed, and no proxy of the environment is used.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use shortlink_core::causes::causes;
use url::{Host, Url};

/// The time limit of a request, from the look-up of the name to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of an answer.
const MOST_BYTES: usize = 1 << 20;

/// A failed request.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HttpError(String);

/// Checks that a URL is one of https, or leads to this machine.
pub(crate) fn check(url: &Url) -> Result<(), HttpError> {
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_local => Ok(()),
        _ => Err(HttpError(format!("{url} must begin with https://"))),
    }
}

pub(crate) struct HttpClient(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl HttpClient {
    pub(crate) fn new(ca_file: Option<&Path>) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        match ca_file {
            Some(file) => {
                let invalid = |error| {
                    let text = format!("{}: {error}", file.display());
                    io::Error::new(io::ErrorKind::InvalidData, text)
                };
                let found =
                    CertificateDer::pem_file_iter(file).map_err(|it| invalid(it.to_string()))?;
                for certificate in found {
                    let certificate = certificate.map_err(|it| invalid(it.to_string()))?;
                    roots
                        .add(certificate)
                        .map_err(|it| invalid(it.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(invalid("it has no certificate".to_owned()));
                }
            }
            // Those that cannot be read are left out; a provider that needs one of them fails with its name.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(TIMEOUT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self(client))
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let address = request.uri().to_string();
        let url = Url::parse(&address).map_err(|error| HttpError(format!("{address}: {error}")))?;
        check(&url)?;
        let mut request = request.map(|body| Full::new(Bytes::from(body)));
        let agent = HeaderValue::from_static(concat!("shortlink/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        let answer = async {
            let answer = self.0.request(request).await;
            let answer =
                answer.map_err(|error| HttpError(format!("{address}: {}", causes(&error))))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MOST_BYTES).collect().await;
            let body = body.map_err(|error| HttpError(format!("{address}: {error}")))?;
            Ok(HttpResponse::from_parts(head, body.to_bytes().to_vec()))
        };
        let answer = tokio::time::timeout(TIMEOUT, answer).await;
        answer.unwrap_or_else(|_elapsed| {
            let seconds = TIMEOUT.as_secs();
            Err(HttpError(format!(
                "{address}: no answer within {seconds} s"
            )))
        })
    }
}

impl<'c> AsyncHttpClient<'c> for HttpClient {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_for_this_machine_only() {
        for (url, is_good) in [
            ("https://id.example.com/", true),
            ("http://localhost:1/", true),
            ("http://127.0.0.1:1/", true),
            ("http://[::1]/", true),
            ("http://id.example.com/", false),
            ("http://localhost.example.com/", false),
            ("http://10.0.0.1/", false),
            ("ftp://localhost/", false),
        ] {
            let parsed = Url::parse(url).expect("a URL");
            assert_eq!(check(&parsed).is_ok(), is_good, "{url}");
        }
    }
}
