//! `shortlink_redis`: where link records are read.

use std::ffi::CString;
use std::path::PathBuf;

use resolver::fallback::FallbackLimits;
use resolver::{Address, CacheSettings, EdgeSettings, NodeSettings, TopologySettings};

use crate::nginx::address::SocketAddress;
use crate::nginx::ssl::SslContext;
use crate::settings::zones::{CounterZone, MissLimiting, MissZone};

/// The place of a Redis among those of the configuration; the default is that of the Redis without a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RedisNumber(u32);

impl RedisNumber {
    /// The place with this index.
    pub(crate) fn new(index: usize) -> Self {
        Self(index as u32)
    }

    /// The index of the place.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A Redis of the configuration, with all that is separate for each.
#[derive(Debug, Default)]
pub(crate) struct Redis {
    /// Its name; empty for the one without.
    pub(crate) name: String,
    /// `shortlink_redis`; `None` if only locations name it.
    pub(crate) conf: Option<RedisConf>,
    /// The place of the first `shortlink` that uses it, for messages; `None` if there is none.
    pub(crate) used_in: Option<String>,
    /// The shared memory of its counters; `None` if no location uses it.
    pub(crate) counters: Option<CounterZone>,
    /// The limits of misses of its locations, as places among those of the configuration, and the shared memory of
    /// each.
    pub(crate) misses: Vec<(usize, Option<MissZone>)>,
    /// The directory of the files with its visits; `None` without one.
    pub(crate) spool: Option<PathBuf>,
    /// The fallbacks of its locations.
    pub(crate) fallbacks: Vec<BoundedFallback>,
}

/// A fallback of the configuration; directives with the same name and limits share it.
#[derive(Clone, Debug)]
pub(crate) struct BoundedFallback {
    /// The name of the location.
    pub(crate) name: Box<[u8]>,
    /// Its bounds.
    pub(crate) limits: FallbackLimits,
}

impl Redis {
    /// Notes that a location has a limit of misses.
    pub(crate) fn use_limit(&mut self, limiting: MissLimiting) {
        if let MissLimiting::By(limit) = limiting
            && !self.misses.iter().any(|(used, _)| *used == limit)
        {
            self.misses.push((limit, None));
        }
    }

    /// The misses that a limit counts.
    #[inline]
    pub(crate) fn misses_of(&self, limit: usize) -> Option<MissZone> {
        let mut misses = self.misses.iter();
        misses.find(|(used, _)| *used == limit)?.1
    }

    /// The place of a fallback among those of this Redis.
    pub(crate) fn index_of(&mut self, name: &[u8], limits: FallbackLimits) -> usize {
        let is_same = |other: &BoundedFallback| *other.name == *name && other.limits == limits;
        let known = self.fallbacks.iter().position(is_same);
        known.unwrap_or_else(|| {
            let name = name.into();
            self.fallbacks.push(BoundedFallback { name, limits });
            self.fallbacks.len() - 1
        })
    }
}

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
