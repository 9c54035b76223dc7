//! Visits: recorded, sent with the reads, and kept until Redis has confirmed them.

use vocabulary::visit::VisitEvent;

use crate::connection::{Owed, Span};
use crate::counters::Counter;
use crate::node_id::NodeId;
use crate::resp::Reply;
use crate::slots::{Redirection, RedirectionKind, slot_of_tag};
use crate::visits::{BatchId, Recorded, VisitSettings, Visits};

use super::replies::ASKING;
use super::{Edge, Notice, Now, note};

impl<T> Edge<T> {
    /// Has visits stored from now on. `origin` is a random number that no other worker has.
    pub fn keep_visits(&mut self, settings: &VisitSettings, origin: u64) {
        let prefix = &self.settings.nodes.prefix;
        self.visits = Some(Visits::new(settings, prefix, origin));
    }

    /// The visits that are on their way, if they are stored.
    pub fn visits(&self) -> Option<&Visits> {
        self.visits.as_ref()
    }

    /// The same, to be changed.
    pub fn visits_mut(&mut self) -> Option<&mut Visits> {
        self.visits.as_mut()
    }

    /// Records a visit; what stands in its `id` does not matter.
    #[inline]
    pub fn record_visit(&mut self, event: VisitEvent<'_>, now: Now) -> Recorded {
        let Some(visits) = &mut self.visits else {
            return Recorded::Kept;
        };
        let recorded = visits.record(event, now.ms);
        if let Some(counters) = &self.counters {
            counters.count(Counter::Visit);
        }
        recorded
    }

    /// Puts what is due into the output of its node.
    pub fn send_visits(&mut self, now: Now) {
        loop {
            let Some(visits) = &mut self.visits else {
                return;
            };
            if !visits.is_due(now.ms) {
                return;
            }
            let to = self.topology.route_visits(slot_of_tag(visits.shard()));
            let node = to.and_then(|id| Some((id, self.nodes.get_mut(id)?)));
            let Some((id, node)) = node.filter(|(_, node)| node.takes_visits(now.ms)) else {
                visits.postpone(now.ms);
                return;
            };
            let Some(batch) = visits.send(id, now.ms) else {
                return;
            };
            visits.write(batch, node.connection.ask(Owed::Visits(batch), now.ms));
        }
    }

    /// Reports whether visits would be taken now.
    pub fn takes_visits(&self, now: Now) -> bool {
        self.visits.as_ref().is_some_and(|visits| {
            self.topology
                .route_visits(slot_of_tag(visits.shard()))
                .and_then(|id| self.nodes.get(id))
                .is_some_and(|node| node.takes_visits(now.ms))
        })
    }

    /// Handles a lost connection to a node: its unconfirmed visits may or may not have arrived.
    pub(super) fn lose_visits(&mut self, id: NodeId) {
        if let Some(visits) = &mut self.visits {
            let count = visits.lost(id);
            if let Some(counters) = &self.counters {
                counters.add(Counter::BatchLost, count);
            }
        }
    }

    /// The reply to a batch has come.
    pub(super) fn visits_answered(&mut self, batch: BatchId, id: NodeId, span: &Span, now: Now) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let text = match node.connection.reply(span) {
            Reply::Bulk(_) => {
                let Some(confirmed) = self.visits.as_mut().and_then(|v| v.confirmed(batch)) else {
                    return;
                };
                if let Some(counters) = &self.counters {
                    counters.count(Counter::BatchStored);
                    // In this order: between the two a visit is held, not lost.
                    if confirmed.is_spooled {
                        counters.add(Counter::VisitUnspooled, confirmed.events.into());
                    }
                    counters.add(Counter::VisitStored, confirmed.events.into());
                }
                self.spool_confirmed |= confirmed.is_spooled;
                return;
            }
            Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
            _ => "a reply that is not one to XADD".to_owned(),
        };
        if let Some(redirection) = Redirection::parse(text.as_bytes())
            && self.forward_visits(batch, id, &redirection, now)
        {
            return;
        }
        self.count(Counter::BatchRefused);
        if let Some(visits) = &mut self.visits {
            visits.refused(batch, now.ms);
        }
        note(&mut self.notices, Notice::VisitsRefused(id, text));
    }

    /// Sends a batch on to where a node of a cluster says; `false` when it is to be tried again
    /// later.
    fn forward_visits(
        &mut self,
        batch: BatchId,
        from: NodeId,
        redirection: &Redirection,
        now: Now,
    ) -> bool {
        let Some(to) = self.redirected(from, redirection, now) else {
            return false;
        };
        let (Some(visits), Some(node)) = (&mut self.visits, self.nodes.get_mut(to)) else {
            return false;
        };
        // A node that is not connected yet is by the time of the next attempt.
        if !node.takes_visits(now.ms) || !visits.forward(batch, to) {
            return false;
        }
        if redirection.kind == RedirectionKind::Ask {
            let output = node.connection.ask(Owed::Acknowledgement, now.ms);
            output.extend_from_slice(ASKING);
        }
        visits.write(batch, node.connection.ask(Owed::Visits(batch), now.ms));
        true
    }

    /// Reports whether Redis has confirmed a batch out of a file since the last call.
    pub fn take_spool_confirmed(&mut self) -> bool {
        std::mem::take(&mut self.spool_confirmed)
    }
}
