//! One server, and perhaps a replica of it nearer by.

use crate::handshake::RequiredRole;
use crate::nodes::{Address, NodeId, Nodes};

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
        let primary = how.add_data(nodes, address.clone(), RequiredRole::Any, now);
        Self {
            primary,
            replica: replica
                .map(|address| how.add_data(nodes, address.clone(), RequiredRole::Replica, now)),
        }
    }

    /// The server that is written to.
    pub(super) fn primary(&self) -> NodeId {
        self.primary
    }

    #[inline]
    pub(super) fn route(&self, nodes: &Nodes) -> Route {
        prefer(self.replica, nodes).unwrap_or(Route::To(self.primary))
    }
}

/// The replica, if it can be asked.
#[inline]
pub(super) fn prefer(replica: Option<NodeId>, nodes: &Nodes) -> Option<Route> {
    let id = replica?;
    let node = nodes.get(id)?;
    (node.connection.is_ready() && !node.breaker.is_open()).then_some(Route::To(id))
}
