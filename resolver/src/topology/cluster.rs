//! A Redis Cluster: which of its masters has which slots.
//!
//! The watch asks one node for the map of the slots, again and again, and at once when a node
//! sends a request on (`MOVED`). A slot that is on its way from one node to another (`ASK`) is
//! asked for at its new place without anything of it being kept.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use vocabulary::keys::GENERATION_TAGS;

use crate::connection::Owed;
use crate::connection_error::ConnectionError;
use crate::endpoint::Endpoint;
use crate::handshake::{Handshake, RequiredRole};
use crate::key::Key;
use crate::node_id::NodeId;
use crate::nodes::{Address, Nodes, Purpose};
use crate::resp::push_command;
use crate::slots::{KeySlots, SLOTS, SlotMap, slot_of_tag};

use super::{NodeSettings, Route, Shift, Told};

/// The most nodes that a cluster may have; Redis recommends at most 1,000.
const MAX_NODES: usize = 1000;

#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    /// Selects the next source of the map when the watch is lost: a number that only grows.
    attempt: usize,
    watch: NodeId,
    slots_of: KeySlots,
    /// The node of each slot; empty while nothing is known.
    nodes_of_slots: Vec<Option<NodeId>>,
    /// Hash of the map as last reported.
    map_hash: u64,
    /// Set while the map is being read because it is wrong.
    is_asking: bool,
    /// Set when a node that was asked for the map was lost before a map was ever known.
    is_lost: bool,
}

impl Cluster {
    pub(super) fn new(seeds: &[Address], how: &NodeSettings, nodes: &mut Nodes, now: u64) -> Self {
        let handshake = Handshake::new(how.credentials.as_ref());
        let first = seeds.first().cloned();
        let address = first.unwrap_or(Address::Unix(String::new()));
        Self {
            seeds: seeds.to_vec(),
            attempt: 0,
            watch: nodes.add(
                address,
                Purpose::Watch,
                handshake,
                how.watch_patience(),
                now,
            ),
            slots_of: KeySlots::new(&how.prefix),
            nodes_of_slots: Vec::new(),
            map_hash: 0,
            is_asking: false,
            is_lost: false,
        }
    }

    #[inline]
    pub(super) fn route(&self, key: &Key) -> Route {
        let slot = usize::from(self.slots_of.slot(key));
        match self.nodes_of_slots.get(slot) {
            Some(Some(node)) => Route::To(*node),
            // No node has the slot: the cluster is broken.
            Some(None) => Route::Nowhere,
            None if self.is_lost => Route::Nowhere,
            None => Route::Soon,
        }
    }

    /// The node that has a record, if it is known.
    pub(super) fn node_of(&self, key: &Key) -> Option<NodeId> {
        self.node_of_slot(self.slots_of.slot(key))
    }

    /// The node that has a slot, if it is known.
    pub(super) fn node_of_slot(&self, slot: u16) -> Option<NodeId> {
        *self.nodes_of_slots.get(usize::from(slot))?
    }

    pub(super) fn ready(&mut self, node: NodeId, nodes: &mut Nodes, now: u64) {
        if node == self.watch {
            self.ask(node, nodes, now);
        }
    }

    pub(super) fn lost(&mut self, node: NodeId, nodes: &mut Nodes) {
        if node != self.watch {
            return;
        }
        self.is_asking = false;
        self.is_lost |= self.nodes_of_slots.is_empty();
        // The nodes that are known, then those of the configuration, one after the other.
        let known = nodes
            .iter()
            .filter(|(_, node)| node.purpose == Purpose::Data && !node.is_retired)
            .map(|(_, node)| node.address.clone());
        let candidates: Vec<Address> = known.chain(self.seeds.iter().cloned()).collect();
        self.attempt += 1;
        let next = candidates.get(self.attempt % candidates.len().max(1));
        if let (Some(node), Some(next)) = (nodes.get_mut(self.watch), next) {
            node.address.clone_from(next);
        }
    }

    pub(super) fn ask(&mut self, node: NodeId, nodes: &mut Nodes, now: u64) {
        if let Some(node) = nodes.get_mut(node) {
            let command: [&[u8]; 2] = [b"CLUSTER", b"SLOTS"];
            push_command(&command, node.connection.ask(Owed::Slots, now));
            node.connection.beaten(now);
            self.is_asking = true;
        }
    }

