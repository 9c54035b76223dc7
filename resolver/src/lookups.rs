//! Who waits for which look-up.
//!
//! However many requests ask for a code at once, one look-up of it is on its way: the others join
//! it. A request that gives up (its client went away, its time budget is used up) leaves the
//! look-up on its way, since its reply still comes and may be worth keeping.

use std::collections::{HashMap, VecDeque};

use vocabulary::Code;

use crate::hash::CodeHashing;
use crate::nodes::NodeId;

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
    /// When the request came, in milliseconds.
    since: u64,
    code: Code,
    generation: u32,
    /// The next that waits for the same look-up, or the next free slot.
    next: u32,
}

/// A look-up that is on its way.
#[derive(Debug)]
struct Lookup {
    code: Code,
    /// Who was asked; `None` while it is not known yet who is to be.
    node: Option<NodeId>,
    /// The waiting requests.
    first: u32,
    last: u32,
    /// Whether the answer is worth keeping.
    is_wanted: bool,
    /// In which age of coherence the answer may be kept, if at all: while Redis tells of changes
    /// of what was asked for then.
    age: Option<u32>,
    /// How often Redis has sent it on to another node.
    redirections: u8,
    /// Whether somebody's time budget was used up while waiting for it.
    is_late: bool,
    /// The next free slot.
    next: u32,
}

/// A request whose time budget is used up.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired<T> {
    /// The request.
    pub token: T,
    /// What it asked for.
    pub code: Code,
    /// The node that is late with its answer, told once a look-up.
    pub late_node: Option<NodeId>,
}

/// The look-ups that are on their way. `T` is what the owner knows a request by.
#[derive(Debug)]
pub struct Lookups<T> {
    by_code: HashMap<Code, LookupId, CodeHashing>,
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
            by_code: HashMap::with_hasher(hashing),
            lookups: Vec::new(),
            free_lookup: NONE,
            waiters: Vec::new(),
            free_waiter: NONE,
            by_time: VecDeque::new(),
            waiting: 0,
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a look-up of the code is on its way.
    pub fn find(&self, code: &Code) -> Option<LookupId> {
        self.by_code.get(code).copied()
    }

