//! Addresses of servers: those of the configuration and those that servers report.

use std::net::{IpAddr, SocketAddr};

use resolver::{Address, NodeId};

use crate::nginx::address::SocketAddress;
use crate::nginx::resolver::{Resolved, Resolver, Search};

/// The result of a search for an address.
pub(crate) enum Found {
    /// It is known.
    Now(SocketAddress),
    /// This name must be looked up.
    Name(String),
    /// There is none, for this reason.
    Not(String),
}

/// Names and their addresses.
pub(crate) struct Addresses {
    /// Addresses of the configuration, looked up when nginx has read it.
    configured: Vec<(Address, Vec<SocketAddress>)>,
    /// nginx' `resolver`, which looks names up without waiting.
    resolver: Option<Resolver>,
    /// Names that are looked up now, for each node.
    under_way: Vec<Option<Search>>,
    /// Number of times that each node was lost: the addresses of a name are tried in turn.
    attempts: Vec<usize>,
}

impl Addresses {
    /// Begins with the addresses of the configuration.
    pub(crate) fn new(
        configured: Vec<(Address, Vec<SocketAddress>)>,
        resolver: Option<Resolver>,
    ) -> Self {
        Self {
            configured,
            resolver,
            under_way: Vec::new(),
            attempts: Vec::new(),
        }
    }

    /// nginx' `resolver`.
    pub(crate) fn resolver(&self) -> Option<Resolver> {
        self.resolver
    }

    /// Finds where a node listens.
    pub(crate) fn find(&self, node: NodeId, address: &Address) -> Found {
        let endpoint = match address {
            Address::Unix(path) => {
                return match SocketAddress::of_path(path) {
                    Some(found) => Found::Now(found),
                    None => Found::Not("the path of its socket is too long".to_owned()),
                };
            }
            Address::Tcp(endpoint) => endpoint,
        };
        if let Ok(ip) = endpoint.host.parse::<IpAddr>() {
            let found = SocketAddr::new(ip, endpoint.port);
            return Found::Now(SocketAddress::of_ip(found));
        }
        if self.resolver.is_some() {
            return Found::Name(endpoint.host.clone());
        }
        match self.find_configured(node, address) {
            Some(found) => Found::Now(found),
            None => Found::Not(format!(
                "the name {} can't be looked up without a \"resolver\" in the http block",
                endpoint.host
            )),
        }
    }

    fn find_configured(&self, node: NodeId, address: &Address) -> Option<SocketAddress> {
        let known = self.configured.iter().find(|(known, _)| known == address);
        let (_, addresses) = known?;
        let attempt = self.attempt(node);
        addresses.get(attempt % addresses.len().max(1)).cloned()
    }

    fn attempt(&self, node: NodeId) -> usize {
        self.attempts.get(node.index()).copied().unwrap_or(0)
    }

    /// Says that a connection was lost: stops looking its name up, and tries another address of it next time.
    pub(crate) fn lost(&mut self, node: NodeId) {
        if self.attempts.len() <= node.index() {
            self.attempts.resize(node.index() + 1, 0);
        }
        self.attempts[node.index()] = self.attempts[node.index()].wrapping_add(1);
        if let Some(search) = self.under_way.get_mut(node.index()) {
            *search = None;
        }
    }

    /// Stops looking any name up.
    pub(crate) fn stop(&mut self) {
        self.under_way.clear();
    }

    /// Keeps a search that was begun for a node.
    pub(crate) fn searching(&mut self, node: NodeId, search: Search) {
        if self.under_way.len() <= node.index() {
            self.under_way.resize_with(node.index() + 1, || None);
        }
        self.under_way[node.index()] = Some(search);
    }

    /// The address to be tried next, of those that a search has found.
    ///
    /// # Errors
    /// The reason that there is none.
    pub(crate) fn resolved(
        &self,
        node: NodeId,
        address: Option<&Address>,
        resolved: Resolved,
    ) -> Result<SocketAddress, String> {
        let reason = match (address, resolved) {
            (Some(Address::Tcp(endpoint)), Ok(mut found)) if !found.is_empty() => {
                let index = self.attempt(node) % found.len();
                let text = format!("{} of {}", index + 1, endpoint.host);
                return Ok(found.swap_remove(index).with(text, endpoint.port));
            }
            (_, Ok(_)) => "its server is no longer asked".to_owned(),
            (_, Err(reason)) => reason,
        };
        // The address that nginx found when it read its configuration is better than none.
        let configured = address.and_then(|address| self.find_configured(node, address));
        configured.ok_or(reason)
    }
}
