//! Carries out what the edge decides, in the worker's event loop, and gives it the time.
//!
//! Completions are taken one at a time, and finished while the worker's state is not lent: finishing a request can
//! begin the next one. After anything that can finish a request, the code checks again that a connection is still its
//! node's.

use resolver::{Completion, ConnectionError, NodeId, Tick};

use crate::handler::complete;
use crate::nginx::address::SocketAddress;
use crate::nginx::connection::{Handlers, Notice, connection_handler, secured_handler};
use crate::nginx::event::event_handler;
use crate::nginx::module::Cycle;
use crate::nginx::process::is_exiting;
use crate::nginx::request::{Resumed, Token};
use crate::nginx::resolver::Resolved;
use crate::settled::Settled;
use crate::worker::addresses::Found;
use crate::worker::connection::Read;
use crate::worker::connections::{Callbacks, is_needed};
use crate::worker::edge::now;
use crate::worker::{self, Worker};

/// The longest look-up of a name, in milliseconds; the connection's own limit is shorter.
const RESOLVE_TIMEOUT: usize = 5000;

/// A worker starts, and connects now, so that the first visitor finds the connection made.
pub(crate) fn start(cycle: &Cycle) {
    let callbacks = Callbacks {
        connection: Handlers {
            read: connection_handler!(on_read),
            write: connection_handler!(on_write),
            secured: secured_handler!(on_secured),
        },
        flush: event_handler!(flush),
        timer: event_handler!(drive),
    };
    worker::start(cycle, callbacks);
    drive();
}

/// Does what is due: requests out of time, connections to be made, hanging connections. Like all functions of this
/// file it may finish requests.
fn drive() {
    // Requests first: one that fails to be answered in time is worse than a late reconnect.
    while let Some(Some((resumed, settled))) =
        worker::with(|worker| worker.edge.next_expired(now()).map(taken))
    {
        complete(resumed, settled);
    }
    while let Some(Some(due)) = worker::with(one_tick) {
        match due {
            Due::Lose(node, reason) => lose(node, &reason),
            Due::Connect(node, address) => {
                if !connect(node, &address) {
                    worker::with(|worker| {
                        worker.log_outage(node, "the connection can't be opened");
                    });
                    lose(node, &ConnectionError::Lost);
                }
            }
            Due::Resolve(node, name) => resolve(node, name),
        }
    }
    worker::with(|worker| {
        worker.journal.notices(&mut worker.edge, now().ms);
        worker.measure();
        worker.edge.send_visits(now());
        worker.work_off_spool();
        worker.schedule();
    });
}

/// Copies what the edge has handed out; [`complete`] is called next.
#[inline]
fn taken(done: Completion<'_, Token>) -> (Resumed, Settled) {
    // SAFETY: the callers have taken it from the edge just now, and finish the request next.
    unsafe { Settled::resume(&done) }
}

/// The remaining step of a task that was due.
enum Due {
    /// The connection must be given up.
    Lose(NodeId, ConnectionError),
    /// The node's server is at this address.
    Connect(NodeId, SocketAddress),
    /// The name of the node's server must be looked up.
    Resolve(NodeId, String),
}

/// Does one thing that is due, or as much as can be done while the worker's state is lent; `None` when nothing is due.
fn one_tick(worker: &mut Worker) -> Option<Due> {
    match worker.edge.tick(now()) {
        Tick::Idle => None,
        Tick::Connect(node) => {
            worker.edge.connecting(node, now());
            let address = worker.edge.address(node)?.clone();
            match worker.addresses.find(node, &address) {
                // A look-up has a timer of nginx' own, which would keep a worker that ends.
                Found::Name(_) if is_exiting() && !is_needed(&worker.edge) => {
                    Some(Due::Lose(node, ConnectionError::Lost))
                }
                Found::Name(name) => Some(Due::Resolve(node, name)),
                Found::Now(address) => Some(Due::Connect(node, address)),
                Found::Not(reason) => {
                    worker.log_outage(node, &reason);
                    Some(Due::Lose(node, ConnectionError::Lost))
                }
            }
        }
        Tick::Disconnect(node, ConnectionError::Retired) => {
            worker.journal.forget(node);
            Some(Due::Lose(node, ConnectionError::Retired))
        }
        Tick::Disconnect(node, error) => {
            worker.log_outage(node, &error.to_string());
            Some(Due::Lose(node, error))
        }
    }
}

/// Begins to connect to a node; `false` when that failed at once. nginx may close idle connections of clients for it,
/// and calls the module for their requests.
fn connect(node: NodeId, address: &SocketAddress) -> bool {
    let opener = worker::with(|worker| worker.connections.opener());
    let socket = opener.and_then(|opener| opener.open(node, address));
    let opened = socket.and_then(|socket| worker::with(|it| it.connections.opened(node, socket)));
    opened.is_some()
}

/// Gives a connection up: all that wait for it go to the fallback.
fn lose(node: NodeId, reason: &ConnectionError) {
    worker::with(|worker| {
        if let Some(connection) = worker.connections.get(node) {
            connection.close();
        }
        worker.addresses.lost(node);
        worker.edge.disconnected(node, reason, now());
    });
    // With the connection gone this hands out only those who were lost with it.
    let _ = take_completions(node);
    worker::with(Worker::schedule);
}

/// Says in the log that a connection is lost, gives it up, and does what is due then.
fn give_up(node: NodeId, reason: &str, error: &ConnectionError) {
    worker::with(|worker| worker.log_outage(node, reason));
    lose(node, error);
    drive();
}

