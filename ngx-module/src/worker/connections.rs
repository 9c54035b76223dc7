//! The worker's connections, and the events that give the edge its time.
//!
//! A timer that only keeps house is cancelable, so that an old worker ends after a reload; while a request waits the
//! timer is not, because the request needs it. A worker that ends keeps its connections, and makes them anew, until its
//! last request is answered: one that was begun before the reload is looked up as all others are.

use resolver::NodeId;
use resolver::visits::Visits;

use crate::nginx::address::SocketAddress;
use crate::nginx::connection::{Connection as Socket, Handlers, Notice};
use crate::nginx::event::{Event, EventHandler};
use crate::nginx::log::Log;
use crate::nginx::process::is_exiting;
use crate::settings::redis::RedisNumber;
use crate::worker::connection::Connection;
use crate::worker::edge::{WorkerEdge, now};

/// A server of a Redis, as one number for what nginx calls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) redis: RedisNumber,
    pub(crate) node: NodeId,
}

impl Owner {
    /// Takes the number apart.
    #[inline]
    pub(crate) fn of(number: usize) -> Self {
        Self {
            redis: RedisNumber::new(number >> 32),
            node: NodeId::new(number & 0xffff_ffff),
        }
    }

    /// Puts the number together.
    pub(crate) fn number(self) -> usize {
        self.redis.index() << 32 | self.node.index()
    }
}

/// The functions that nginx calls, passed down from above.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    /// Of connections.
    pub(crate) connection: Handlers,
    /// Writes what the edge has to send.
    pub(crate) flush: EventHandler,
    /// Does what is due.
    pub(crate) timer: EventHandler,
}

/// The connections and their events.
pub(crate) struct Connections {
    places: Vec<Option<Connection>>,
    /// Writes what the edge has to send, at the end of an iteration of nginx' loop.
    flush: Event,
    /// Wakes up at the edge's next deadline.
    timer: Event,
    opener: Opener,
}

/// Opens connections. nginx may close those of others for it and so call the module: nothing may be lent meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Opener {
    redis: RedisNumber,
    handlers: Handlers,
    log: Log,
    /// nginx logs each failed attempt to connect; the journal has one line an outage.
    quiet: Log,
}

impl Opener {
    /// Begins to connect to a node; `None` when that failed at once.
    pub(crate) fn open(self, node: NodeId, address: &SocketAddress) -> Option<Socket> {
        let owner = Owner {
            redis: self.redis,
            node,
        };
        let (log, quiet) = (self.log, self.quiet);
        Socket::open(address, owner.number(), self.handlers, log, quiet)
    }
}

impl Connections {
    /// Makes it without connections.
    pub(crate) fn new(redis: RedisNumber, callbacks: Callbacks, log: Log) -> Self {
        Self {
            places: Vec::new(),
            flush: Event::new(callbacks.flush, redis.index(), log),
            timer: Event::new(callbacks.timer, redis.index(), log),
            opener: Opener {
                redis,
                handlers: callbacks.connection,
                log,
                quiet: log.quiet(),
            },
        }
    }

    /// Returns the means to open a connection.
    pub(crate) fn opener(&self) -> Opener {
        self.opener
    }

    /// The connection to a node, if there is one.
    pub(crate) fn get(&mut self, node: NodeId) -> Option<&mut Connection> {
        self.places.get_mut(node.index())?.as_mut()
    }

    /// The connection that a notice is about, unless its node has another one now.
    #[inline]
    pub(crate) fn current(&mut self, notice: Notice) -> Option<&mut Connection> {
        let connection = self.get(Owner::of(notice.owner()).node)?;
        connection.is(notice).then_some(connection)
    }

    /// Takes over the socket of a node, which has begun to connect.
    pub(crate) fn opened(&mut self, node: NodeId, socket: Socket) {
        if self.places.len() <= node.index() {
            self.places.resize_with(node.index() + 1, || None);
        }
        let place = &mut self.places[node.index()];
        place
            .get_or_insert_with(|| Connection::new(node))
            .take(socket);
    }

    /// Closes every connection without telling the edge.
    pub(crate) fn close_all(&mut self) {
        self.places.clear();
    }

    /// Writes what the edge has to send; the node whose connection broke, if one did.
    pub(crate) fn flush(&self, edge: &mut WorkerEdge, micros: u64) -> Option<NodeId> {
        let mut connections = self.places.iter().flatten();
        let broken = connections.find(|connection| !connection.flush(edge, micros));
        broken.map(Connection::node)
    }

    /// Sees to it that what the edge has to send is sent at the end of this turn.
    #[inline]
    pub(crate) fn post_flush(&self) {
        self.flush.post();
    }

    /// Arms the timer for the edge's next deadline. An earlier timer stays: it looks again when it fires, and setting
    /// one costs more than a look.
    pub(crate) fn set_timer(&self, edge: &mut WorkerEdge) {
        let drains_until = drains_until(edge);
        self.timer.set_cancelable(!is_needed(edge));
        let deadline = edge.next_deadline().min(drains_until.unwrap_or(u64::MAX));
        if deadline != u64::MAX {
            self.timer.arm(deadline);
        }
    }

    /// The same for a batch of visits that has just been begun or filled.
    #[inline]
    pub(crate) fn set_timer_for_visits(&self, edge: &WorkerEdge) {
        if let Some(deadline) = edge.visits().and_then(Visits::deadline) {
            self.timer.arm(deadline);
        }
    }

    /// Has the timer fire no later than that, unless the worker ends before.
    pub(crate) fn look_at(&self, deadline: u64) {
        if !is_exiting() {
            self.timer.arm(deadline);
        }
    }

    /// Has the next turn of the loop come at once, whatever it would wait for.
    pub(crate) fn hurry(&self) {
        self.timer.arm(now().ms);
    }

    /// As [`Connections::set_timer`] for a request that has just begun to wait: nothing else has changed.
    #[inline]
    pub(crate) fn set_timer_for_waiting(&self, edge: &mut WorkerEdge) {
        if let Some(deadline) = edge.waiting_deadline() {
            self.timer.set_cancelable(false);
            self.timer.arm(deadline);
        }
    }
}

/// Until when a worker that ends waits for its visits to be confirmed; `None` when it need not.
fn drains_until(edge: &WorkerEdge) -> Option<u64> {
    if !is_exiting() {
        return None;
    }
    edge.visits()?.drains_until(now().ms)
}

/// Returns whether this worker may not end yet.
pub(crate) fn is_needed(edge: &WorkerEdge) -> bool {
    edge.has_waiting() || drains_until(edge).is_some()
}
