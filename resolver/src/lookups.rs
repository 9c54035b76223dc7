//! Pending look-ups and the requests that wait for them.
//!
//! However many requests ask for a code at once, one look-up of it is on its way: the others join
//! it. A request that gives up (its client went away, its time budget is used up) leaves the
//! look-up on its way, since its reply still comes and may be worth keeping.
//!
//! A link of a campaign has a second part: when its record is known, its look-up waits for that of
//! the campaign, with its waiting requests and the record's content. No request joins it then: the
//! record may have changed since, and a later request must see the change.

use std::collections::{HashMap, VecDeque};

use vocabulary::{CampaignId, Code, Parameters, Phase};

use crate::cache::CampaignLink;
use crate::hash::CodeHashing;
use crate::key::Key;
use crate::node_id::NodeId;

/// The end of a list of slots.
const NONE: u32 = u32::MAX;

/// Names a waiting request, for ever: a slot that is used again has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    slot: u32,
    generation: u32,
}

/// Names a look-up until it is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupId(u32);

#[derive(Debug)]
struct Waiter<T> {
    /// The request; `None` when it has given up or was handed out.
    token: Option<T>,
    /// Time of the request, in milliseconds.
    since: u64,
    lookup: LookupId,
    generation: u32,
    /// The next that waits for the same look-up, or the next free slot.
    next: u32,
}

/// A look-up that is on its way.
#[derive(Debug)]
struct Lookup {
    key: Key,
    /// Set while requests for the same key join it.
    is_open: bool,
    /// Node that was asked; `None` while the route is unknown.
    node: Option<NodeId>,
    /// The waiting requests.
    first: u32,
    last: u32,
    /// Set when the answer is worth caching.
    is_wanted: bool,
    /// Age of coherence in which the answer may be cached, if at all: Redis reports changes of keys
    /// read in it.
    age: Option<u32>,
    /// The number of redirections to other nodes by Redis.
    redirections: u8,
    /// Set when a request's time budget was used up while waiting for it.
    is_late: bool,
    /// Content of a link's record, once it is known to be a campaign's.
    link: Option<Link>,
    parameters: Vec<u8>,
    /// The look-ups of links that wait for this one, which is a campaign's.
    first_link: u32,
    last_link: u32,
    /// The next free slot, or the next look-up that waits for the same campaign.
    next: u32,
}

/// Content of the record of a campaign's link, but for the parameters.
#[derive(Clone, Copy, Debug)]
struct Link {
    campaign: CampaignId,
    phase: Phase,
    until: u64,
    is_current: bool,
    /// The look-up of the campaign, while it is waited for.
    awaits: Option<LookupId>,
}

/// A request whose time budget is used up.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired<T> {
    /// The request.
    pub token: T,
    /// Look-up that it waited for.
    pub lookup: LookupId,
    /// The node that is late with its answer; reported once per look-up.
    pub late_node: Option<NodeId>,
}

/// The look-ups that are on their way. `T` is what the owner knows a request by.
#[derive(Debug)]
pub struct Lookups<T> {
    by_key: HashMap<Key, LookupId, CodeHashing>,
    lookups: Vec<Lookup>,
    free_lookup: u32,
    waiters: Vec<Waiter<T>>,
    free_waiter: u32,
    /// Requests in the order in which they came; some may be gone already.
    by_time: VecDeque<Ticket>,
    waiting: usize,
}

impl<T> Lookups<T> {
    /// Makes it empty.
    pub fn new(hashing: CodeHashing) -> Self {
        Self {
            by_key: HashMap::with_hasher(hashing),
            lookups: Vec::new(),
            free_lookup: NONE,
            waiters: Vec::new(),
            free_waiter: NONE,
            by_time: VecDeque::new(),
            waiting: 0,
        }
    }

    /// Returns the number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Finds a pending look-up that can be joined.
    pub fn find(&self, key: &Key) -> Option<LookupId> {
        self.by_key.get(key).copied()
    }

    /// Begins a look-up at a node, if it is known which; `is_wanted` says whether its answer is
    /// worth keeping. There may be no other look-up of this key that can be joined.
    pub fn begin(&mut self, key: &Key, node: Option<NodeId>, is_wanted: bool) -> LookupId {
        let id = self.make(key, node, is_wanted);
        self.lookups[id.0 as usize].is_open = true;
        self.by_key.insert(*key, id);
        id
    }

