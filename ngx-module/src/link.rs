//! The worker's connection to Redis, in the worker's own event loop.
//!
//! This file moves bytes between a socket and the client and tells the client the time; what is
//! sent, who is answered and when to give up is the client's decision. Three rules keep it right:
//!
//! - Nothing is written while a request is handled. The flush is an event of its own that nginx
//!   runs at the end of the turn, so that all requests of a turn leave in one write.
//! - Completions are taken one at a time, and finished with no reference to the worker's state
//!   held.
//! - A timer that only keeps house is cancelable, so that an old worker ends after a reload; while
//!   a request waits the timer is not, because the request needs it.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr;

use ngx::ffi::{
    AF_INET, AF_INET6, EINPROGRESS, NGX_AGAIN, NGX_ERROR, NGX_LOG_ALERT, NGX_LOG_ERR,
    NGX_LOG_NOTICE, NGX_OK, SO_ERROR, SOL_SOCKET, getsockopt, ngx_addr_t, ngx_close_connection,
    ngx_connection_t, ngx_event_connect_peer, ngx_event_get_peer, ngx_event_t, ngx_exiting,
    ngx_handle_read_event, ngx_handle_write_event, ngx_int_t, ngx_log_t, ngx_msec_t,
    ngx_peer_connection_t, ngx_posted_events, ngx_quit, ngx_str_t, ngx_tcp_nodelay, ngx_terminate,
    socklen_t,
};
use ngx::ffi::{ngx_add_timer, ngx_del_timer, ngx_post_event, ngx_time};
use ngx::ngx_log_error;
use resolver::{Client, LinkError, MissReason, Tick};

use crate::handler::{OwnedAnswer, complete};
use crate::worker::{self, Waiting, now};

/// `log_error` of a peer: errors of the socket are logged as information by nginx; what an
/// operator needs to know is logged here, once an outage.
const LOG_SOCKET_ERRORS_AS_INFO: u32 = 2;

/// The connection and its events.
pub(crate) struct Link {
    /// Redis' addresses; they live as long as the configuration.
    addresses: Vec<ngx_addr_t>,
    /// The address that is tried next, or in use.
    address: usize,
    peer: ngx_peer_connection_t,
    /// Null while there is no connection.
    connection: *mut ngx_connection_t,
    /// Whether the connection is open rather than being opened.
    open: bool,
    /// Writes what the client has to send, at the end of the turn.
    flush: ngx_event_t,
    /// Wakes up at the client's next deadline.
    timer: ngx_event_t,
    /// nginx reads a descriptor through an event's data to log it.
    #[expect(dead_code, reason = "the events point to it")]
    no_connection: Box<ngx_connection_t>,
    /// The cycle's log.
    log: *mut ngx_log_t,
    /// The same, but silent for all but alerts: nginx logs each failed attempt to connect.
    quiet_log: Box<ngx_log_t>,
    /// Whether the present outage is in the log already.
    outage_logged: bool,
}

impl Link {
    /// Makes a link that is not connected yet.
    ///
    /// # Safety
    /// The addresses and the log must be valid as long as the process lives; there must be at
    /// least one address.
    pub(crate) unsafe fn new(addresses: &[ngx_addr_t], log: *mut ngx_log_t) -> Self {
        // SAFETY: all zeros is a valid value of these structures: nginx itself makes them so. The
        // log is valid, and copying one is what nginx does for each connection.
        unsafe {
            let mut no_connection: Box<ngx_connection_t> = Box::new(mem::zeroed());
            no_connection.fd = -1;
            let mut quiet_log = Box::new(*log);
            quiet_log.log_level = NGX_LOG_ALERT as usize;
            let data: *mut ngx_connection_t = &mut *no_connection;
            let event = |handler| {
                let mut event: ngx_event_t = mem::zeroed();
                event.data = data.cast();
                event.log = log;
                event.handler = Some(handler);
                event
            };
            Self {
                addresses: addresses.to_vec(),
                address: 0,
                peer: mem::zeroed(),
                connection: ptr::null_mut(),
                open: false,
                flush: event(on_flush as unsafe extern "C" fn(*mut ngx_event_t)),
                timer: event(on_timer as unsafe extern "C" fn(*mut ngx_event_t)),
                no_connection,
                log,
                quiet_log,
                outage_logged: false,
            }
        }
    }

