//! One connection to a server, in the worker's own event loop.
//!
//! This file moves bytes between a socket and the edge. The edge decides on commands, answers and
//! time limits; [`links`](crate::links) carries it out. Two rules keep it right:
//!
//! - Nothing is written while a request is handled. The flush is an event of its own that nginx
//!   runs at the end of an iteration of its loop, so that all requests of it leave in one write.
//! - After anything that can finish a request, the code checks again that this is still the node's
//!   connection.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr;

use ngx::ffi::{
    AF_INET, AF_INET6, EINPROGRESS, NGX_AGAIN, NGX_ERROR, NGX_LOG_ALERT, NGX_OK, SO_ERROR,
    SOL_SOCKET, getsockopt, ngx_close_connection, ngx_connection_t, ngx_event_connect_peer,
    ngx_event_get_peer, ngx_event_t, ngx_handle_read_event, ngx_handle_write_event, ngx_int_t,
    ngx_log_t, ngx_peer_connection_t, ngx_post_event, ngx_posted_events, ngx_str_t,
    ngx_tcp_nodelay, socklen_t,
};
use resolver::{ConnectionError, NodeId};

use crate::addresses::SocketAddress;
use crate::links::{self, drive, lose, take_completions};
use crate::tls::{self, Tls};
use crate::worker::{self, Worker, now};

/// `log_error` of a peer: errors of the socket are logged as information by nginx; what an
/// operator needs to know is logged here, once an outage.
const LOG_SOCKET_ERRORS_AS_INFO: u32 = 2;

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none, or it is being opened.
    Opening,
    /// It is open and TLS is being negotiated.
    Securing,
    /// Bytes can be sent.
    Open,
}

/// A connection to a node. It is boxed and never moves while there is a connection.
pub(crate) struct Link {
    node: NodeId,
    peer: ngx_peer_connection_t,
    /// Null while there is no connection.
    connection: *mut ngx_connection_t,
    stage: Stage,
    /// The server's address, while there is a connection.
    address: Option<SocketAddress>,
    name: ngx_str_t,
    /// The cycle's log.
    log: *mut ngx_log_t,
    /// The same, but silent for all but alerts: nginx logs each failed attempt to connect.
    quiet_log: Box<ngx_log_t>,
}

impl Link {
    /// Begins without a connection.
    ///
    /// # Safety
    /// The log must be valid as long as the process lives.
    pub(crate) unsafe fn new(node: NodeId, log: *mut ngx_log_t) -> Box<Self> {
        // SAFETY: all zeros is a valid value of a peer: nginx itself makes them so. The log is
        // valid, and copying one is what nginx does for each connection.
        unsafe {
            let mut quiet_log = Box::new(*log);
            quiet_log.log_level = NGX_LOG_ALERT as usize;
            Box::new(Self {
                node,
                peer: mem::zeroed(),
                connection: ptr::null_mut(),
                stage: Stage::Opening,
                address: None,
                name: ngx_str_t::default(),
                log,
                quiet_log,
            })
        }
    }

    /// Returns the node that it connects to.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns whether bytes can be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Closes the connection without telling the edge.
    pub(crate) fn close(&mut self) {
        let connection = mem::replace(&mut self.connection, ptr::null_mut());
        self.stage = Stage::Opening;
        if !connection.is_null() {
            // SAFETY: the connection was made by `ngx_event_connect_peer` and is not closed yet:
            // closing it clears the field.
            unsafe {
                tls::forget(connection);
                ngx_close_connection(connection);
            }
        }
    }

    /// Begins to connect; `false` when that failed at once.
    pub(crate) fn connect(&mut self, address: SocketAddress) -> bool {
        let address = self.address.insert(address);
        // SAFETY: the address lives in this link, which does not move, and the peer's fields are
        // those that nginx' function reads. The connection's events are this file's functions.
        unsafe {
            self.name = ngx_str_t {
                len: address.text().len(),
                data: address.text().as_ptr().cast_mut(),
            };
            self.peer = mem::zeroed();
            (self.peer.sockaddr, self.peer.socklen) = address.as_sockaddr();
            self.peer.name = &mut self.name;
            self.peer.get = Some(ngx_event_get_peer);
            self.peer.log = &mut *self.quiet_log;
            self.peer.set_log_error(LOG_SOCKET_ERRORS_AS_INFO);
            let result = ngx_event_connect_peer(&mut self.peer);
            if result != NGX_OK as ngx_int_t && result != NGX_AGAIN as ngx_int_t {
                return false;
            }
            let connection = self.peer.connection;
            // A worker that ends notifies each idle connection.
            (*connection).set_idle(1);
            (*connection).log = self.log;
            (*(*connection).read).log = self.log;
            (*(*connection).write).log = self.log;
            (*connection).data = self.node.index() as *mut c_void;
            (*(*connection).read).handler = Some(on_read);
            (*(*connection).write).handler = Some(on_write);
            self.connection = connection;
            self.stage = Stage::Opening;
            if result == NGX_OK as ngx_int_t {
                // Connected at once, as unix sockets do: no event will say so.
                ngx_post_event((*connection).write, &raw mut ngx_posted_events);
            }
            true
        }
    }

