//! The certificates of the short domains: each client gets that of the name that it requests.
//!
//! nginx can read a certificate's file at each handshake, which costs more than the handshake, and needs workers that
//! may read private keys. Here all are read when the configuration is, and a handshake is given one that is in memory.

use std::collections::HashMap;

use resolver::vocabulary::domains::Domains;

use crate::nginx::ssl::{ChooseCertificate, SslContext};

/// The most bytes of a host name.
const MAX_NAME: usize = 255;

/// The certificates of all domains that have one, and what a server shows to who asks for none.
#[derive(Debug)]
pub(crate) struct ReadCertificates {
    pub(crate) certificates: Box<Certificates>,
    /// The files of the first domain's certificate and key, active ones first; `None` while no domain has one.
    pub(crate) first: Option<(String, String)>,
}

/// The certificates that were read, each in a context of its own.
#[derive(Debug)]
pub(crate) struct Certificates {
    domains: Domains,
    /// By the name that a domain's certificate is filed under.
    contexts: HashMap<String, SslContext>,
}

impl Certificates {
    pub(crate) fn new(domains: Domains, contexts: HashMap<String, SslContext>) -> Self {
        Self { domains, contexts }
    }
}

impl ChooseCertificate for Certificates {
    /// A client that asks for a name that is not in the table, or that has no certificate, is refused.
    fn choose(&self, name: &[u8]) -> Option<SslContext> {
        let mut space = [0; MAX_NAME];
        let host = name.strip_suffix(b".").unwrap_or(name);
        let lower = space.get_mut(..host.len())?;
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        let name = self.domains.find(lower)?.certificate_name();
        self.contexts.get(name).copied()
    }
}