    /// Sees to it that what the client has to send is sent at the end of this turn, and that its
    /// deadline is not missed.
    pub(crate) fn schedule(&mut self, client: &mut Client<Waiting>) {
        if self.open {
            // SAFETY: the event lives as long as the process; nginx runs posted events only when
            // no handler runs.
            unsafe {
                ngx_post_event(&mut self.flush, &raw mut ngx_posted_events);
            }
        }
        self.set_timer(client);
    }

    /// Closes the connection without telling the client.
    pub(crate) fn close(&mut self) {
        let connection = mem::replace(&mut self.connection, ptr::null_mut());
        self.open = false;
        if !connection.is_null() {
            // SAFETY: the connection was made by `ngx_event_connect_peer` and is not closed yet:
            // whoever closes it clears the field.
            unsafe { ngx_close_connection(connection) };
        }
    }

    /// Arms the timer for the client's next deadline. An earlier timer is left alone: it looks
    /// again when it fires, and setting one costs more than a look.
    fn set_timer(&mut self, client: &mut Client<Waiting>) {
        let deadline = client.next_deadline();
        // SAFETY: the event lives as long as the process, and the flags say whether it is armed.
        unsafe {
            self.timer.set_cancelable(u32::from(!client.has_waiting()));
            if deadline == u64::MAX {
                return;
            }
            let wait = deadline.saturating_sub(now());
            if self.timer.timer_set() == 0 {
                ngx_add_timer(&mut self.timer, wait as ngx_msec_t);
            } else if (self.timer.timer.key as u64) > deadline {
                ngx_del_timer(&mut self.timer);
                ngx_add_timer(&mut self.timer, wait as ngx_msec_t);
            }
        }
    }

    /// Begins to connect; `false` when that failed at once.
    fn connect(&mut self) -> bool {
        let Some(address) = self.addresses.get_mut(self.address) else {
            return false;
        };
        // SAFETY: the address lives as long as the configuration, and the peer's fields are those
        // that nginx' function reads. The connection's events are this file's functions.
        unsafe {
            self.peer = mem::zeroed();
            self.peer.sockaddr = address.sockaddr;
            self.peer.socklen = address.socklen;
            self.peer.name = &mut address.name;
            self.peer.get = Some(ngx_event_get_peer);
            self.peer.log = &mut *self.quiet_log;
            self.peer.set_log_error(LOG_SOCKET_ERRORS_AS_INFO);
            let result = ngx_event_connect_peer(&mut self.peer);
            if result != NGX_OK as ngx_int_t && result != NGX_AGAIN as ngx_int_t {
                return false;
            }
            let connection = self.peer.connection;
            // A worker that ends looks for idle connections and tells each of them.
            (*connection).set_idle(1);
            (*connection).log = self.log;
            (*(*connection).read).log = self.log;
            (*(*connection).write).log = self.log;
            (*(*connection).read).handler = Some(on_read);
            (*(*connection).write).handler = Some(on_write);
            self.connection = connection;
            self.open = false;
            if result == NGX_OK as ngx_int_t {
                // Connected at once, as unix sockets do: no event will say so.
                ngx_post_event((*connection).write, &raw mut ngx_posted_events);
            }
            true
        }
    }

    /// Says in the log that Redis is lost, once an outage.
    fn log_outage(&mut self, reason: &str) {
        if !mem::replace(&mut self.outage_logged, true) {
            let address = self.address_name();
            ngx_log_error!(
                NGX_LOG_ERR,
                self.log,
                "shortlink: lost Redis at {address}: {reason}; links go through the fallback until \
                 it is back, which is tried without further notice"
            );
        }
    }

    /// Says in the log that Redis is back.
    fn log_recovery(&mut self) {
        if mem::replace(&mut self.outage_logged, false) {
            let address = self.address_name();
            ngx_log_error!(
                NGX_LOG_NOTICE,
                self.log,
                "shortlink: Redis at {address} is back"
            );
        }
    }

