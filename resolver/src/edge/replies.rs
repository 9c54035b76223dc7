//! The edge's handling of replies and pushes.

use crate::answer::{Answer, Judgement, MissReason, Ruling, found};
use crate::cache::CampaignLink;
use crate::connection::{Owed, Span};
use crate::connection_error::ConnectionError;
use crate::counters::{Counter, Source};
use crate::handshake::Step;
use crate::key::Key;
use crate::lookups::LookupId;
use crate::node_id::NodeId;
use crate::nodes::Purpose;
use crate::resp::Reply;
use crate::slots::{Redirection, RedirectionKind};
use crate::topology::{Route, Shift, Told};

use super::{Brought, Delivery, Edge, Notice, Now, note};

/// The most redirections of a look-up from node to node of a cluster.
const MAX_REDIRECTIONS: u8 = 5;

/// Command that lets the next command read a slot that is on its way to the node.
pub(super) const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

impl<T> Edge<T> {
    pub(super) fn deliver(&mut self, lookup: LookupId, brought: Brought) {
        self.lookups.finish(lookup);
        self.delivery = Some(Delivery { lookup, brought });
    }

    /// A look-up's record, or what stands for it, has come.
    pub(super) fn found(&mut self, lookup: LookupId, id: NodeId, span: Span, now: Now) {
        let read_from = self.read_from(id);
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        let round_trip = node.connection.round_trip();
        let reply = node.connection.reply(&span);
        let found = node.authority.check(found(&reply));
        if let Reply::Error(text) = reply
            && let Some(redirection) = Redirection::parse(text)
        {
            if !self.redirect(lookup, id, &redirection, now) {
                match self.lookups.key(lookup) {
                    Key::Link(_) => self.deliver(lookup, Brought::Reply(id, span)),
                    Key::Campaign(_) => {
                        self.deliver_campaign(lookup, MissReason::Error, now);
                    }
                }
            }
            return;
        }
        let key = *self.lookups.key(lookup);
        let judgement = match key {
            Key::Link(_) => Judgement::of_link(found, now.unix),
            Key::Campaign(_) => Judgement::of_campaign(found, now.unix).convert(),
        };
        let miss = match judgement.ruling {
            Ruling::Answer(Answer::Miss(reason)) => Some(reason),
            Ruling::Answer(_) | Ruling::Campaign { .. } => None,
        };
        if let Some(counters) = &self.counters {
            counters.count(match miss {
                Some(MissReason::Absent) => Counter::ReplyAbsent,
                Some(MissReason::Unreadable) => Counter::ReplyUnreadable,
                Some(MissReason::Doubtful(_)) => Counter::ReplyRecord,
                Some(_) => Counter::ReplyError,
                None => Counter::ReplyRecord,
            });
            counters.observe(round_trip, 1);
        }
        if miss == Some(MissReason::Unreadable) {
            note(&mut self.notices, Notice::Unreadable(key));
        }
        if self.lookups.age(lookup) == Some(self.age)
            && miss != Some(MissReason::Error)
            && let Some(cache) = &mut self.cache
        {
            cache.insert(&key, &judgement, read_from, now);
        }
        if miss == Some(MissReason::Error) {
            if node.breaker.failed(now.ms) {
                if let Some(counters) = &self.counters {
                    counters.count(Counter::BreakerOpened);
                }
                let text = match reply {
                    Reply::Error(text) => Some(String::from_utf8_lossy(text).into_owned()),
                    _ => None,
                };
                note(&mut self.notices, Notice::BreakerOpened(id, text));
            }
        } else if !self.lookups.is_late(lookup) {
            node.breaker.succeeded();
        }
        match (key, judgement.ruling) {
            (Key::Link(_), Ruling::Answer(_)) => self.deliver(lookup, Brought::Reply(id, span)),
            (
                Key::Link(_),
                Ruling::Campaign {
                    campaign,
                    parameters,
                    phase,
                },
            ) => {
                let link = CampaignLink {
                    campaign,
                    phase,
                    until: judgement.until,
                    parameters,
                };
                let is_current = node.authority.holds(now.ms);
                self.lookups.know(lookup, &link, is_current);
                self.ask_campaign(lookup, campaign, now);
            }
            (Key::Campaign(_), Ruling::Answer(Answer::Miss(MissReason::Error)))
            | (Key::Campaign(_), Ruling::Campaign { .. }) => {
                self.deliver_campaign(lookup, MissReason::Error, now);
            }
            (Key::Campaign(_), Ruling::Answer(answer)) => {
                let answer = answer.vouched_by(|| node.authority.holds(now.ms));
                self.campaign.set(answer, Source::Redis);
                self.answer_links(lookup);
            }
        }
    }

