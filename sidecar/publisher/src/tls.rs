//! TLS to the servers: by the library's connections, and by those of [`super::wire`].

use std::sync::Arc;

use redis::{ClientTlsConfig, TlsCertificates};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::servers::UrlError;

/// Certificates for TLS, as texts in PEM. Without any, those of the system have signed the servers'.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// Those that have signed the servers' certificates, in place of the system's.
    pub trusted: Option<String>,
    /// The certificate that the sidecar shows, and its key.
    pub own: Option<(String, SecretString)>,
}

impl Certificates {
    /// Returns whether there are any.
    pub(super) fn are_given(&self) -> bool {
        self.trusted.is_some() || self.own.is_some()
    }

    /// Returns them as the library takes them.
    pub(super) fn for_library(&self) -> TlsCertificates {
        TlsCertificates {
            root_cert: self.trusted.as_ref().map(|text| text.clone().into_bytes()),
            client_tls: self.own.as_ref().map(|(certificate, key)| ClientTlsConfig {
                client_cert: certificate.clone().into_bytes(),
                client_key: key.expose_secret().to_owned().into_bytes(),
            }),
        }
    }
}

/// Secures connections.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// Prepares for connections.
    ///
    /// # Errors
    /// Fails if a certificate or the key can't be read, or the key is not the certificate's.
    pub(super) fn new(certificates: &Certificates) -> Result<Self, UrlError> {
        let mut roots = RootCertStore::empty();
        match &certificates.trusted {
            Some(text) => {
                for certificate in chain(text)? {
                    roots.add(certificate).map_err(UrlError::certificates)?;
                }
            }
            None => {
                let system = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(system.certs);
            }
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match &certificates.own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
                    .map_err(UrlError::certificates)?;
                config
                    .with_client_auth_cert(chain(certificate)?, key)
                    .map_err(UrlError::certificates)?
            }
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Secures a connection to a host.
    pub(super) async fn secure(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
        self.0.connect(name, stream).await
    }
}

/// Reads the certificates of a text, at least one.
fn chain(text: &str) -> Result<Vec<CertificateDer<'static>>, UrlError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match chain.map_err(UrlError::certificates)? {
        chain if chain.is_empty() => Err(UrlError::certificates("a file has no certificate")),
        chain => Ok(chain),
    }
}