    fn address_name(&self) -> String {
        let name = self.addresses.get(self.address).map(|address| address.name);
        name.map_or_else(String::new, |name: ngx_str_t| name.to_string())
    }
}

/// Does what is due: requests out of time, reconnects, hanging connections.
///
/// # Safety
/// May finish requests: the caller may not hold a reference to the worker's state, nor use a
/// request afterwards.
pub(crate) unsafe fn drive() {
    // SAFETY: `with` is left before a request is finished; what is done within it does not come
    // back.
    unsafe {
        // Requests first: one that fails to be answered in time is worse than a late reconnect.
        while let Some(Some(state)) = worker::with(|worker| worker.client.next_expired(now())) {
            complete(state, OwnedAnswer::Miss(MissReason::TimedOut));
        }
        let lost = worker::with(|worker| {
            let exiting = ngx_exiting != 0 || ngx_terminate != 0 || ngx_quit != 0;
            match worker.client.tick(now()) {
                Tick::Idle => false,
                // A worker that ends connects again only for somebody who waits.
                Tick::Connect if exiting && !worker.client.has_waiting() => false,
                Tick::Connect => {
                    worker.client.connecting(now());
                    if !worker.link.connect() {
                        worker.link.log_outage("the connection can't be opened");
                    }
                    worker.link.connection.is_null()
                }
                Tick::Disconnect(error) => {
                    worker.link.log_outage(&error.to_string());
                    true
                }
            }
        });
        if lost == Some(true) {
            lose();
        }
        worker::with(|worker| {
            let exiting = ngx_exiting != 0;
            if !exiting || worker.client.has_waiting() {
                worker.link.set_timer(&mut worker.client);
            }
        });
    }
}

/// Gives the connection up: all that wait go to the fallback.
///
/// # Safety
/// As for [`drive`].
unsafe fn lose() {
    // SAFETY: as in `drive`.
    unsafe {
        worker::with(|worker| {
            worker.link.close();
            // Another address, if Redis has several, next time.
            worker.link.address = (worker.link.address + 1) % worker.link.addresses.len().max(1);
            worker.client.disconnected(now());
        });
        // With the connection gone this hands out only those who were lost with it.
        let _ = take_completions();
        worker::with(|worker| worker.link.set_timer(&mut worker.client));
    }
}

/// Finishes every request that is done.
///
/// # Safety
/// As for [`drive`].
unsafe fn take_completions() -> Result<(), LinkError> {
    loop {
        // SAFETY: the copy is made in the pool of a request that waits, hence lives; copying does
        // not come back. The request is finished after `with` was left.
        unsafe {
            let next = worker::with(|worker| {
                let done = worker.client.next_completion(now(), ngx_time() as u64)?;
                Ok(done.map(|done| (done.token, OwnedAnswer::copy(done.answer, done.token))))
            });
            match next {
                Some(Ok(Some((state, answer)))) => complete(state, answer),
                Some(Ok(None)) | None => return Ok(()),
                Some(Err(error)) => return Err(error),
            }
        }
    }
}

/// What reading once brought.
enum Read {
    /// Bytes: look for completions, then read on.
    Some,
    /// The socket is empty.
    Empty,
    /// The connection is lost.
    Lost,
}

