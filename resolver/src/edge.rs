//! The edge: answers requests for codes from the cache, or asks Redis.
//!
//! The edge decides on routes, answers, caching and timeouts; its owner has the sockets and the
//! clock. One turn of the owner's loop looks like this:
//!
//! - a request came: [`Edge::look_up`] answers it or makes it wait; then flush soon (all that
//!   came in this turn leave in one write: [`Edge::output`], [`Edge::wrote`]);
//! - a socket has bytes: read into [`Edge::input_space`], call [`Edge::received`], then take
//!   [`Edge::next_completion`] until there is none;
//! - time went by: [`Edge::tick`] returns actions until it is idle, [`Edge::next_expired`] the
//!   requests that waited too long, [`Edge::next_deadline`] the time of the next turn;
//! - a connection was lost: [`Edge::disconnected`], then take the completions of all requests that
//!   waited for it.
//!
//! Visits of answered requests are recorded with [`Edge::record_visit`] and leave with the reads,
//! as [`Edge::send_visits`] decides.
//!
//! Completions are handed out one at a time, so that the owner holds no borrow of the edge while
//! it answers a request: answering can ask for the next code.
//!
//! The cache is coherent because everything that concerns a key comes on one connection and is
//! processed in the order in which it comes: a change that follows the reply to a `GET` in Redis
//! follows it on the wire. When a connection is lost, or codes move to other servers, changes are
//! not reported any more, and all entries are stale from that moment.

mod authority;
mod campaigns;
mod completions;
mod replies;
mod transport;
mod visits;

use std::collections::VecDeque;

use vocabulary::Code;

use crate::answer::{Answer, Expanded, MissReason};
use crate::authority::Authority;
use crate::cache::{Cache, CacheCounts, CacheSettings, Entry};
use crate::campaign::Campaign;
use crate::connection::{Due, Owed, Span};
use crate::connection_error::ConnectionError;
use crate::counters::{Counter, Gauge, Source, WorkerCounters};
use crate::handshake::Tracking;
use crate::hash::CodeHashing;
use crate::key::Key;
use crate::lookups::{LookupId, Lookups, Ticket};
use crate::node_id::NodeId;
use crate::nodes::{Address, Nodes};
use crate::now::Now;
use crate::resp::GetEncoder;
use crate::topology::{NodeSettings, Route, Topology, TopologySettings};
use crate::visits::Visits;

/// Command that makes Redis report changes of the key that the next command reads.
const CACHING: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n";

/// The most things worth a line in the log that wait to be taken.
const MAX_NOTICES: usize = 16;

/// Settings of an edge.
#[derive(Clone, Debug)]
pub struct EdgeSettings {
    /// Settings of the connections to Redis.
    pub nodes: NodeSettings,
    /// Discovery of the servers.
    pub topology: TopologySettings,
    /// A replica that is asked first while it is up to date; not in a cluster.
    pub replica: Option<Address>,
    /// Limits of the cache; `None` asks Redis every time.
    pub cache: Option<CacheSettings>,
}

/// Result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUp<'a> {
    /// It is answered.
    Answered(Answer<'a>, Source),
    /// It waits.
    Waiting(Ticket),
    /// The cache has no fresh answer, and Redis was not to be asked.
    NotKept,
}

/// A request that is done, with what was handed over when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a, T> {
    /// The request.
    pub token: T,
    /// Its answer; it lives until the edge is used again.
    pub answer: Answer<'a>,
    /// Source of the answer.
    pub source: Source,
}

/// Action that is due at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Nothing.
    Idle,
    /// Open a connection to [`Edge::address`] and call [`Edge::connecting`].
    Connect(NodeId),
    /// Close the connection and call [`Edge::disconnected`].
    Disconnect(NodeId, ConnectionError),
}

/// Event that an operator should see in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Redis refuses to report changes to this client, so nothing is cached.
    TrackingRefused(NodeId, String),
    /// Redis refuses to report the generation of its data set with this text, so bad news from it is
    /// not passed on.
    GenerationRefused(NodeId, String),
    /// There is something under a link's or a campaign's key that is no record, or one that may not
    /// be served.
    Unreadable(Key),
    /// A link and its campaign do not go together: the template names a parameter that the link
    /// has not, or the target grows too long.
    Unexpandable(Code),
    /// Redis answers too late or with errors, and gets no requests for a while: the last error, if
    /// there was one.
    BreakerOpened(NodeId, Option<String>),
    /// Redis refuses visits, with this text; they stay in memory.
    VisitsRefused(NodeId, String),
    /// Records are read from other servers now.
    Moved,
}

