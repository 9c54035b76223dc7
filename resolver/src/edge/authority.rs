//! Bad news is passed on only from a server whose data are proved current, and from fresh entries
//! that were read from it.

use vocabulary::generation::Generation;

use crate::answer::{Answer, Judgement, MissReason, Ruling, WRONG_TYPE, found};
use crate::cache::{Entry, ReadFrom};
use crate::connection::Span;
use crate::key::Key;
use crate::node_id::NodeId;
use crate::nodes::Nodes;
use crate::resp::Reply;
use crate::topology::Topology;

use super::{Edge, Notice, Now, note};

/// Reports whether bad news in an entry may be passed on: Redis would have reported a change, and the
/// data that it was read from are proved current.
#[inline]
pub(super) fn vouches(
    topology: &Topology,
    nodes: &Nodes,
    key: &Key,
    entry: Entry,
    now: Now,
) -> bool {
    let node = || nodes.get(topology.source(key, entry.read_from())?);
    entry.is_fresh() && node().is_some_and(|node| node.authority.holds(now.ms))
}

/// Reads the answer for a link from a reply that has arrived.
#[inline]
pub(super) fn answer_at<'a>(nodes: &'a Nodes, id: NodeId, span: &Span, now: Now) -> Answer<'a> {
    let Some(node) = nodes.get(id) else {
        return Answer::Miss(MissReason::Unavailable);
    };
    let found = node.authority.check(found(&node.connection.reply(span)));
    match Judgement::of_link(found, now.unix).ruling {
        Ruling::Answer(answer) => answer.vouched_by(|| node.authority.holds(now.ms)),
        // Such a link is never answered by its own record only.
        Ruling::Campaign { .. } => Answer::Miss(MissReason::Unreadable),
    }
}

/// Reports whether an error lasts until an operator mends its cause.
fn is_refusal(error: &[u8]) -> bool {
    error.starts_with(b"NOPERM") || error.starts_with(WRONG_TYPE)
}

impl<T> Edge<T> {
    /// Returns an entry's answer.
    #[inline]
    pub(super) fn entry_answer(&self, key: &Key, entry: Entry, now: Now) -> Answer<'_> {
        match &self.cache {
            Some(cache) => cache
                .answer(entry, now)
                .vouched_by(|| vouches(&self.topology, &self.nodes, key, entry, now)),
            None => Answer::Miss(MissReason::Unavailable),
        }
    }

    /// Returns the server that a record was read from.
    pub(super) fn read_from(&self, id: NodeId) -> ReadFrom {
        if self.topology.replica() == Some(id) {
            ReadFrom::Replica
        } else {
            ReadFrom::Master
        }
    }

    /// The generation of a server's data set has come, or what stands for it.
    pub(super) fn generation_read(&mut self, id: NodeId, span: &Span, now: Now) {
        let master = (self.topology.replica() == Some(id)).then(|| self.topology.writable());
        let master = master.flatten().and_then(|id| self.nodes.get(id));
        let master = master.filter(|node| node.connection.is_ready());
        let master = master.map(|node| node.authority);
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        let value = match node.connection.reply(span) {
            Reply::Bulk(value) => Generation::parse(value),
            // Other errors pass by themselves: it loads its data, or the key moves.
            Reply::Error(text) if is_refusal(text) => {
                let text = String::from_utf8_lossy(text).into_owned();
                note(&mut self.notices, Notice::GenerationRefused(id, text));
                None
            }
            _ => None,
        };
        let held = node.authority.holds(now.ms);
        let is_other = node.authority.read(value, master.as_ref());
        let holds = node.authority.holds(now.ms);
        if is_other {
            // Cached records may not be in this data set.
            self.lose_coherence(now);
        } else if held && !holds {
            self.lose_authority(id, now);
        }
        if held != holds {
            self.measure();
        }
    }

    /// The data of a server are not proved current any more. A replica may have ceased to receive
    /// changes, which it then does not report either.
    pub(super) fn lose_authority(&mut self, id: NodeId, now: Now) {
        if self.topology.replica() == Some(id) {
            self.lose_coherence(now);
        }
    }
}