    /// Writes what the edge has to send; `false` when the connection broke.
    ///
    /// # Safety
    /// Called within the worker's event loop.
    pub(crate) unsafe fn flush(&mut self, edge: &mut worker::WorkerEdge, micros: u64) -> bool {
        if self.stage != Stage::Open {
            return true;
        }
        // SAFETY: the connection is the link's own and open; sending does not come back.
        unsafe {
            let connection = self.connection;
            let Some(send) = (*connection).send else {
                return false;
            };
            loop {
                let output = edge.output(self.node);
                if output.is_empty() || (*(*connection).write).ready() == 0 {
                    break;
                }
                let count = send(connection, output.as_ptr().cast_mut(), output.len());
                match count {
                    0.. => edge.wrote(self.node, count as usize, micros),
                    _ if count == NGX_AGAIN as isize => break,
                    _ => return false,
                }
            }
            ngx_handle_write_event((*connection).write, 0) != NGX_ERROR as ngx_int_t
        }
    }

    /// Prepares the connected socket; returns the reason if it can't be used.
    unsafe fn opened(&mut self, tls: Option<&Tls>) -> Result<(), String> {
        // SAFETY: the connection is the link's own; its address was set before.
        unsafe {
            let connection = self.connection;
            let error = socket_error(connection);
            if error != 0 {
                return Err(connect_error_text(error));
            }
            // Small commands must not wait for the acknowledgement of earlier ones.
            let family = c_int::from((*self.peer.sockaddr).sa_family);
            if family == AF_INET as c_int || family == AF_INET6 as c_int {
                ngx_tcp_nodelay(connection);
            }
            self.stage = match tls {
                None => Stage::Open,
                Some(tls) => {
                    tls.begin(connection)?;
                    Stage::Securing
                }
            };
            Ok(())
        }
    }
}

/// The node that a connection leads to.
unsafe fn node_of(connection: *mut ngx_connection_t) -> NodeId {
    // SAFETY: `connect` has put the number there.
    NodeId::new(unsafe { (*connection).data } as usize)
}

/// Returns whether a connection is the one that its node has now.
unsafe fn is_current(worker: &mut Worker, connection: *mut ngx_connection_t) -> bool {
    // SAFETY: as the caller's.
    let node = unsafe { node_of(connection) };
    let link = worker.links.get(node);
    link.is_some_and(|link| link.connection == connection)
}

/// The result of one read.
enum Read {
    /// Bytes: look for completions, then read on.
    Some,
    /// The socket is empty, or it is not the node's any more.
    Empty,
    /// The connection is lost, with this reason.
    Lost(String),
}