/// A look-up whose answer is handed out to those who wait for it.
#[derive(Debug)]
struct Delivery {
    lookup: LookupId,
    brought: Brought,
}

/// Result of a look-up that has ended.
#[derive(Debug)]
enum Brought {
    /// A reply, which is there.
    Reply(NodeId, Span),
    /// That the link leads where its campaign says, and what that is.
    Campaign,
    /// Nothing.
    Nothing,
}

/// Cached data of a link, complete.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Entry(Entry),
    /// Made of the entries of the link and its campaign; the target is in the edge's buffer.
    Expanded(Expanded),
}

/// The sources that may answer a request for a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// The cache, else Redis.
    Both,
    /// The cache only.
    Cache,
    /// Redis only. Its answers are not kept.
    Redis,
}

/// The edge of one worker.
#[derive(Debug)]
pub struct Edge<T> {
    settings: EdgeSettings,
    encoder: GetEncoder,
    cache: Option<Cache>,
    lookups: Lookups<T>,
    nodes: Nodes,
    topology: Topology,
    /// Look-ups that wait until it is known whom to ask.
    unrouted: Vec<LookupId>,
    /// Look-ups that were lost with their connection.
    lost: VecDeque<LookupId>,
    delivery: Option<Delivery>,
    /// The look-up of a campaign whose links are answered one after the other, and what it says.
    answered_campaign: Option<LookupId>,
    campaign: Campaign,
    /// The target that was made last of a template.
    expanded: Vec<u8>,
    notices: VecDeque<Notice>,
    /// Recorded visits on their way to Redis, if they are recorded.
    visits: Option<Visits>,
    spool_confirmed: bool,
    /// Number of losses of coherence: replies to requests from before a loss are not cached after
    /// it.
    age: u32,
    /// Counters of the worker, if any.
    counters: Option<WorkerCounters<'static>>,
    /// Hits that are not passed on yet: they are what is paid for most often.
    hits: u64,
    campaign_hits: u64,
    /// Counts of the cache when they were last passed on.
    passed_on: CacheCounts,
}

impl<T> Edge<T> {
    /// Makes an edge that wants to connect at once. `seed` is different for each worker.
    pub fn new(mut settings: EdgeSettings, now: u64, seed: u64) -> Self {
        if settings.cache.is_none() {
            settings.nodes.tracking = None;
        } else {
            settings.nodes.tracking.get_or_insert_default();
        }
        let hashing = CodeHashing::new(seed);
        let mut nodes = Nodes::new(seed);
        let topology = Topology::new(
            &settings.topology,
            settings.replica.as_ref(),
            &settings.nodes,
            &mut nodes,
            now,
        );
        Self {
            encoder: GetEncoder::new(&settings.nodes.prefix),
            cache: settings
                .cache
                .as_ref()
                .map(|cache| Cache::new(cache, hashing)),
            settings,
            lookups: Lookups::new(hashing),
            nodes,
            topology,
            unrouted: Vec::new(),
            lost: VecDeque::new(),
            delivery: None,
            answered_campaign: None,
            campaign: Campaign::new(),
            expanded: Vec::new(),
            notices: VecDeque::new(),
            visits: None,
            spool_confirmed: false,
            age: 0,
            counters: None,
            hits: 0,
            campaign_hits: 0,
            passed_on: CacheCounts::default(),
        }
    }

    /// Says where to count from now on.
    pub fn count_in(&mut self, counters: WorkerCounters<'static>) {
        self.counters = Some(counters);
    }

    #[inline]
    fn count(&self, counter: Counter) {
        if let Some(counters) = &self.counters {
            counters.count(counter);
        }
    }

