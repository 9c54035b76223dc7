//! Requests that are done: handed out one at a time.

use crate::answer::{Answer, MissReason, WRONG_TYPE};
use crate::connection::{Owed, Span};
use crate::connection_error::ConnectionError;
use crate::counters::{Counter, Source};
use crate::key::Key;
use crate::node_id::NodeId;
use crate::nodes::Nodes;
use crate::resp::Reply;

use super::authority::answer_at;
use super::{Brought, Completion, Delivery, Edge, Notice, Now, note};

impl<T> Edge<T> {
    /// Takes the next request that is done, reading what was received from a node.
    ///
    /// # Errors
    /// Fails if the connection to the node must be given up.
    #[inline]
    pub fn next_completion(
        &mut self,
        id: NodeId,
        now: Now,
    ) -> Result<Option<Completion<'_, T>>, ConnectionError> {
        let (token, delivery) = loop {
            if let Some(delivery) = self.delivery.take() {
                if let Some(token) = self.lookups.next_waiter(delivery.lookup) {
                    break (token, self.delivery.insert(delivery));
                }
                continue;
            }
            if let Some(campaign) = self.answered_campaign {
                match self.lookups.next_link(campaign) {
                    Some(link) => self.deliver(link, Brought::Campaign),
                    None => self.answered_campaign = None,
                }
                continue;
            }
            if let Some(lookup) = self.lost.pop_front() {
                match self.lookups.key(lookup) {
                    Key::Link(_) => self.deliver(lookup, Brought::Nothing),
                    Key::Campaign(_) => {
                        self.deliver_campaign(lookup, MissReason::Unavailable, now);
                    }
                }
                continue;
            }
            let Some(node) = self.nodes.get_mut(id) else {
                return Ok(None);
            };
            let Some(received) = node.connection.next_received()? else {
                return Ok(None);
            };
            match received.owed {
                Some(Owed::Lookup(lookup)) => self.found(lookup, id, received.span, now),
                Some(owed) => self.told(owed, id, &received.span, now)?,
                None => self.announced(id, &received.span, now),
            }
        };
        let lookup = delivery.lookup;
        let (is_about_redis, source) = match &delivery.brought {
            Brought::Campaign => return Ok(Some(self.campaign_completion(token, lookup, now))),
            Brought::Nothing => (true, Source::None),
            Brought::Reply(id, span) => (is_error(&self.nodes, *id, span), Source::Redis),
        };
        if is_about_redis && let Some(kept) = self.stale(lookup, now) {
            return Ok(Some(Completion {
                token,
                answer: self.kept_answer(self.lookups.key(lookup), kept, now),
                source: Source::Stale,
            }));
        }
        let answer = match &self.delivery {
            Some(Delivery {
                brought: Brought::Reply(id, span),
                ..
            }) => answer_at(&self.nodes, *id, span, now),
            _ => Answer::Miss(MissReason::Unavailable),
        };
        Ok(Some(Completion {
            token,
            answer,
            source,
        }))
    }

    /// Takes the next request whose time budget is used up. It gets the cached answer, if that may
    /// be served, or else goes to the fallback. A late reply still serves others.
    pub fn next_expired(&mut self, now: Now) -> Option<Completion<'_, T>> {
        let limit = now.ms.checked_sub(self.settings.nodes.budget)?;
        let expired = self.lookups.next_expired(limit)?;
        if let Some(id) = expired.late_node {
            self.count(Counter::RedisTimeout);
            if let Some(node) = self.nodes.get_mut(id)
                && node.breaker.failed(now.ms)
            {
                self.count(Counter::BreakerOpened);
                note(&mut self.notices, Notice::BreakerOpened(id, None));
            }
        }
        let token = expired.token;
        if let Some(kept) = self.stale(expired.lookup, now) {
            return Some(Completion {
                token,
                answer: self.kept_answer(self.lookups.key(expired.lookup), kept, now),
                source: Source::Stale,
            });
        }
        Some(Completion {
            token,
            answer: Answer::Miss(MissReason::TimedOut),
            source: Source::None,
        })
    }
}

/// Reports whether a reply that has arrived is about Redis' state rather than the link's.
#[inline]
fn is_error(nodes: &Nodes, id: NodeId, span: &Span) -> bool {
    nodes.get(id).is_none_or(|node| {
        matches!(node.connection.reply(span), Reply::Error(text) if !text.starts_with(WRONG_TYPE))
    })
}