    /// Begins the look-up of a link whose record is known: what is missing is its campaign's.
    pub fn begin_known(
        &mut self,
        code: &Code,
        link: &CampaignLink<'_>,
        is_current: bool,
    ) -> LookupId {
        let id = self.make(&Key::Link(*code), None, false);
        self.know(id, link, is_current);
        id
    }

    fn make(&mut self, key: &Key, node: Option<NodeId>, is_wanted: bool) -> LookupId {
        let lookup = Lookup {
            key: *key,
            is_open: false,
            node,
            first: NONE,
            last: NONE,
            is_wanted,
            age: None,
            redirections: 0,
            is_late: false,
            link: None,
            parameters: Vec::new(),
            first_link: NONE,
            last_link: NONE,
            next: NONE,
        };
        let slot = self.free_lookup;
        match self.lookups.get_mut(slot as usize) {
            Some(free) => {
                self.free_lookup = free.next;
                // Its memory is used again as well.
                let parameters = std::mem::take(&mut free.parameters);
                *free = Lookup {
                    parameters,
                    ..lookup
                };
                LookupId(slot)
            }
            None => {
                self.lookups.push(lookup);
                LookupId(self.lookups.len() as u32 - 1)
            }
        }
    }

    /// Records the content of a campaign's link, and whether it is proved current. No request joins the look-up any more.
    pub fn know(&mut self, id: LookupId, link: &CampaignLink<'_>, is_current: bool) {
        self.finish(id);
        let lookup = &mut self.lookups[id.0 as usize];
        lookup.link = Some(Link {
            campaign: link.campaign,
            phase: link.phase,
            until: link.until,
            is_current,
            awaits: None,
        });
        lookup.parameters.clear();
        lookup
            .parameters
            .extend_from_slice(link.parameters.as_bytes());
    }

    /// Reports whether the content of a link's record was proved current when it became known.
    pub fn is_current(&self, id: LookupId) -> bool {
        let link = self.lookups[id.0 as usize].link;
        link.is_some_and(|link| link.is_current)
    }