    /// Passes on how things are; to be called once a second or so.
    pub fn measure(&mut self) {
        let Some(counters) = self.counters else {
            return;
        };
        let nodes = self.nodes.iter();
        let (mut ready, mut authoritative, mut open) = (0, 0, 0);
        for (_, node) in nodes {
            ready += u64::from(node.connection.is_ready());
            authoritative += u64::from(node.authority.until().is_some());
            open = open.max(u64::from(node.breaker.is_open()));
        }
        counters.set(Gauge::RedisConnected, ready);
        counters.set(Gauge::RedisAuthoritative, authoritative);
        counters.set(Gauge::BreakerOpen, open);
        counters.set(Gauge::WaitingRequests, self.lookups.waiting() as u64);
        if let Some(cache) = &self.cache {
            counters.set(Gauge::CacheEntries, cache.len() as u64);
            counters.set(Gauge::CacheBytes, cache.bytes() as u64);
            counters.set(Gauge::CacheCapacityBytes, cache.capacity() as u64);
            counters.set(Gauge::Epoch, u64::from(cache.epoch()));
            let (now, before) = (cache.counts(), self.passed_on);
            for (counter, more) in [
                (Counter::CacheHit, std::mem::take(&mut self.hits)),
                (
                    Counter::CampaignHit,
                    std::mem::take(&mut self.campaign_hits),
                ),
                (Counter::CacheInsertion, now.insertions - before.insertions),
                (Counter::CacheEviction, now.evictions - before.evictions),
                (
                    Counter::InvalidatedKey,
                    now.invalidations - before.invalidations,
                ),
                (Counter::InvalidatedAll, now.clears - before.clears),
            ] {
                if more > 0 {
                    counters.add(counter, more);
                }
            }
            self.passed_on = now;
        }
    }