/// Finishes every request that is done.
fn take_completions(node: NodeId) -> Result<(), ConnectionError> {
    loop {
        let next = worker::with(|worker| {
            let done = worker.edge.next_completion(node, now())?;
            Ok(done.map(taken))
        });
        match next {
            Some(Ok(Some((resumed, settled)))) => complete(resumed, settled),
            Some(Ok(None)) | None => return Ok(()),
            Some(Err(error)) => return Err(error),
        }
    }
}

/// Writes what the edge has to send.
fn flush() {
    while let Some(Some(node)) = worker::with(Worker::flush) {
        worker::with(|worker| worker.log_outage(node, "the connection broke"));
        lose(node, &ConnectionError::Lost);
    }
}

/// Looks a node's name up, then connects to it.
fn resolve(node: NodeId, name: String) {
    let resolver = worker::with(|worker| worker.addresses.resolver()).flatten();
    // The answer may come before this returns.
    let search = resolver
        .and_then(|resolver| resolver.search(name, RESOLVE_TIMEOUT, node.index(), on_resolved));
    match search {
        Some(search) => {
            worker::with(|worker| worker.addresses.searching(node, search));
        }
        None => {
            worker::with(|worker| worker.log_outage(node, "its name can't be looked up"));
            lose(node, &ConnectionError::Lost);
        }
    }
}

/// A name's addresses are known, or it has none.
fn on_resolved(number: usize, resolved: Resolved) {
    let node = NodeId::new(number);
    let found = worker::with(|worker| {
        let address = worker.edge.address(node);
        let found = worker.addresses.resolved(node, address, resolved);
        found
            .map_err(|reason| {
                worker.log_outage(node, &format!("its name can't be looked up: {reason}"));
            })
            .ok()
    });
    match found {
        Some(Some(address)) if connect(node, &address) => {}
        Some(_) => lose(node, &ConnectionError::Lost),
        None => {}
    }
    // nginx continues with others that wait for the same name and holds a pointer to the next of them. Driving could
    // end that one, so it is left to the timer.
    worker::with(Worker::schedule);
}

/// Handles bytes of Redis, or nginx' notice that the worker ends.
fn on_read(notice: Notice) {
    if notice.take_close() {
        // The connection stays until the worker's end: requests that were begun before may still need it. It keeps no
        // worker, and `worker::stop` closes it.
        //
        // nginx is closing connections that are idle, one after the other. Meanwhile it reads none of them, so what
        // is to be sent waits for the next turn.
        worker::with(|worker| {
            worker.drain_visits();
            worker.connections.hurry();
        });
        return;
    }
    let node = NodeId::new(notice.owner());
    loop {
        match worker::with(|worker| read_once(worker, notice)) {
            Some(Read::Some) => {
                if let Err(error) = take_completions(node) {
                    return give_up(node, &error.to_string(), &error);
                }
            }
            Some(Read::Lost(reason)) => return give_up(node, &reason, &ConnectionError::Lost),
            Some(Read::Empty) | None => break,
        }
    }
    let is_sound = worker::with(|worker| {
        if worker.connections.current(notice).is_none() {
            return true;
        }
        if worker.edge.is_ready(node) {
            worker.log_recovery(node);
        }
        worker.journal.notices(&mut worker.edge, now().ms);
        worker.edge.send_visits(now());
        worker.work_off_spool();
        // Replies can be followed by other commands, and servers can come and go.
        worker.schedule();
        let connection = worker.connections.current(notice);
        connection.is_none_or(|connection| connection.read_on())
    });
    if is_sound == Some(false) {
        lose(node, &ConnectionError::Lost);
    }
    // Replies can make something due, such as a server that others have named.
    if worker::with(|worker| worker.edge.next_deadline() <= now().ms) == Some(true) {
        drive();
    }
}

fn read_once(worker: &mut Worker, notice: Notice) -> Read {
    let clock = worker.clock();
    match worker.connections.current(notice) {
        Some(connection) => connection.read(&mut worker.edge, clock),
        None => Read::Empty,
    }
}

/// The connection is open, or takes more bytes.
fn on_write(notice: Notice) {
    let node = NodeId::new(notice.owner());
    let opened = worker::with(|worker| {
        let Some(connection) = worker.connections.current(notice) else {
            return Ok(false);
        };
        if connection.opened(worker.tls.as_ref())? {
            worker.edge.connected(node, now());
        }
        Ok(connection.is_securing())
    });
    match opened {
        Some(Err(reason)) => {
            let reason: String = reason;
            give_up(node, &reason, &ConnectionError::Lost);
        }
        Some(Ok(true)) => {
            let has_ended = worker::with(|worker| {
                let connection = worker.connections.current(notice);
                connection.is_some_and(|connection| connection.negotiate())
            });
            if has_ended == Some(true) {
                on_secured(notice);
            }
        }
        Some(Ok(false)) | None => flush(),
    }
}

/// TLS was negotiated, or was not.
fn on_secured(notice: Notice) {
    let node = NodeId::new(notice.owner());
    let secured = worker::with(|worker| {
        if let Some(connection) = worker.connections.current(notice)
            && let Some(tls) = &worker.tls
        {
            connection.secured(tls)?;
            worker.edge.connected(node, now());
        }
        Ok(())
    });
    if let Some(Err(reason)) = secured {
        let reason: String = reason;
        return give_up(node, &reason, &ConnectionError::Lost);
    }
    flush();
    // nginx does not announce the bytes that came with the end of the negotiation.
    let is_readable = worker::with(|worker| {
        let connection = worker.connections.current(notice);
        connection.is_some_and(|connection| connection.is_readable())
    });
    if is_readable == Some(true) {
        on_read(notice);
    }
}