    /// Returns the content of a link's record, if it is known to be a campaign's.
    pub fn known(&self, id: LookupId) -> Option<CampaignLink<'_>> {
        let lookup = &self.lookups[id.0 as usize];
        let link = lookup.link?;
        Some(CampaignLink {
            campaign: link.campaign,
            phase: link.phase,
            until: link.until,
            parameters: Parameters::from_checked(&lookup.parameters),
        })
    }

    /// Lets a link's look-up, whose record is known, wait for that of its campaign.
    pub fn await_campaign(&mut self, id: LookupId, campaign: LookupId) {
        let lookup = &mut self.lookups[id.0 as usize];
        lookup.next = NONE;
        if let Some(link) = &mut lookup.link {
            link.awaits = Some(campaign);
        }
        let last = std::mem::replace(&mut self.lookups[campaign.0 as usize].last_link, id.0);
        match last {
            NONE => self.lookups[campaign.0 as usize].first_link = id.0,
            last => self.lookups[last as usize].next = id.0,
        }
    }

    /// Hands out the next link's look-up that waits for a campaign's, which is finished; with the
    /// last one the campaign's look-up ends and its id is used again.
    pub fn next_link(&mut self, campaign: LookupId) -> Option<LookupId> {
        let lookup = &mut self.lookups[campaign.0 as usize];
        let slot = lookup.first_link;
        if slot == NONE {
            lookup.next = self.free_lookup;
            self.free_lookup = campaign.0;
            return None;
        }
        let next = self.lookups[slot as usize].next;
        self.lookups[campaign.0 as usize].first_link = next;
        if let Some(link) = &mut self.lookups[slot as usize].link {
            link.awaits = None;
        }
        Some(LookupId(slot))
    }

    /// Makes a request wait for a look-up; `now` may not be before that of earlier calls.
    pub fn join(&mut self, id: LookupId, token: T, now: u64) -> Ticket {
        let lookup = &mut self.lookups[id.0 as usize];
        let slot = self.free_waiter;
        let (slot, generation) = match self.waiters.get_mut(slot as usize) {
            Some(free) => {
                self.free_waiter = free.next;
                free.generation = free.generation.wrapping_add(1);
                free.token = Some(token);
                free.since = now;
                free.lookup = id;
                free.next = NONE;
                (slot, free.generation)
            }
            None => {
                self.waiters.push(Waiter {
                    token: Some(token),
                    since: now,
                    lookup: id,
                    generation: 0,
                    next: NONE,
                });
                (self.waiters.len() as u32 - 1, 0)
            }
        };
        match lookup.last {
            NONE => lookup.first = slot,
            last => self.waiters[last as usize].next = slot,
        }
        lookup.last = slot;
        self.waiting += 1;
        let ticket = Ticket { slot, generation };
        self.by_time.push_back(ticket);
        ticket
    }

    /// Makes a request give up: its token will not be handed out. Does nothing when it was
    /// handed out already.
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.waiter(ticket)
            && waiter.token.take().is_some()
        {
            self.waiting -= 1;
        }
    }

    /// Returns the key of a look-up.
    pub fn key(&self, id: LookupId) -> &Key {
        &self.lookups[id.0 as usize].key
    }

    /// Reports whether the answer is worth caching.
    pub fn is_wanted(&self, id: LookupId) -> bool {
        self.lookups[id.0 as usize].is_wanted
    }

    /// In which age of coherence the answer may be kept.
    pub fn age(&self, id: LookupId) -> Option<u32> {
        self.lookups[id.0 as usize].age
    }

    /// Reports whether a request's time budget was used up while waiting for it.
    pub fn is_late(&self, id: LookupId) -> bool {
        self.lookups[id.0 as usize].is_late
    }

    /// Counts a redirection of a look-up to another node, and returns their number.
    pub fn redirect(&mut self, id: LookupId) -> u8 {
        let lookup = &mut self.lookups[id.0 as usize];
        lookup.redirections = lookup.redirections.saturating_add(1);
        lookup.redirections
    }

    /// Notes who is asked, and in which age of coherence the answer may be kept.
    pub fn send(&mut self, id: LookupId, node: NodeId, age: Option<u32>) {
        let lookup = &mut self.lookups[id.0 as usize];
        lookup.node = Some(node);
        lookup.age = age;
    }

    /// Says that a look-up has its answer: who asks from now on begins another one. Those who wait
    /// are then handed out by [`Lookups::next_waiter`], or [`Lookups::next_link`] for a campaign.
    pub fn finish(&mut self, id: LookupId) {
        let lookup = &mut self.lookups[id.0 as usize];
        if std::mem::take(&mut lookup.is_open) {
            self.by_key.remove(&lookup.key);
        }
    }

    /// Hands out the next request that waits for a finished look-up; with the last one the
    /// look-up ends and its id is used again.
    pub fn next_waiter(&mut self, id: LookupId) -> Option<T> {
        let lookup = &mut self.lookups[id.0 as usize];
        while lookup.first != NONE {
            let slot = lookup.first;
            let waiter = &mut self.waiters[slot as usize];
            lookup.first = waiter.next;
            waiter.next = self.free_waiter;
            self.free_waiter = slot;
            if let Some(token) = waiter.token.take() {
                self.waiting -= 1;
                return Some(token);
            }
        }
        lookup.next = self.free_lookup;
        self.free_lookup = id.0;
        None
    }

    /// Takes the next request that came at or before `limit`: it gives up.
    pub fn next_expired(&mut self, limit: u64) -> Option<Expired<T>> {
        if self.oldest()? > limit {
            return None;
        }
        let ticket = self.by_time.pop_front()?;
        let waiter = self.waiter(ticket)?;
        let id = waiter.lookup;
        let token = waiter.token.take()?;
        self.waiting -= 1;
        Some(Expired {
            token,
            lookup: id,
            late_node: self.late_node(id),
        })
    }

    /// Returns the node that is late with the result that a look-up waits for, once.
    fn late_node(&mut self, id: LookupId) -> Option<NodeId> {
        let awaited = match self.lookups[id.0 as usize].link {
            Some(link) => link.awaits?,
            None => id,
        };
        let lookup = &mut self.lookups[awaited.0 as usize];
        // An answered look-up is not late, though its answer may still be handed out.
        let is_first = lookup.is_open && !std::mem::replace(&mut lookup.is_late, true);
        lookup.node.filter(|_| is_first)
    }

    /// Returns the time of the oldest waiting request.
    pub fn oldest(&mut self) -> Option<u64> {
        while let Some(&ticket) = self.by_time.front() {
            if let Some(waiter) = self.waiter(ticket)
                && waiter.token.is_some()
            {
                return Some(waiter.since);
            }
            self.by_time.pop_front();
        }
        None
    }

    fn waiter(&mut self, ticket: Ticket) -> Option<&mut Waiter<T>> {
        let waiter = self.waiters.get_mut(ticket.slot as usize)?;
        (waiter.generation == ticket.generation).then_some(waiter)
    }
}

#[cfg(test)]
mod tests;