/// Handles bytes of Redis, or nginx' notice that the worker ends.
unsafe extern "C" fn on_read(event: *mut ngx_event_t) {
    // SAFETY: nginx calls this with the read event of the connection that `connect` made; its
    // data is the connection.
    unsafe {
        let connection = (*event).data.cast::<ngx_connection_t>();
        let node = node_of(connection);
        if (*connection).close() != 0 {
            // The connection stays until the worker's end: requests that were begun before may still
            // need it. It keeps no worker, and `stop` closes it.
            (*connection).set_close(0);
            // nginx is closing connections that are idle, one after the other. Meanwhile it reads
            // none of them, so what is to be sent waits for the next turn.
            worker::with(|worker| {
                worker.drain_visits();
                worker.links.hurry();
            });
            return;
        }
        loop {
            let read = worker::with(|worker| read_once(worker, connection, node));
            match read {
                Some(Read::Some) => {
                    if let Err(error) = take_completions(node) {
                        worker::with(|worker| worker.log_outage(node, &error.to_string()));
                        lose(node, &error);
                        drive();
                        return;
                    }
                }
                Some(Read::Lost(reason)) => {
                    worker::with(|worker| worker.log_outage(node, &reason));
                    lose(node, &ConnectionError::Lost);
                    drive();
                    return;
                }
                Some(Read::Empty) | None => break,
            }
        }
        let armed = worker::with(|worker| {
            if !is_current(worker, connection) {
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
            ngx_handle_read_event((*connection).read, 0) == NGX_OK as ngx_int_t
        });
        if armed == Some(false) {
            lose(node, &ConnectionError::Lost);
        }
        links::tick_if_due();
    }
}

unsafe fn read_once(worker: &mut Worker, connection: *mut ngx_connection_t, node: NodeId) -> Read {
    // SAFETY: the connection is open: nginx has called with its event, and closing it takes it
    // out of the link, which is looked at first.
    unsafe {
        if !is_current(worker, connection) {
            return Read::Empty;
        }
        let space = worker.edge.input_space(node);
        let Some(recv) = (*connection).recv else {
            return Read::Lost("the connection broke".to_owned());
        };
        let count = recv(connection, space.as_mut_ptr(), space.len());
        let is_open = worker.links.get(node).is_some_and(|link| link.is_open());
        match count {
            1.. => {
                let micros = worker.micros();
                worker.edge.received(node, count as usize, micros);
                Read::Some
            }
            _ if count == NGX_AGAIN as isize => Read::Empty,
            0 if is_open => Read::Lost("it closed the connection".to_owned()),
            _ if is_open => Read::Lost("the connection broke".to_owned()),
            _ => Read::Lost(connect_error(connection)),
        }
    }
}

/// The connection is open, or takes more bytes.
unsafe extern "C" fn on_write(event: *mut ngx_event_t) {
    // SAFETY: as for `on_read`.
    unsafe {
        let connection = (*event).data.cast::<ngx_connection_t>();
        let node = node_of(connection);
        let failed = worker::with(|worker| {
            if !is_current(worker, connection) {
                return None;
            }
            let Worker { links, tls, .. } = worker;
            let link = links.get(node)?;
            if link.stage != Stage::Opening {
                return None;
            }
            match link.opened(tls.as_ref()) {
                Err(reason) => Some(reason),
                Ok(()) => {
                    if link.is_open() {
                        worker.edge.connected(node, now());
                    }
                    None
                }
            }
        });
        if let Some(Some(reason)) = failed {
            give_up(node, &reason);
            return;
        }
        let is_securing = worker::with(|worker| {
            is_current(worker, connection)
                && worker
                    .links
                    .get(node)
                    .is_some_and(|link| link.stage == Stage::Securing)
        });
        if is_securing == Some(true) {
            tls::negotiate(connection);
        } else {
            links::flush();
        }
    }
}

/// TLS was negotiated, or was not.
///
/// # Safety
/// Called by nginx, or by `tls`, with the link's connection.
pub(crate) unsafe extern "C" fn on_secured(connection: *mut ngx_connection_t) {
    // SAFETY: as this function's own.
    unsafe {
        let node = node_of(connection);
        let outcome = worker::with(|worker| -> Result<(), String> {
            if !is_current(worker, connection) {
                return Ok(());
            }
            let Worker { links, tls, .. } = worker;
            if let (Some(link), Some(tls)) = (links.get(node), tls) {
                tls.check(connection)?;
                link.stage = Stage::Open;
                (*(*connection).read).handler = Some(on_read);
                (*(*connection).write).handler = Some(on_write);
                worker.edge.connected(node, now());
            }
            Ok(())
        });
        match outcome {
            Some(Err(reason)) => give_up(node, &reason),
            _ => {
                links::flush();
                // nginx does not announce the bytes that came with the end of the negotiation.
                let is_there = worker::with(|worker| is_current(worker, connection));
                if is_there == Some(true) && (*(*connection).read).ready() != 0 {
                    on_read((*connection).read);
                }
            }
        }
    }
}

/// Gives a connection up that could not be made.
unsafe fn give_up(node: NodeId, reason: &str) {
    // SAFETY: nothing is held here.
    unsafe {
        worker::with(|worker| worker.log_outage(node, reason));
        lose(node, &ConnectionError::Lost);
        drive();
    }
}

/// The pending error of a socket, 0 for none.
unsafe fn socket_error(connection: *mut ngx_connection_t) -> c_int {
    let mut error: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the descriptor is the open connection's; the kernel writes an int.
    let result = unsafe {
        getsockopt(
            (*connection).fd,
            SOL_SOCKET as c_int,
            SO_ERROR as c_int,
            (&raw mut error).cast::<c_void>(),
            &mut length,
        )
    };
    if result == -1 {
        EINPROGRESS as c_int
    } else {
        error
    }
}

/// Returns the socket's reason that a connection could not be opened.
unsafe fn connect_error(connection: *mut ngx_connection_t) -> String {
    // SAFETY: as the caller's.
    match unsafe { socket_error(connection) } {
        0 => "the connection can't be opened".to_owned(),
        error => connect_error_text(error),
    }
}

/// Returns the message for a connection that could not be opened.
fn connect_error_text(error: c_int) -> String {
    // SAFETY: `strerror` returns a text that is valid until its next call, in this thread.
    let text = unsafe { CStr::from_ptr(ngx::ffi::strerror(error)) };
    format!(
        "the connection can't be opened ({error}: {})",
        text.to_string_lossy()
    )
}