    pub(super) fn told(
        &mut self,
        told: &Told,
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> Result<Shift, ConnectionError> {
        if told.owed != Owed::Slots {
            return Ok(Shift::None);
        }
        self.is_asking = false;
        let Some(bytes) = &told.aggregate else {
            return Err(ConnectionError::Role(
                "it is not a node of a cluster".to_owned(),
            ));
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        let hash = hasher.finish();
        if hash == self.map_hash && !self.nodes_of_slots.is_empty() {
            return Ok(Shift::None);
        }
        let map = SlotMap::parse(bytes).filter(|map| map.nodes().len() <= MAX_NODES);
        let map = map.ok_or(ConnectionError::Protocol(
            "its map of slots is not understood",
        ))?;
        self.map_hash = hash;
        self.is_lost = false;
        let asked = nodes.get(told.node).map(|node| node.address.clone());
        Ok(self.adopt(&map, asked.as_ref(), how, nodes, now))
    }

    /// Returns the destination of a redirection; the node is added if it is unknown.
    pub(crate) fn moved(
        &mut self,
        slot: Option<u16>,
        to: &Endpoint,
        from: NodeId,
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> NodeId {
        let asked = nodes.get(from).map(|node| node.address.clone());
        let address = completed(to, asked.as_ref());
        let id = node_at(address, how, nodes, now);
        if let Some(slot) = slot {
            if let Some(place) = self.nodes_of_slots.get_mut(usize::from(slot)) {
                *place = Some(id);
                self.name_generations(how, nodes);
            }
            // More than this slot may have moved.
            self.map_hash = 0;
            if !self.is_asking
                && nodes
                    .get(self.watch)
                    .is_some_and(|node| node.connection.is_ready())
            {
                self.ask(self.watch, nodes, now);
            }
        }
        id
    }

    /// Finds the key of each master's generation: that of the smallest tag whose slot it has.
    fn name_generations(&self, how: &NodeSettings, nodes: &mut Nodes) {
        let mut tags: HashMap<NodeId, u16> = HashMap::new();
        for tag in 0..GENERATION_TAGS {
            if let Some(node) = self.node_of_slot(slot_of_tag(tag)) {
                tags.entry(node).or_insert(tag);
            }
        }
        for index in 0..nodes.len() {
            let id = NodeId::new(index);
            if let Some(node) = nodes.get_mut(id)
                && node.purpose == Purpose::Data
            {
                let tag = tags.get(&id);
                node.set_generation_key(tag.map(|tag| how.prefix.generation_key(Some(*tag))));
            }
        }
    }

    fn adopt(
        &mut self,
        map: &SlotMap,
        asked: Option<&Address>,
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> Shift {
        let ids: Vec<NodeId> = map
            .nodes()
            .iter()
            .map(|endpoint| node_at(completed(endpoint, asked), how, nodes, now))
            .collect();
        let unused: Vec<NodeId> = nodes
            .iter()
            .filter(|(id, node)| node.purpose == Purpose::Data && !ids.contains(id))
            .map(|(id, _)| id)
            .collect();
        for id in unused {
            nodes.retire(id);
        }
        let old = std::mem::take(&mut self.nodes_of_slots);
        self.nodes_of_slots = (0..SLOTS)
            .map(|slot| map.node(slot).and_then(|index| ids.get(index).copied()))
            .collect();
        self.name_generations(how, nodes);
        if old.is_empty() {
            Shift::Found
        } else if old == self.nodes_of_slots {
            Shift::None
        } else {
            Shift::Moved
        }
    }
}

/// A node leaves out its host when it does not know it: the one that was asked has it.
fn completed(endpoint: &Endpoint, asked: Option<&Address>) -> Address {
    let mut endpoint = endpoint.clone();
    if endpoint.host.is_empty()
        && let Some(Address::Tcp(asked)) = asked
    {
        endpoint.host.clone_from(&asked.host);
    }
    Address::Tcp(endpoint)
}

fn node_at(address: Address, how: &NodeSettings, nodes: &mut Nodes, now: u64) -> NodeId {
    nodes
        .find_data(&address)
        .unwrap_or_else(|| how.add_data(nodes, address, RequiredRole::Any, now))
}