    /// Answers a request for a code from the cache, or asks Redis and makes it wait.
    #[inline]
    pub fn look_up(&mut self, code: &Code, token: T, now: Now) -> LookUp<'_> {
        self.look_up_in(Sources::Both, code, token, now)
    }

    /// Answers a request for a code as [`Edge::look_up`] does, from some sources; [`LookUp::NotKept`] instead of
    /// asking Redis for the link if that is none of them. The campaign of a link is answered from the cache in any case,
    /// and asked for: that reveals no code.
    #[inline]
    pub fn look_up_in(&mut self, sources: Sources, code: &Code, token: T, now: Now) -> LookUp<'_> {
        let mut found = None;
        let mut keep = false;
        if let Some(cache) = &mut self.cache
            && sources != Sources::Redis
        {
            let hash = cache.hash(code);
            found = cache.find(code, hash, now);
            // A code that is requested once is not worth caching: most codes are.
            keep = found.is_some() || cache.was_asked_before(hash);
        }
        if let Some(entry) = found.filter(|entry| entry.is_fresh()) {
            self.hits += 1;
            if entry.is_campaign_link() {
                return self.look_up_campaign_link(code, entry, token, now);
            }
            let answer = self.entry_answer(&Key::Link(*code), entry, now);
            return LookUp::Answered(answer, Source::Cache);
        }
        if sources == Sources::Cache {
            return LookUp::NotKept;
        }
        if self.cache.is_some() && sources == Sources::Both {
            self.count(match found {
                Some(_) => Counter::CacheStale,
                None => Counter::CacheMiss,
            });
        }
        let key = Key::Link(*code);
        let lookup = match self.lookups.find(&key) {
            Some(lookup) => {
                self.count(Counter::Coalesced);
                Some(lookup)
            }
            None => self.begin(&key, keep, now),
        };
        if let Some(lookup) = lookup {
            return LookUp::Waiting(self.lookups.join(lookup, token, now.ms));
        }
        match found.and_then(|entry| self.whole(code, entry, now)) {
            Some(kept) => LookUp::Answered(self.kept_answer(&key, kept, now), Source::Stale),
            None => LookUp::Answered(Answer::Miss(MissReason::Unavailable), Source::None),
        }
    }

    /// Begins a look-up; `None` if no server can be asked.
    fn begin(&mut self, key: &Key, keep: bool, now: Now) -> Option<LookupId> {
        match self.topology.route(key, &self.nodes, now.ms) {
            Route::Nowhere => None,
            Route::Soon => {
                let lookup = self.lookups.begin(key, None, keep);
                self.unrouted.push(lookup);
                Some(lookup)
            }
            Route::To(id) => {
                let node = self.nodes.get_mut(id)?;
                if !node.admits(now.ms) {
                    return None;
                }
                let lookup = self.lookups.begin(key, Some(id), keep);
                self.send(lookup, id, keep, now);
                Some(lookup)
            }
        }
    }

    /// Asks a node for a look-up's record.
    fn send(&mut self, lookup: LookupId, id: NodeId, keep: bool, now: Now) {
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        let keep = keep && node.connection.is_tracking();
        if keep && self.settings.nodes.tracking == Some(Tracking::OptIn) {
            let output = node.connection.ask(Owed::Acknowledgement, now.ms);
            output.extend_from_slice(CACHING);
        }
        let output = node.connection.ask(Owed::Lookup(lookup), now.ms);
        self.encoder.push_get(self.lookups.key(lookup), output);
        self.lookups.send(lookup, id, keep.then_some(self.age));
    }

    /// Makes a request give up: its token will not be handed out any more.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.lookups.cancel(ticket);
    }

    /// Says what is to be done at this time; to be called until it says [`Tick::Idle`].
    pub fn tick(&mut self, now: Now) -> Tick {
        for index in 0..self.nodes.len() {
            let id = NodeId::new(index);
            let Some(node) = self.nodes.get_mut(id) else {
                continue;
            };
            if node.authority.expire(now.ms) {
                self.lose_authority(id, now);
            }
            let Some(node) = self.nodes.get(id) else {
                continue;
            };
            if node.is_retired {
                if node.connection.is_closed() {
                    self.nodes.remove(id);
                    continue;
                }
                return Tick::Disconnect(id, ConnectionError::Retired);
            }
            match node.connection.due(now.ms) {
                Due::Nothing => {}
                Due::Connect => return Tick::Connect(id),
                Due::Disconnect(error) => return Tick::Disconnect(id, error),
                Due::Heartbeat => self.topology.beat(id, &mut self.nodes, now.ms),
            }
        }
        Tick::Idle
    }

    /// Returns the time at which to call [`Edge::tick`], [`Edge::next_expired`] and
    /// [`Edge::send_visits`] next.
    pub fn next_deadline(&mut self) -> u64 {
        let nodes = self.nodes.iter().map(|(_, node)| {
            if node.is_retired {
                0
            } else {
                let deadline = node.connection.next_deadline();
                node.authority.until().unwrap_or(u64::MAX).min(deadline)
            }
        });
        let nodes = nodes.min().unwrap_or(u64::MAX);
        let visits = self.visits.as_ref().and_then(Visits::deadline);
        let waiting = self.waiting_deadline();
        nodes
            .min(waiting.unwrap_or(u64::MAX))
            .min(visits.unwrap_or(u64::MAX))
    }

    /// Returns the end of the oldest waiting request's time budget: the only part of
    /// [`Edge::next_deadline`] that a new waiting request can change.
    #[inline]
    pub fn waiting_deadline(&mut self) -> Option<u64> {
        Some(self.lookups.oldest()? + self.settings.nodes.budget)
    }

    /// Reports whether a request waits for its answer.
    pub fn has_waiting(&self) -> bool {
        self.lookups.waiting() > 0
    }

    /// Returns the number of requests that wait for their answer.
    pub fn waiting(&self) -> usize {
        self.lookups.waiting()
    }

    /// Says that a connection is lost or was given up. All that waited for it are then handed out
    /// by [`Edge::next_completion`], and [`Edge::tick`] asks for a new connection in time.
    pub fn disconnected(&mut self, id: NodeId, reason: &ConnectionError, now: Now) {
        self.count(match reason {
            ConnectionError::Lost => Counter::RedisClosed,
            ConnectionError::Protocol(_) => Counter::RedisProtocol,
            ConnectionError::Refused(_) => Counter::RedisRefused,
            ConnectionError::ConnectTimeout => Counter::RedisConnectTimeout,
            ConnectionError::Stalled => Counter::RedisStalled,
            ConnectionError::Role(_) => Counter::RedisRole,
            ConnectionError::Retired => Counter::RedisTopology,
        });
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        let kept_something = node.connection.is_tracking();
        node.breaker.reset();
        node.authority = Authority::default();
        self.lost.extend(node.connection.disconnected(now.ms));
        if node.is_retired {
            self.nodes.remove(id);
        }
        self.lose_visits(id);
        if kept_something {
            self.lose_coherence(now);
        }
        self.topology.lost(id, &mut self.nodes);
        if !self.unrouted.is_empty() {
            self.unroute(now);
        }
        self.measure();
    }

    /// Fails the look-ups that wait for a route when no server can be asked.
    fn unroute(&mut self, now: Now) {
        let (topology, nodes, lookups) = (&self.topology, &self.nodes, &self.lookups);
        let is_lost =
            |lookup: &LookupId| topology.route(lookups.key(*lookup), nodes, now.ms) != Route::Soon;
        let lost: Vec<LookupId> = self.unrouted.iter().copied().filter(is_lost).collect();
        self.unrouted.retain(|lookup| !lost.contains(lookup));
        self.lost.extend(lost);
    }

    /// Takes the next thing that is worth a line in the log.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Returns the cache, for its counts.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }
}

fn note(notices: &mut VecDeque<Notice>, notice: Notice) {
    if notices.len() < MAX_NOTICES {
        notices.push_back(notice);
    }
}
