//! A TLS client that keeps its sessions, as a browser does.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, Stream, SupportedProtocolVersion,
};

/// The longest silence of a server.
const PATIENCE: Duration = Duration::from_secs(10);

/// The end of a response without a body.
const END: &[u8] = b"\r\n\r\n";

/// The configuration of a client that trusts these certificates and speaks one version of TLS.
///
/// # Panics
/// When a certificate can't be read.
pub fn config(trusted: &[&Path], version: &'static SupportedProtocolVersion) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for file in trusted {
        let certificate = CertificateDer::from_pem_file(file).expect("a certificate");
        roots.add(certificate).expect("a certificate");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The client. Each request has a connection of its own, which resumes a session of the same host.
#[derive(Debug)]
pub struct Client(Arc<ClientConfig>);

/// A response without a body, and the handshake before it.
#[derive(Debug)]
pub struct Visit {
    /// The session was resumed.
    pub is_resumed: bool,
    /// The head of the response, in lower case.
    pub head: String,
}

impl Client {
    /// A client without sessions.
    ///
    /// # Panics
    /// As [`config`].
    pub fn new(trusted: &[&Path], version: &'static SupportedProtocolVersion) -> Self {
        Self(Arc::new(config(trusted, version)))
    }

    /// Requests a path that is answered without a body.
    ///
    /// # Panics
    /// When there is no answer, or the certificate is not for the host or not trusted.
    pub fn get(&self, port: u16, host: &str, path: &str) -> Visit {
        self.try_get(port, host, path)
            .unwrap_or_else(|error| panic!("https://{host}:{port}{path}: {error}"))
    }

    fn try_get(&self, port: u16, host: &str, path: &str) -> io::Result<Visit> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name);
        let mut connection = connection.map_err(io::Error::other)?;
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut stream = Stream::new(&mut connection, &mut socket);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(END) {
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => head.extend_from_slice(&bytes[..count]),
            }
        }
        Ok(Visit {
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            head: String::from_utf8_lossy(&head).to_ascii_lowercase(),
        })
    }
}
