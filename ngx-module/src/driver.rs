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
use crate::settings::redis::RedisNumber;
use crate::settled::Settled;
use crate::worker;
use crate::worker::addresses::Found;
use crate::worker::backend::Backend;
use crate::worker::connection::Read;
use crate::worker::connections::{Callbacks, Owner, is_needed};
use crate::worker::edge::now;

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
        flush: event_handler!(on_flush),
        timer: event_handler!(on_timer),
    };
    let places = worker::start(cycle, callbacks);
    (0..places).map(RedisNumber::new).for_each(drive);
}

/// A timer of a Redis has fired.
fn on_timer(number: usize) {
    drive(RedisNumber::new(number));
}

/// Something is to be sent to a Redis at the end of this turn of the loop.
fn on_flush(number: usize) {
    flush(RedisNumber::new(number));
}

/// Does what is due: requests out of time, connections to be made, hanging connections. Like all functions of this
/// file it may finish requests.
fn drive(redis: RedisNumber) {
    // Requests first: one that fails to be answered in time is worse than a late reconnect.
    while let Some(Some((resumed, settled))) =
        worker::with(redis, |backend| backend.edge.next_expired(now()).map(taken))
    {
        complete(resumed, settled);
    }
    while let Some(Some(due)) = worker::with(redis, one_tick) {
        match due {
            Due::Lose(node, reason) => lose(redis, node, &reason),
            Due::Connect(node, address) => {
                if !connect(redis, node, &address) {
                    worker::with(redis, |backend| {
                        backend.log_outage(node, "the connection can't be opened");
                    });
                    lose(redis, node, &ConnectionError::Lost);
                }
            }
            Due::Resolve(node, name) => resolve(redis, node, name),
        }
    }
    worker::with(redis, |backend| {
        backend.journal.notices(&mut backend.edge, now().ms);
        backend.measure();
        backend.edge.send_visits(now());
        backend.work_off_spool();
        backend.schedule();
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
fn one_tick(backend: &mut Backend) -> Option<Due> {
    match backend.edge.tick(now()) {
        Tick::Idle => None,
        Tick::Connect(node) => {
            backend.edge.connecting(node, now());
            let address = backend.edge.address(node)?.clone();
            match backend.addresses.find(node, &address) {
                // A look-up has a timer of nginx' own, which would keep a worker that ends.
                Found::Name(_) if is_exiting() && !is_needed(&backend.edge) => {
                    Some(Due::Lose(node, ConnectionError::Lost))
                }
                Found::Name(name) => Some(Due::Resolve(node, name)),
                Found::Now(address) => Some(Due::Connect(node, address)),
                Found::Not(reason) => {
                    backend.log_outage(node, &reason);
                    Some(Due::Lose(node, ConnectionError::Lost))
                }
            }
        }
        Tick::Disconnect(node, ConnectionError::Retired) => {
            backend.journal.forget(node);
            Some(Due::Lose(node, ConnectionError::Retired))
        }
        Tick::Disconnect(node, error) => {
            backend.log_outage(node, &error.to_string());
            Some(Due::Lose(node, error))
        }
    }
}

/// Begins to connect to a node; `false` when that failed at once. nginx may close idle connections of clients for it,
/// and calls the module for their requests.
fn connect(redis: RedisNumber, node: NodeId, address: &SocketAddress) -> bool {
    let opener = worker::with(redis, |backend| backend.connections.opener());
    let socket = opener.and_then(|opener| opener.open(node, address));
    let opened =
        socket.and_then(|socket| worker::with(redis, |it| it.connections.opened(node, socket)));
    opened.is_some()
}

/// Gives a connection up: all that wait for it go to the fallback.
fn lose(redis: RedisNumber, node: NodeId, reason: &ConnectionError) {
    worker::with(redis, |backend| {
        if let Some(connection) = backend.connections.get(node) {
            connection.close();
        }
        backend.addresses.lost(node);
        backend.edge.disconnected(node, reason, now());
    });
    // With the connection gone this hands out only those who were lost with it.
    let _ = take_completions(redis, node);
    worker::with(redis, Backend::schedule);
}

/// Says in the log that a connection is lost, gives it up, and does what is due then.
fn give_up(redis: RedisNumber, node: NodeId, reason: &str, error: &ConnectionError) {
    worker::with(redis, |backend| backend.log_outage(node, reason));
    lose(redis, node, error);
    drive(redis);
}

/// Finishes every request that is done.
fn take_completions(redis: RedisNumber, node: NodeId) -> Result<(), ConnectionError> {
    loop {
        let next = worker::with(redis, |backend| {
            let done = backend.edge.next_completion(node, now())?;
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
fn flush(redis: RedisNumber) {
    while let Some(Some(node)) = worker::with(redis, Backend::flush) {
        worker::with(redis, |backend| {
            backend.log_outage(node, "the connection broke");
        });
        lose(redis, node, &ConnectionError::Lost);
    }
}

/// Looks a node's name up, then connects to it.
fn resolve(redis: RedisNumber, node: NodeId, name: String) {
    let resolver = worker::with(redis, |backend| backend.addresses.resolver()).flatten();
    let owner = Owner { redis, node };
    // The answer may come before this returns.
    let search = resolver
        .and_then(|resolver| resolver.search(name, RESOLVE_TIMEOUT, owner.number(), on_resolved));
    match search {
        Some(search) => {
            worker::with(redis, |backend| backend.addresses.searching(node, search));
        }
        None => {
            worker::with(redis, |backend| {
                backend.log_outage(node, "its name can't be looked up");
            });
            lose(redis, node, &ConnectionError::Lost);
        }
    }
}

/// A name's addresses are known, or it has none.
fn on_resolved(number: usize, resolved: Resolved) {
    let Owner { redis, node } = Owner::of(number);
    let found = worker::with(redis, |backend| {
        let address = backend.edge.address(node);
        let found = backend.addresses.resolved(node, address, resolved);
        found
            .map_err(|reason| {
                backend.log_outage(node, &format!("its name can't be looked up: {reason}"));
            })
            .ok()
    });
    match found {
        Some(Some(address)) if connect(redis, node, &address) => {}
        Some(_) => lose(redis, node, &ConnectionError::Lost),
        None => {}
    }
    // nginx continues with others that wait for the same name and holds a pointer to the next of them. Driving could
    // end that one, so it is left to the timer.
    worker::with(redis, Backend::schedule);
}

/// Handles bytes of Redis, or nginx' notice that the worker ends.
fn on_read(notice: Notice) {
    let Owner { redis, node } = Owner::of(notice.owner());
    if notice.take_close() {
        // The connection stays until the worker's end: requests that were begun before may still need it. It keeps no
        // worker, and `worker::stop` closes it.
        //
        // nginx is closing connections that are idle, one after the other. Meanwhile it reads none of them, so what
        // is to be sent waits for the next turn.
        worker::with(redis, |backend| {
            backend.drain_visits();
            backend.connections.hurry();
        });
        return;
    }
    loop {
        match worker::with(redis, |backend| read_once(backend, notice)) {
            Some(Read::Some) => {
                if let Err(error) = take_completions(redis, node) {
                    return give_up(redis, node, &error.to_string(), &error);
                }
            }
            Some(Read::Lost(reason)) => {
                return give_up(redis, node, &reason, &ConnectionError::Lost);
            }
            Some(Read::Empty) | None => break,
        }
    }
    let is_sound = worker::with(redis, |backend| {
        if backend.connections.current(notice).is_none() {
            return true;
        }
        if backend.edge.is_ready(node) {
            backend.log_recovery(node);
        }
        backend.journal.notices(&mut backend.edge, now().ms);
        backend.edge.send_visits(now());
        backend.work_off_spool();
        // Replies can be followed by other commands, and servers can come and go.
        backend.schedule();
        let connection = backend.connections.current(notice);
        connection.is_none_or(|connection| connection.read_on())
    });
    if is_sound == Some(false) {
        lose(redis, node, &ConnectionError::Lost);
    }
    // Replies can make something due, such as a server that others have named.
    if worker::with(redis, |backend| backend.edge.next_deadline() <= now().ms) == Some(true) {
        drive(redis);
    }
}

fn read_once(backend: &mut Backend, notice: Notice) -> Read {
    let clock = backend.clock();
    match backend.connections.current(notice) {
        Some(connection) => connection.read(&mut backend.edge, clock),
        None => Read::Empty,
    }
}

/// The connection is open, or takes more bytes.
fn on_write(notice: Notice) {
    let Owner { redis, node } = Owner::of(notice.owner());
    let opened = worker::with(redis, |backend| {
        let Some(connection) = backend.connections.current(notice) else {
            return Ok(false);
        };
        if connection.opened(backend.tls.as_ref())? {
            backend.edge.connected(node, now());
        }
        Ok(connection.is_securing())
    });
    match opened {
        Some(Err(reason)) => {
            let reason: String = reason;
            give_up(redis, node, &reason, &ConnectionError::Lost);
        }
        Some(Ok(true)) => {
            let has_ended = worker::with(redis, |backend| {
                let connection = backend.connections.current(notice);
                connection.is_some_and(|connection| connection.negotiate())
            });
            if has_ended == Some(true) {
                on_secured(notice);
            }
        }
        Some(Ok(false)) | None => flush(redis),
    }
}

/// TLS was negotiated, or was not.
fn on_secured(notice: Notice) {
    let Owner { redis, node } = Owner::of(notice.owner());
    let secured = worker::with(redis, |backend| {
        if let Some(connection) = backend.connections.current(notice)
            && let Some(tls) = &backend.tls
        {
            connection.secured(tls)?;
            backend.edge.connected(node, now());
        }
        Ok(())
    });
    if let Some(Err(reason)) = secured {
        let reason: String = reason;
        return give_up(redis, node, &reason, &ConnectionError::Lost);
    }
    flush(redis);
    // nginx does not announce the bytes that came with the end of the negotiation.
    let is_readable = worker::with(redis, |backend| {
        let connection = backend.connections.current(notice);
        connection.is_some_and(|connection| connection.is_readable())
    });
    if is_readable == Some(true) {
        on_read(notice);
    }
}
