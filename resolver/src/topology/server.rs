//! One server, and optionally a nearer replica of it.

use crate::handshake::RequiredRole;
use crate::node_id::NodeId;
use crate::nodes::{Address, Nodes};

use super::{NodeSettings, Route};

#[derive(Debug)]
pub(crate) struct Server {
    primary: NodeId,
    /// Asked first, while its copy is being kept up to date.
    replica: Option<NodeId>,
}

impl Server {
    pub(super) fn new(
        address: &Address,
        replica: Option<&Address>,
        how: &NodeSettings,
        nodes: &mut Nodes,
        now: u64,
    ) -> Self {
        let primary = how.add_server(nodes, address.clone(), RequiredRole::Any, now);
        Self {
            primary,
            replica: replica
                .map(|address| how.add_server(nodes, address.clone(), RequiredRole::Replica, now)),
        }
    }

    /// The server that is written to.
    pub(super) fn primary(&self) -> NodeId {
        self.primary
    }

    /// The replica, if there is one.
    pub(super) fn replica(&self) -> Option<NodeId> {
        self.replica
    }

    #[inline]
    pub(super) fn route(&self, nodes: &Nodes, now: u64) -> Route {
        prefer(self.replica, nodes, now).unwrap_or(Route::To(self.primary))
    }
}

/// The replica, if it can be asked and its copy is proved current.
#[inline]
pub(super) fn prefer(replica: Option<NodeId>, nodes: &Nodes, now: u64) -> Option<Route> {
    let id = replica?;
    let node = nodes.get(id)?;
    let is_usable = node.connection.is_ready() && !node.breaker.is_open();
    (is_usable && node.authority.holds(now)).then_some(Route::To(id))
}
