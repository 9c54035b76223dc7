//! Bytes in and out: what the owner of the sockets does with the edge.

use crate::node_id::NodeId;
use crate::nodes::{Address, Purpose};

use super::{Edge, Now};

impl<T> Edge<T> {
    /// Every server that there is a connection to, or is to be.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().map(|(id, _)| id)
    }

    /// Returns the address of a node.
    pub fn address(&self, id: NodeId) -> Option<&Address> {
        self.nodes.get(id).map(|node| &node.address)
    }

    /// Returns the purpose of a node.
    pub fn purpose(&self, id: NodeId) -> Option<Purpose> {
        self.nodes.get(id).map(|node| node.purpose)
    }

    /// Reports whether commands to a node are answered.
    pub fn is_ready(&self, id: NodeId) -> bool {
        self.nodes
            .get(id)
            .is_some_and(|node| node.connection.is_ready())
    }

    /// Returns the bytes to write to a node now.
    pub fn output(&self, id: NodeId) -> &[u8] {
        self.nodes
            .get(id)
            .map_or(&[], |node| node.connection.output())
    }

    /// Says how much of [`Edge::output`] was written, at which time in microseconds.
    pub fn wrote(&mut self, id: NodeId, count: usize, micros: u64) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.connection.wrote(count, micros);
        }
    }

    /// Returns the buffer for the next bytes of a node; empty only for an unknown node.
    pub fn input_space(&mut self, id: NodeId) -> &mut [u8] {
        match self.nodes.get_mut(id) {
            Some(node) => node.connection.input_space(),
            None => &mut [],
        }
    }

    /// Says how many bytes were read into [`Edge::input_space`], at which time in microseconds.
    pub fn received(&mut self, id: NodeId, count: usize, micros: u64) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.connection.received(count, micros);
        }
    }

    /// Says that the owner has begun to open a connection.
    pub fn connecting(&mut self, id: NodeId, now: Now) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.connection.connecting(now.ms);
        }
    }

    /// Says that a connection is open: the handshake goes before the requests that wait.
    pub fn connected(&mut self, id: NodeId, now: Now) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.connection.connected(now.ms);
        }
    }
}
