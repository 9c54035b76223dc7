//! Routes from codes to servers, and the discovery of the servers.
//!
//! - One [server]: it is asked for everything.
//! - [Sentinel]s name the current master.
//! - The nodes of a [cluster] have a map of slots to nodes.
//!
//! With sentinels and in a cluster one further connection, the watch, polls for that. Each kind
//! defines its nodes and the node of each code; connecting, sending and losing is the same for all.
//!
//! [server]: self::server
//! [Sentinel]: self::sentinel
//! [cluster]: self::cluster

mod cluster;
mod sentinel;
mod server;

use vocabulary::KeyPrefix;

use crate::authority::READ_EVERY;
use crate::cache::ReadFrom;
use crate::connection::{Owed, Patience};
use crate::connection_error::ConnectionError;
use crate::handshake::{Credentials, Handshake, RequiredRole, Tracking};
use crate::key::Key;
use crate::node_id::NodeId;
use crate::nodes::{Address, Nodes, Purpose};
use crate::resp::{INPUT_LENGTH, push_command};

use cluster::Cluster;
use sentinel::Sentinel;
use server::Server;

/// Length of the input for the map of a large cluster whose slots are scattered over its nodes.
/// Memory is allocated as needed.
const WATCH_INPUT_LENGTH: usize = 4 << 20;

/// Discovery of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologySettings {
    /// One server.
    Server(Address),
    /// The master that sentinels name.
    Sentinel {
        /// The name of the master's group.
        master: String,
        /// Sentinels to begin with; they name the others.
        sentinels: Vec<Address>,
    },
    /// A cluster.
    Cluster {
        /// Nodes to begin with; they name the others.
        seeds: Vec<Address>,
    },
}

/// Settings of the connections to servers.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Prefix of the keys.
    pub prefix: KeyPrefix,
    /// The number of the database; 0 in a cluster.
    pub database: u16,
    /// Whom the client logs in as.
    pub credentials: Option<Credentials>,
    /// Whom it logs in as with sentinels.
    pub sentinel_credentials: Option<Credentials>,
    /// Way in which Redis reports changes; `None` without a cache.
    pub tracking: Option<Tracking>,
    /// Time budget of a request that waits for Redis, in milliseconds, at least 1.
    pub budget: u64,
    /// Interval of heartbeats, in milliseconds; servers of records get one each second at least.
    /// Together with the time after which a connection counts as hanging it bounds the age of a
    /// cached answer that is wrong without notice.
    pub heartbeat: u64,
}

impl NodeSettings {
    /// The longest that a time budget may be, in milliseconds.
    pub const LONGEST_BUDGET: u64 = 10_000;

    /// The longest that a heartbeat may be, in milliseconds.
    pub const LONGEST_HEARTBEAT: u64 = 60_000;

    /// Returns the longest wait for a reply before the connection is given up, in milliseconds:
    /// some requests may be slow, but if the queue has not moved for several budgets, Redis hangs
    /// and every further request would only wait its budget for nothing.
    fn stall_limit(&self) -> u64 {
        (self.budget * 4).max(200)
    }

    /// For a connection on which records are read.
    fn patience(&self) -> Patience {
        Patience {
            stall: self.stall_limit(),
            heartbeat: self.heartbeat.min(READ_EVERY),
            longest_reply: INPUT_LENGTH,
        }
    }

    /// For a connection on which it is asked where records are.
    fn watch_patience(&self) -> Patience {
        Patience {
            stall: self.stall_limit(),
            heartbeat: self.heartbeat,
            longest_reply: WATCH_INPUT_LENGTH,
        }
    }

    /// Adds a server of all records.
    fn add_server(
        &self,
        nodes: &mut Nodes,
        address: Address,
        role: RequiredRole,
        now: u64,
    ) -> NodeId {
        let id = self.add_data(nodes, address, role, now);
        if let Some(node) = nodes.get_mut(id) {
            node.set_generation_key(Some(self.prefix.generation_key(None)));
        }
        id
    }

    /// Adds a server that records are read from.
    fn add_data(
        &self,
        nodes: &mut Nodes,
        address: Address,
        role: RequiredRole,
        now: u64,
    ) -> NodeId {
        let mut handshake = Handshake::new(self.credentials.as_ref())
            .select(self.database)
            .require(role);
        if let Some(tracking) = self.tracking {
            handshake = handshake.track(tracking, &self.prefix);
        }
        nodes.add(address, Purpose::Data, handshake, self.patience(), now)
    }
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            prefix: KeyPrefix::default(),
            database: 0,
            credentials: None,
            sentinel_credentials: None,
            tracking: None,
            budget: 50,
            heartbeat: 1000,
        }
    }
}

/// Whom to ask for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    To(NodeId),
    /// It is being found out for the first time.
    Soon,
    /// No server can be asked now.
    Nowhere,
}

/// Consequence of a change of the topology for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// Nothing has changed.
    None,
    /// It is known now for the first time.
    Found,
    /// Codes belong to other servers than before: future changes may not be reported to earlier
    /// readers.
    Moved,
}

/// A worker's knowledge of the servers.
#[derive(Debug)]
pub(crate) enum Topology {
    Server(Server),
    Sentinel(Sentinel),
    Cluster(Cluster),
}

