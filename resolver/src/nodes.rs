//! The servers that a worker has connections to.

use std::fmt;

use crate::authority::Authority;
use crate::breaker::{Breaker, BreakerLimits};
use crate::connection::{Connection, Owed, Patience};
use crate::endpoint::Endpoint;
use crate::handshake::Handshake;
use crate::node_id::NodeId;
use crate::resp::push_command;

/// Address at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host and a port.
    Tcp(Endpoint),
    /// The path of a unix socket.
    Unix(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(endpoint) => endpoint.fmt(f),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Records are read.
    Data,
    /// The locations of records are read: from a sentinel, or any node of a cluster.
    Watch,
}

/// A server and the connection to it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) address: Address,
    pub(crate) purpose: Purpose,
    pub(crate) connection: Connection,
    pub(crate) breaker: Breaker,
    /// Proof that its data set is current; never one for a watch.
    pub(crate) authority: Authority,
    /// Key of the value that proves it, if it has one.
    pub(crate) generation_key: Option<String>,
    /// Nothing is asked here any more; the place is free once the connection is closed.
    pub(crate) is_retired: bool,
}

impl Node {
    /// Reports whether a request may be sent.
    pub(crate) fn admits(&mut self, now: u64) -> bool {
        !self.is_retired && self.connection.admits() && self.breaker.admits(now)
    }

    /// Sets the key of the value that proves the data set.
    pub(crate) fn set_generation_key(&mut self, key: Option<String>) {
        if self.generation_key != key {
            self.generation_key = key;
            self.authority.move_on();
        }
    }

    /// Asks whether the data set is current; `false` if nothing says so.
    pub(crate) fn read_generation(&mut self, now: u64) -> bool {
        let Some(key) = &self.generation_key else {
            return false;
        };
        // An overdue reply is worth no second request: the connection is given up without it.
        if self.authority.ask(now) {
            let output = self.connection.ask(Owed::Generation, now);
            push_command(&[b"GET", key.as_bytes()], output);
        }
        true
    }

    /// Reports whether visits may be sent, which wait for no connection and never are the try.
    pub(crate) fn takes_visits(&self, now: u64) -> bool {
        !self.is_retired && self.connection.is_ready() && !self.breaker.holds(now)
    }
}

/// The servers.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    places: Vec<Option<Node>>,
    seed: u64,
}

impl Nodes {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            places: Vec::new(),
            seed,
        }
    }

    /// Adds a server, which is to be connected at once.
    pub(crate) fn add(
        &mut self,
        address: Address,
        purpose: Purpose,
        handshake: Handshake,
        patience: Patience,
        now: u64,
    ) -> NodeId {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let node = Node {
            address,
            purpose,
            connection: Connection::new(handshake, patience, now, self.seed),
            breaker: Breaker::new(BreakerLimits::of_redis(patience.stall)),
            authority: Authority::default(),
            generation_key: None,
            is_retired: false,
        };
        match self.places.iter().position(Option::is_none) {
            Some(free) => {
                self.places[free] = Some(node);
                NodeId::new(free)
            }
            None => {
                self.places.push(Some(node));
                NodeId::new(self.places.len() - 1)
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: NodeId) -> Option<&Node> {
        self.places.get(id.index())?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.places.get_mut(id.index())?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(index, node)| Some((NodeId::new(index), node.as_ref()?)))
    }

    /// Returns the number of places, used or not.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The server that records are read from at an address.
    pub(crate) fn find_data(&self, address: &Address) -> Option<NodeId> {
        self.iter()
            .find(|(_, node)| {
                node.purpose == Purpose::Data && !node.is_retired && node.address == *address
            })
            .map(|(id, _)| id)
    }

    /// Says that nothing is asked there any more.
    pub(crate) fn retire(&mut self, id: NodeId) {
        if let Some(node) = self.get_mut(id) {
            node.is_retired = true;
        }
    }

    /// Frees the place of a server that was retired and has no connection.
    pub(crate) fn remove(&mut self, id: NodeId) {
        if let Some(place) = self.places.get_mut(id.index()) {
            *place = None;
        }
    }
}