    /// Begins a look-up at a node, if it is known which; `is_wanted` says whether its answer is
    /// worth keeping. There may be no other look-up of this code.
    pub fn begin(&mut self, code: &Code, node: Option<NodeId>, is_wanted: bool) -> LookupId {
        let lookup = Lookup {
            code: *code,
            node,
            first: NONE,
            last: NONE,
            is_wanted,
            age: None,
            redirections: 0,
            is_late: false,
            next: NONE,
        };
        let slot = self.free_lookup;
        let id = match self.lookups.get_mut(slot as usize) {
            Some(free) => {
                self.free_lookup = free.next;
                *free = lookup;
                LookupId(slot)
            }
            None => {
                self.lookups.push(lookup);
                LookupId(self.lookups.len() as u32 - 1)
            }
        };
        self.by_code.insert(*code, id);
        id
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
                free.code = lookup.code;
                free.next = NONE;
                (slot, free.generation)
            }
            None => {
                self.waiters.push(Waiter {
                    token: Some(token),
                    since: now,
                    code: lookup.code,
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

    /// The code that is looked up.
    pub fn code(&self, id: LookupId) -> &Code {
        &self.lookups[id.0 as usize].code
    }

    /// Whether the answer is worth keeping.
    pub fn is_wanted(&self, id: LookupId) -> bool {
        self.lookups[id.0 as usize].is_wanted
    }

    /// In which age of coherence the answer may be kept.
    pub fn age(&self, id: LookupId) -> Option<u32> {
        self.lookups[id.0 as usize].age
    }

    /// Whether somebody's time budget was used up while waiting for it.
    pub fn is_late(&self, id: LookupId) -> bool {
        self.lookups[id.0 as usize].is_late
    }

    /// Notes that Redis has sent a look-up on to another node, and tells how often it has.
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

    /// Says that a look-up has its answer: who asks for the code from now on begins another one.
    /// Those who wait are then handed out by [`Lookups::next_waiter`].
    pub fn finish(&mut self, id: LookupId) {
        self.by_code.remove(&self.lookups[id.0 as usize].code);
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
        let code = waiter.code;
        let token = waiter.token.take()?;
        self.waiting -= 1;
        let late_node = self.find(&code).and_then(|LookupId(slot)| {
            let lookup = &mut self.lookups[slot as usize];
            let is_first = !std::mem::replace(&mut lookup.is_late, true);
            lookup.node.filter(|_| is_first)
        });
        Some(Expired {
            token,
            code,
            late_node,
        })
    }

    /// When the longest waiting request came.
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
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        text.parse().expect("a code")
    }

    fn lookups() -> Lookups<char> {
        Lookups::new(CodeHashing::new(7))
    }

    fn begin(lookups: &mut Lookups<char>, text: &str, token: char, now: u64) -> (LookupId, Ticket) {
        let id = lookups.begin(&code(text), Some(NodeId::new(0)), false);
        let ticket = lookups.join(id, token, now);
        (id, ticket)
    }

    fn finish(lookups: &mut Lookups<char>, id: LookupId) -> String {
        lookups.finish(id);
        std::iter::from_fn(|| lookups.next_waiter(id)).collect()
    }

    #[test]
    fn those_who_ask_for_the_same_code_wait_for_the_same_look_up() {
        let mut lookups = lookups();
        let (first, _) = begin(&mut lookups, "one", 'a', 1);
        let (second, _) = begin(&mut lookups, "two", 'b', 1);
        let found = lookups.find(&code("one")).expect("on its way");
        assert_eq!(found, first);
        lookups.join(found, 'c', 2);
        assert_eq!(lookups.waiting(), 3);
        assert_eq!(finish(&mut lookups, first), "ac");
        assert_eq!(lookups.find(&code("one")), None);
        assert_eq!(finish(&mut lookups, second), "b");
        assert_eq!((lookups.waiting(), lookups.oldest()), (0, None));
    }

    #[test]
    fn who_gives_up_is_not_handed_out_and_the_look_up_goes_on() {
        let mut lookups = lookups();
        let (id, ticket) = begin(&mut lookups, "one", 'a', 1);
        lookups.join(id, 'b', 2);
        lookups.cancel(ticket);
        lookups.cancel(ticket);
        assert_eq!((lookups.waiting(), lookups.oldest()), (1, Some(2)));
        assert_eq!(finish(&mut lookups, id), "b");
        // A ticket never reaches who uses the slot afterwards.
        let (id, _) = begin(&mut lookups, "two", 'c', 3);
        lookups.cancel(ticket);
        assert_eq!(finish(&mut lookups, id), "c");
    }

    #[test]
    fn requests_expire_in_order_and_once() {
        let mut lookups = lookups();
        let (one, _) = begin(&mut lookups, "one", 'a', 10);
        let (_, cancelled) = begin(&mut lookups, "two", 'b', 11);
        lookups.join(one, 'c', 12);
        lookups.join(one, 'd', 20);
        lookups.cancel(cancelled);
        assert_eq!(lookups.next_expired(9), None);
        assert!(!lookups.is_late(one));
        let expired = |token, late_node| {
            Some(Expired {
                token,
                code: code("one"),
                late_node,
            })
        };
        assert_eq!(lookups.next_expired(12), expired('a', Some(NodeId::new(0))));
        assert_eq!(lookups.next_expired(12), expired('c', None));
        assert_eq!(lookups.next_expired(12), None);
        assert!(lookups.is_late(one));
        assert_eq!(lookups.oldest(), Some(20));
        assert_eq!(finish(&mut lookups, one), "d");
    }

    #[test]
    fn slots_are_used_again() {
        let mut lookups = lookups();
        for round in 0..1000 {
            let (id, _) = begin(&mut lookups, "one", 'a', round);
            lookups.join(id, 'b', round);
            assert_eq!(finish(&mut lookups, id), "ab");
            assert_eq!(lookups.oldest(), None);
        }
        assert_eq!((lookups.lookups.len(), lookups.waiters.len()), (1, 2));
    }
}
