//! Topology with sentinels, which name the master.
//!
//! One sentinel at a time is polled, and also notifies when another server takes over. Its answer
//! is only trusted if the server itself reports that it is a master: a sentinel that was cut off
//! would name the old one.

use crate::connection::Owed;
use crate::connection_error::ConnectionError;
use crate::endpoint::Endpoint;
use crate::handshake::{Handshake, RequiredRole};
use crate::node_id::NodeId;
use crate::nodes::{Address, Nodes, Purpose};
use crate::resp::push_command;
use crate::sentinel::{master_reply, sentinels_reply, switch_master};

use super::server::prefer;
use super::{NodeSettings, Route, Shift, Told};

/// The most sentinels that are remembered, those of the configuration included.
const MAX_SENTINELS: usize = 32;

#[derive(Debug)]
pub(crate) struct Sentinel {
    /// The name of the master's group.
    master_name: String,
    /// Sentinels, those of the configuration first.
    sentinels: Vec<Address>,
    /// The one that is asked now.
    current: usize,
    watch: NodeId,
    master: Option<NodeId>,
    replica: Option<NodeId>,
    /// Set when no sentinel asked so far could help.
    is_lost: bool,
}

impl Sentinel {
    pub(super) fn new(
        master_name: &str,
        sentinels: &[Address],
        replica: Option<&Address>,
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> Self {
        let handshake = Handshake::new(how.sentinel_credentials.as_ref()).subscribe();
        let first = sentinels.first().cloned();
        let address = first.unwrap_or(Address::Unix(String::new()));
        Self {
            master_name: master_name.to_owned(),
            sentinels: sentinels.to_vec(),
            current: 0,
            watch: nodes.add(
                address,
                Purpose::Watch,
                handshake,
                how.watch_patience(),
                now,
            ),
            master: None,
            replica: replica
                .map(|address| how.add_server(nodes, address.clone(), RequiredRole::Replica, now)),
            is_lost: false,
        }
    }

    #[inline]
    pub(super) fn route(&self, nodes: &Nodes, now: u64) -> Route {
        prefer(self.replica, nodes, now).unwrap_or(match self.master {
            Some(master) => Route::To(master),
            None if self.is_lost => Route::Nowhere,
            None => Route::Soon,
        })
    }

    /// The master, if it is known.
    pub(super) fn master(&self) -> Option<NodeId> {
        self.master
    }

    /// The replica, if there is one.
    pub(super) fn replica(&self) -> Option<NodeId> {
        self.replica
    }

    pub(super) fn ready(&mut self, node: NodeId, nodes: &mut Nodes, now: u64) {
        if node == self.watch {
            self.ask(node, nodes, now);
            if let Some(node) = nodes.get_mut(node) {
                let command: [&[u8]; 3] = [b"SENTINEL", b"SENTINELS", self.master_name.as_bytes()];
                push_command(&command, node.connection.ask(Owed::Sentinels, now));
            }
        }
    }

    pub(super) fn lost(&mut self, node: NodeId, nodes: &mut Nodes) {
        if node == self.watch {
            self.is_lost |= self.master.is_none();
            self.try_another(nodes);
        }
    }

    pub(super) fn ask(&mut self, node: NodeId, nodes: &mut Nodes, now: u64) {
        if let Some(node) = nodes.get_mut(node) {
            let command: [&[u8]; 3] = [
                b"SENTINEL",
                b"GET-MASTER-ADDR-BY-NAME",
                self.master_name.as_bytes(),
            ];
            push_command(&command, node.connection.ask(Owed::Master, now));
            node.connection.beaten(now);
        }
    }

    pub(super) fn told(
        &mut self,
        told: &Told,
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> Result<Shift, ConnectionError> {
        match (told.owed, &told.aggregate) {
            (Owed::Master, Some(bytes)) => match master_reply(bytes) {
                Some(endpoint) => Ok(self.set_master(endpoint, how, nodes, now)),
                None => Err(ConnectionError::Protocol(
                    "the master's address is not understood",
                )),
            },
            (Owed::Master, None) => Err(ConnectionError::Role(format!(
                "it is a sentinel that does not know the master \"{}\"",
                self.master_name
            ))),
            (Owed::Sentinels, Some(bytes)) => {
                for endpoint in sentinels_reply(bytes) {
                    let address = Address::Tcp(endpoint);
                    if self.sentinels.len() < MAX_SENTINELS && !self.sentinels.contains(&address) {
                        self.sentinels.push(address);
                    }
                }
                Ok(Shift::None)
            }
            _ => Ok(Shift::None),
        }
    }

    /// Reads what a sentinel says of its own accord.
    pub(crate) fn announced(
        &mut self,
        push: &[u8],
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> Shift {
        match switch_master(push, &self.master_name) {
            Some(endpoint) => self.set_master(endpoint, how, nodes, now),
            None => Shift::None,
        }
    }

    fn set_master(
        &mut self,
        endpoint: Endpoint,
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> Shift {
        self.is_lost = false;
        let address = Address::Tcp(endpoint);
        let old = self.master;
        if let Some(id) = old {
            if nodes.get(id).is_some_and(|node| node.address == address) {
                return Shift::None;
            }
            nodes.retire(id);
        }
        self.master = Some(how.add_server(nodes, address, RequiredRole::Master, now));
        if old.is_some() {
            Shift::Moved
        } else {
            Shift::Found
        }
    }

    fn try_another(&mut self, nodes: &mut Nodes) {
        self.current = (self.current + 1) % self.sentinels.len().max(1);
        let next = self.sentinels.get(self.current);
        if let (Some(node), Some(next)) = (nodes.get_mut(self.watch), next) {
            node.address.clone_from(next);
        }
    }
}
