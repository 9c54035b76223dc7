//! `shortlink_redis`: where link records are read.

use std::ffi::CString;

use resolver::{Address, CacheSettings, EdgeSettings, NodeSettings, TopologySettings};

use crate::nginx::address::SocketAddress;
use crate::nginx::ssl::SslContext;

/// `shortlink_redis`.
#[derive(Debug)]
pub(crate) struct RedisConf {
    /// The addresses behind names of the configuration.
    pub(crate) addresses: Vec<(Address, Vec<SocketAddress>)>,
    /// The TLS of connections; `None` if they are in the clear.
    pub(crate) tls: Option<Tls>,
    /// The first name that has no address, and where it stands.
    pub(crate) unresolved: Option<(Address, String)>,
    pub(crate) nodes: NodeSettings,
    pub(crate) topology: TopologySettings,
    pub(crate) replica: Option<Address>,
}

impl RedisConf {
    /// Returns the edge's settings for it.
    pub(crate) fn edge_settings(&self, cache: Option<CacheSettings>) -> EdgeSettings {
        EdgeSettings {
            nodes: self.nodes.clone(),
            topology: self.topology.clone(),
            replica: self.replica.clone(),
            cache,
        }
    }
}

/// The TLS settings of connections.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) context: SslContext,
    /// The name that servers must prove to have.
    pub(crate) name: CString,
    /// True if they must prove it.
    pub(crate) verifies: bool,
}