impl Topology {
    pub(crate) fn new(
        settings: &TopologySettings,
        replica: Option<&Address>,
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> Self {
        match settings {
            TopologySettings::Server(address) => {
                Self::Server(Server::new(address, replica, how, nodes, now))
            }
            TopologySettings::Sentinel { master, sentinels } => {
                Self::Sentinel(Sentinel::new(master, sentinels, replica, how, nodes, now))
            }
            TopologySettings::Cluster { seeds } => {
                Self::Cluster(Cluster::new(seeds, how, nodes, now))
            }
        }
    }

    /// Whom to ask for a record.
    #[inline]
    pub(crate) fn route(&self, key: &Key, nodes: &Nodes, now: u64) -> Route {
        match self {
            Self::Server(server) => server.route(nodes, now),
            Self::Sentinel(sentinel) => sentinel.route(nodes, now),
            Self::Cluster(cluster) => cluster.route(key),
        }
    }

    /// The server that a cached record was read from, if it is known.
    pub(crate) fn source(&self, key: &Key, read_from: ReadFrom) -> Option<NodeId> {
        match (self, read_from) {
            (_, ReadFrom::Replica) => self.replica(),
            (Self::Server(server), ReadFrom::Master) => Some(server.primary()),
            (Self::Sentinel(sentinel), ReadFrom::Master) => sentinel.master(),
            (Self::Cluster(cluster), ReadFrom::Master) => cluster.node_of(key),
        }
    }

    /// The replica that is asked first, if there is one.
    pub(crate) fn replica(&self) -> Option<NodeId> {
        match self {
            Self::Server(server) => server.replica(),
            Self::Sentinel(sentinel) => sentinel.replica(),
            Self::Cluster(_) => None,
        }
    }

    /// The server that is written to, if there is one for all keys and it is known.
    pub(crate) fn writable(&self) -> Option<NodeId> {
        match self {
            Self::Server(server) => Some(server.primary()),
            Self::Sentinel(sentinel) => sentinel.master(),
            Self::Cluster(_) => None,
        }
    }

    /// Whom to send visits to whose stream has this slot: who may be written to.
    pub(crate) fn route_visits(&self, slot: u16) -> Option<NodeId> {
        match self {
            Self::Cluster(cluster) => cluster.node_of_slot(slot),
            _ => self.writable(),
        }
    }

    /// A connection has become ready.
    pub(crate) fn ready(&mut self, node: NodeId, nodes: &mut Nodes, now: u64) {
        if let Some(node) = nodes.get_mut(node)
            && node.purpose == Purpose::Data
        {
            node.read_generation(now);
        }
        match self {
            Self::Server(_) => {}
            Self::Sentinel(sentinel) => sentinel.ready(node, nodes, now),
            Self::Cluster(cluster) => cluster.ready(node, nodes, now),
        }
    }

    /// A connection was lost.
    pub(crate) fn lost(&mut self, node: NodeId, nodes: &mut Nodes) {
        match self {
            Self::Server(_) => {}
            Self::Sentinel(sentinel) => sentinel.lost(node, nodes),
            Self::Cluster(cluster) => cluster.lost(node, nodes),
        }
    }

    /// Asks a server how it is.
    pub(crate) fn beat(&mut self, node: NodeId, nodes: &mut Nodes, now: u64) {
        let Some(Purpose::Watch) = nodes.get(node).map(|node| node.purpose) else {
            let Some(node) = nodes.get_mut(node) else {
                return;
            };
            let is_asked = node.read_generation(now);
            if node.connection.requires_role() {
                push_command(&[b"ROLE"], node.connection.ask(Owed::Role, now));
            } else if !is_asked {
                push_command(&[b"PING"], node.connection.ask(Owed::Acknowledgement, now));
            }
            node.connection.beaten(now);
            return;
        };
        match self {
            Self::Server(_) => {}
            Self::Sentinel(sentinel) => sentinel.ask(node, nodes, now),
            Self::Cluster(cluster) => cluster.ask(node, nodes, now),
        }
    }

    /// Reads a reply or push to the watch.
    ///
    /// # Errors
    /// Fails if another server is to be asked instead.
    pub(crate) fn told(
        &mut self,
        told: &Told,
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> Result<Shift, ConnectionError> {
        match self {
            Self::Server(_) => Ok(Shift::None),
            Self::Sentinel(sentinel) => sentinel.told(told, how, nodes, now),
            Self::Cluster(cluster) => cluster.told(told, how, nodes, now),
        }
    }

    /// The cluster, if it is one.
    pub(crate) fn cluster_mut(&mut self) -> Option<&mut Cluster> {
        match self {
            Self::Cluster(cluster) => Some(cluster),
            Self::Server(_) | Self::Sentinel(_) => None,
        }
    }

    /// The sentinels, if there are any.
    pub(crate) fn sentinel_mut(&mut self) -> Option<&mut Sentinel> {
        match self {
            Self::Sentinel(sentinel) => Some(sentinel),
            Self::Server(_) | Self::Cluster(_) => None,
        }
    }
}

/// A reply to the watch, copied out of the connection's input: connections come and go while it
/// is read.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The node that has replied.
    pub(crate) node: NodeId,
    /// Purpose of the reply.
    pub(crate) owed: Owed,
    /// The aggregate that it replied; `None` for anything else.
    pub(crate) aggregate: Option<Vec<u8>>,
}