/// Redis has sent something, or nginx tells that the worker ends.
unsafe extern "C" fn on_read(event: *mut ngx_event_t) {
    // SAFETY: nginx calls this with the read event of the connection that `connect` made; its
    // data is the connection. After each round of completions it is checked that the link still
    // has this connection.
    unsafe {
        let connection = (*event).data.cast::<ngx_connection_t>();
        if (*connection).close() != 0 {
            let waiting = worker::with(|worker| worker.client.has_waiting()).unwrap_or(false);
            // `error` is set when worker_shutdown_timeout is over.
            if !waiting || (*connection).error() != 0 {
                lose();
                return;
            }
        }
        loop {
            let read = worker::with(|worker| {
                if worker.link.connection != connection {
                    return Read::Empty;
                }
                let space = worker.client.input_space();
                let Some(recv) = (*connection).recv else {
                    return Read::Lost;
                };
                let count = recv(connection, space.as_mut_ptr(), space.len());
                match count {
                    1.. => {
                        worker.client.received(count as usize);
                        Read::Some
                    }
                    _ if count == NGX_AGAIN as isize => Read::Empty,
                    _ => {
                        if worker.link.open {
                            worker.link.log_outage(if count == 0 {
                                "it closed the connection"
                            } else {
                                "the connection broke"
                            });
                        } else {
                            let reason = connect_error(connection);
                            worker.link.log_outage(&reason);
                        }
                        Read::Lost
                    }
                }
            });
            match read {
                Some(Read::Some) => {
                    if let Err(error) = take_completions() {
                        worker::with(|worker| worker.link.log_outage(&error.to_string()));
                        lose();
                        return;
                    }
                }
                Some(Read::Lost) => {
                    lose();
                    drive();
                    return;
                }
                Some(Read::Empty) | None => break,
            }
        }
        let armed = worker::with(|worker| {
            if worker.link.connection != connection {
                return true;
            }
            if worker.client.is_ready() {
                worker.link.log_recovery();
            }
            worker.link.set_timer(&mut worker.client);
            ngx_handle_read_event((*connection).read, 0) == NGX_OK as ngx_int_t
        });
        if armed == Some(false) {
            lose();
        }
    }
}

/// The connection is open, or takes more bytes.
unsafe extern "C" fn on_write(event: *mut ngx_event_t) {
    // SAFETY: as for `on_read`.
    unsafe {
        let connection = (*event).data.cast::<ngx_connection_t>();
        let failed = worker::with(|worker| {
            if worker.link.connection != connection || worker.link.open {
                return false;
            }
            let error = socket_error(connection);
            if error != 0 {
                worker.link.log_outage(&connect_error_text(error));
                return true;
            }
            // Small commands must not wait for the acknowledgement of earlier ones.
            let family = c_int::from((*worker.link.peer.sockaddr).sa_family);
            if family == AF_INET as c_int || family == AF_INET6 as c_int {
                ngx_tcp_nodelay(connection);
            }
            worker.link.open = true;
            worker.client.connected(now());
            false
        });
        if failed == Some(true) {
            lose();
            return;
        }
        on_flush(event);
    }
}

/// Writes what the client has to send.
unsafe extern "C" fn on_flush(_event: *mut ngx_event_t) {
    // SAFETY: sending does not come back; the connection is the link's own and open.
    let lost = unsafe {
        worker::with(|worker| {
            let connection = worker.link.connection;
            if connection.is_null() || !worker.link.open {
                return false;
            }
            let Some(send) = (*connection).send else {
                return true;
            };
            loop {
                let output = worker.client.output();
                if output.is_empty() || (*(*connection).write).ready() == 0 {
                    break;
                }
                let count = send(connection, output.as_ptr().cast_mut(), output.len());
                match count {
                    0.. => worker.client.wrote(count as usize),
                    _ if count == NGX_AGAIN as isize => break,
                    _ => {
                        worker.link.log_outage("the connection broke");
                        return true;
                    }
                }
            }
            ngx_handle_write_event((*connection).write, 0) == NGX_ERROR as ngx_int_t
        })
    };
    if lost == Some(true) {
        // SAFETY: nothing is held here.
        unsafe { lose() };
    }
}

/// A deadline has come.
unsafe extern "C" fn on_timer(_event: *mut ngx_event_t) {
    // SAFETY: nothing is held here.
    unsafe { drive() };
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

/// What is said of a connection that could not be opened, from the socket.
unsafe fn connect_error(connection: *mut ngx_connection_t) -> String {
    // SAFETY: as the caller's.
    match unsafe { socket_error(connection) } {
        0 => "the connection can't be opened".to_owned(),
        error => connect_error_text(error),
    }
}

/// What is said of a connection that could not be opened.
fn connect_error_text(error: c_int) -> String {
    // SAFETY: `strerror` returns a text that is valid until its next call, in this thread.
    let text = unsafe { CStr::from_ptr(ngx::ffi::strerror(error)) };
    format!(
        "the connection can't be opened ({error}: {})",
        text.to_string_lossy()
    )
}