    /// Sends a look-up on to where a node of a cluster says; `false` when it is not.
    fn redirect(
        &mut self,
        lookup: LookupId,
        from: NodeId,
        redirection: &Redirection,
        now: Now,
    ) -> bool {
        if self.topology.cluster_mut().is_none() || self.lookups.redirect(lookup) > MAX_REDIRECTIONS
        {
            return false;
        }
        let Some(to) = self.redirected(from, redirection, now) else {
            return false;
        };
        let asking = redirection.kind == RedirectionKind::Ask;
        let Some(node) = self.nodes.get_mut(to) else {
            return false;
        };
        if !node.admits(now.ms) {
            return false;
        }
        if asking {
            let output = node.connection.ask(Owed::Acknowledgement, now.ms);
            output.extend_from_slice(ASKING);
        }
        let keep = self.lookups.is_wanted(lookup) && !asking;
        self.send(lookup, to, keep, now);
        true
    }

    /// Learns from a node of a cluster that another one has what it was asked for; `None` when
    /// this is no cluster.
    pub(super) fn redirected(
        &mut self,
        from: NodeId,
        redirection: &Redirection,
        now: Now,
    ) -> Option<NodeId> {
        let cluster = self.topology.cluster_mut()?;
        let (slot, counter) = match redirection.kind {
            RedirectionKind::Moved => (Some(redirection.slot), Counter::RedisMoved),
            RedirectionKind::Ask => (None, Counter::RedisAsk),
        };
        if let Some(counters) = &self.counters {
            counters.count(counter);
        }
        let how = &self.settings.nodes;
        let to = cluster.moved(slot, &redirection.to, from, how, &mut self.nodes, now.ms);
        if slot.is_some() {
            self.lose_coherence(now);
        }
        Some(to)
    }

    /// A reply that is no record has come.
    pub(super) fn told(
        &mut self,
        owed: Owed,
        id: NodeId,
        span: &Span,
        now: Now,
    ) -> Result<(), ConnectionError> {
        let Some(node) = self.nodes.get_mut(id) else {
            return Ok(());
        };
        let connection = &mut node.connection;
        match owed {
            Owed::Lookup(_) | Owed::Acknowledgement => {}
            Owed::Visits(batch) => self.visits_answered(batch, id, span, now),
            Owed::Role => connection.check_role(span)?,
            Owed::Generation => self.generation_read(id, span, now),
            Owed::Handshake(step) => {
                connection.shake(step, span, now.ms)?;
                if let (Step::Tracking, Reply::Error(text)) = (step, connection.reply(span)) {
                    let text = String::from_utf8_lossy(text).into_owned();
                    note(&mut self.notices, Notice::TrackingRefused(id, text));
                }
                if connection.is_ready() {
                    node.breaker.reset();
                    if let Some(counters) = &self.counters {
                        counters.count(Counter::RedisConnect);
                    }
                    self.topology.ready(id, &mut self.nodes, now.ms);
                    if let Some(visits) = &mut self.visits {
                        visits.retry();
                    }
                    self.measure();
                }
            }
            Owed::Master | Owed::Sentinels | Owed::Slots => {
                let aggregate = match connection.reply(span) {
                    Reply::Aggregate(bytes) => Some(bytes.to_vec()),
                    _ => None,
                };
                let told = Told {
                    node: id,
                    owed,
                    aggregate,
                };
                let how = &self.settings.nodes;
                let shift = self.topology.told(&told, how, &mut self.nodes, now.ms)?;
                self.shifted(shift, now);
            }
        }
        Ok(())
    }

    /// Redis has said something of its own accord.
    pub(super) fn announced(&mut self, id: NodeId, span: &Span, now: Now) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        match (node.connection.reply(span), &mut self.cache) {
            (Reply::Invalidated(key), Some(cache)) => {
                let prefix = &self.settings.nodes.prefix;
                if let Some(code) = prefix.code_of_link_key(key) {
                    cache.remove(&Key::Link(code));
                } else if let Some(id) = prefix.campaign_of_key(key) {
                    cache.remove(&Key::Campaign(id));
                }
            }
            (Reply::InvalidatedAll, Some(cache)) => cache.clear(),
            (Reply::Push(bytes), _) if node.purpose == Purpose::Watch => {
                let bytes = bytes.to_vec();
                let how = &self.settings.nodes;
                if let Some(sentinel) = self.topology.sentinel_mut() {
                    let shift = sentinel.announced(&bytes, how, &mut self.nodes, now.ms);
                    self.shifted(shift, now);
                }
            }
            _ => {}
        }
    }

    /// Does what follows from a change of the topology.
    fn shifted(&mut self, shift: Shift, now: Now) {
        match shift {
            Shift::None => return,
            Shift::Found => {}
            Shift::Moved => {
                self.lose_coherence(now);
                note(&mut self.notices, Notice::Moved);
            }
        }
        for lookup in std::mem::take(&mut self.unrouted) {
            let key = self.lookups.key(lookup);
            match self.topology.route(key, &self.nodes, now.ms) {
                Route::To(id) if self.nodes.get_mut(id).is_some_and(|n| n.admits(now.ms)) => {
                    let keep = self.lookups.is_wanted(lookup);
                    self.send(lookup, id, keep, now);
                }
                _ => self.lost.push_back(lookup),
            }
        }
    }

    /// Makes the cache stale: its changes are not reported reliably any more.
    pub(super) fn lose_coherence(&mut self, now: Now) {
        self.age = self.age.wrapping_add(1);
        if let Some(cache) = &mut self.cache {
            cache.end_epoch(now);
        }
    }
}
