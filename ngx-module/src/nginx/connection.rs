//! A connection of the worker's own to a server.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr::{self, NonNull};

use ngx::ffi::{
    EINPROGRESS, NGX_AGAIN, NGX_ERROR, NGX_OK, NGX_SSL_CLIENT, SO_ERROR, SOL_SOCKET, SSL,
    SSL_CTRL_MODE, SSL_CTRL_SET_TLSEXT_HOSTNAME, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, SSL_ctrl,
    SSL_get_verify_result, TLSEXT_NAMETYPE_host_name, getsockopt, ngx_close_connection,
    ngx_connection_t, ngx_create_pool, ngx_destroy_pool, ngx_event_connect_peer,
    ngx_event_get_peer, ngx_event_t, ngx_handle_read_event, ngx_handle_write_event, ngx_int_t,
    ngx_peer_connection_t, ngx_post_event, ngx_posted_events, ngx_ssl_check_host,
    ngx_ssl_create_connection, ngx_ssl_handshake, ngx_ssl_shutdown, ngx_tcp_nodelay, socklen_t,
};

use crate::nginx::address::SocketAddress;
use crate::nginx::event::EventHandler;
use crate::nginx::log::Log;
use crate::nginx::pool::lent;
use crate::nginx::ssl::SslContext;

/// `log_error` of a peer: errors of the socket are logged as information by nginx; what an operator needs to know is
/// logged by the module, once an outage.
const LOG_SOCKET_ERRORS_AS_INFO: u32 = 2;

/// The bytes that a connection's pool takes from the system at once.
const POOL_BYTES: usize = 512;

/// An event of a connection. The structure of a connection lives as long as the
/// worker, also when the connection is closed.
#[derive(Clone, Copy)]
pub(crate) struct Notice {
    connection: NonNull<ngx_connection_t>,
    owner: usize,
}

impl Notice {
    /// # Safety
    /// The connection must be one of [`Connection::open`].
    unsafe fn of(connection: NonNull<ngx_connection_t>) -> Self {
        Self {
            connection,
            // SAFETY: the connection is valid, and this is what it was opened with.
            owner: unsafe { (*connection.as_ptr()).data } as usize,
        }
    }

    /// The number that the connection was opened with.
    pub(crate) fn owner(self) -> usize {
        self.owner
    }

    /// Returns whether nginx closes idle connections, because the worker ends; once only.
    pub(crate) fn take_close(self) -> bool {
        // SAFETY: the structure of a connection lives as long as the worker.
        unsafe {
            let connection = self.connection.as_ptr();
            let is_closing = (*connection).close() != 0;
            (*connection).set_close(0);
            is_closing
        }
    }
}

/// A function that nginx calls when TLS was negotiated, or was not; made by [`secured_handler`].
#[derive(Clone, Copy)]
pub(crate) struct SecuredHandler(unsafe extern "C" fn(*mut ngx_connection_t));

impl SecuredHandler {
    /// # Safety
    /// The function must be sound for every connection of [`Connection::open`].
    pub(crate) const unsafe fn new(function: unsafe extern "C" fn(*mut ngx_connection_t)) -> Self {
        Self(function)
    }
}

/// The handler of a connection's events that calls a function `fn(Notice)`.
macro_rules! connection_handler {
    ($function:path) => {{
        unsafe extern "C" fn call(event: *mut ngx::ffi::ngx_event_t) {
            // SAFETY: nginx calls this with an event, whose data is a connection.
            unsafe { $crate::nginx::connection::notify((*event).data.cast(), $function) }
        }
        // SAFETY: the data of every event of this module is a connection, or stands for one.
        unsafe { $crate::nginx::event::EventHandler::new(call) }
    }};
}
pub(crate) use connection_handler;

/// The handler for the end of a negotiation that calls a function `fn(Notice)`.
macro_rules! secured_handler {
    ($function:path) => {{
        unsafe extern "C" fn call(connection: *mut ngx::ffi::ngx_connection_t) {
            // SAFETY: nginx calls this with the connection.
            unsafe { $crate::nginx::connection::notify(connection, $function) }
        }
        // SAFETY: the function takes every connection.
        unsafe { $crate::nginx::connection::SecuredHandler::new(call) }
    }};
}
pub(crate) use secured_handler;

/// Calls a handler.
///
/// # Safety
/// The connection must be one of [`Connection::open`].
pub(crate) unsafe fn notify(connection: *mut ngx_connection_t, handler: fn(Notice)) {
    // SAFETY: as this function's own; a valid connection is not null.
    handler(unsafe { Notice::of(NonNull::new_unchecked(connection)) });
}

/// The functions that nginx calls for a connection.
#[derive(Clone, Copy)]
pub(crate) struct Handlers {
    /// There are bytes, or the worker ends.
    pub(crate) read: EventHandler,
    /// The connection is open, or takes more bytes.
    pub(crate) write: EventHandler,
    /// TLS was negotiated, or was not.
    pub(crate) secured: SecuredHandler,
}

/// The result of sending or receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// So many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The other side has closed the connection.
    End,
    /// The connection broke.
    Broken,
}

impl Moved {
    #[inline]
    fn of(result: isize) -> Self {
        match result {
            1.. => Self::Bytes(result as usize),
            0 => Self::End,
            _ if result == NGX_AGAIN as isize => Self::Nothing,
            _ => Self::Broken,
        }
    }
}

/// A connection. It is closed when it is dropped.
pub(crate) struct Connection {
    raw: NonNull<ngx_connection_t>,
    is_ip: bool,
    handlers: Handlers,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let connection = self.raw();
        // SAFETY: the connection is open, and closed here only. With these flags nginx neither sends a farewell nor
        // waits for one, and frees at once.
        unsafe {
            let ssl = (*connection).ssl;
            if !ssl.is_null() {
                (*ssl).set_no_wait_shutdown(1);
                (*ssl).set_no_send_shutdown(1);
                ngx_ssl_shutdown(connection);
            }
            let pool = mem::replace(&mut (*connection).pool, ptr::null_mut());
            if !pool.is_null() {
                ngx_destroy_pool(pool);
            }
            ngx_close_connection(connection);
        }
    }
}

impl Connection {
    /// Begins to connect; `None` when that failed at once. `owner` is a number for the handlers. `quiet` is the log
    /// for the attempt: nginx logs each that fails.
    pub(crate) fn open(
        address: &SocketAddress,
        owner: usize,
        handlers: Handlers,
        log: Log,
        quiet: Log,
    ) -> Option<Self> {
        // SAFETY: all zeros is a valid value of a peer: nginx itself makes them so.
        let mut peer: ngx_peer_connection_t = unsafe { mem::zeroed() };
        let mut name = lent(address.text().as_bytes());
        (peer.sockaddr, peer.socklen) = address.as_sockaddr();
        peer.name = &raw mut name;
        peer.get = Some(ngx_event_get_peer);
        peer.log = quiet.as_ptr();
        peer.set_log_error(LOG_SOCKET_ERRORS_AS_INFO);
        // SAFETY: the peer's fields are those that nginx reads, and it keeps no pointer to the peer.
        let result = unsafe { ngx_event_connect_peer(&mut peer) };
        if result != NGX_OK as ngx_int_t && result != NGX_AGAIN as ngx_int_t {
            return None;
        }
        let this = Self {
            raw: NonNull::new(peer.connection)?,
            is_ip: address.is_ip(),
            handlers,
        };
        // SAFETY: nginx has opened the connection. Connections to others have logs of their own.
        unsafe {
            let connection = this.raw();
            // A worker that ends notifies each idle connection.
            (*connection).set_idle(1);
            (*connection).log = log.as_ptr();
            (*(*connection).read).log = log.as_ptr();
            (*(*connection).write).log = log.as_ptr();
            (*connection).data = owner as *mut c_void;
            this.listen();
            if result == NGX_OK as ngx_int_t {
                // Connected at once, as unix sockets do: no event will say so.
                ngx_post_event((*connection).write, &raw mut ngx_posted_events);
            }
        }
        Some(this)
    }

    #[inline]
    fn raw(&self) -> *mut ngx_connection_t {
        self.raw.as_ptr()
    }

    #[inline]
    fn event(&self, is_write: bool) -> *mut ngx_event_t {
        // SAFETY: an open connection has two events.
        unsafe {
            match is_write {
                true => (*self.raw()).write,
                false => (*self.raw()).read,
            }
        }
    }

    /// Has nginx call the handlers for events; negotiating sets others.
    pub(crate) fn listen(&self) {
        // SAFETY: the connection is open.
        unsafe {
            (*self.event(false)).handler = Some(self.handlers.read.0);
            (*self.event(true)).handler = Some(self.handlers.write.0);
        }
    }

    /// Returns whether a notice is about this connection.
    #[inline]
    pub(crate) fn is(&self, notice: Notice) -> bool {
        self.raw == notice.connection
    }

    /// Receives bytes.
    #[inline]
    pub(crate) fn receive(&self, space: &mut [u8]) -> Moved {
        // SAFETY: the connection is open, and has the function for its kind.
        unsafe {
            match (*self.raw()).recv {
                Some(recv) => Moved::of(recv(self.raw(), space.as_mut_ptr(), space.len())),
                None => Moved::Broken,
            }
        }
    }

    /// Sends bytes.
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> Moved {
        // SAFETY: the connection is open, and has the function for its kind, which only reads the bytes.
        unsafe {
            match (*self.raw()).send {
                Some(send) => Moved::of(send(self.raw(), bytes.as_ptr().cast_mut(), bytes.len())),
                None => Moved::Broken,
            }
        }
    }

    /// Returns whether the connection takes bytes.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { (*self.event(true)).ready() != 0 }
    }

    /// Returns whether there may be bytes.
    pub(crate) fn is_readable(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { (*self.event(false)).ready() != 0 }
    }

    /// Has nginx say when there are bytes; `false` when that failed.
    pub(crate) fn expect_reading(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { ngx_handle_read_event(self.event(false), 0) == NGX_OK as ngx_int_t }
    }

    /// Has nginx say when the connection takes bytes again; `false` when that failed.
    pub(crate) fn expect_writing(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { ngx_handle_write_event(self.event(true), 0) != NGX_ERROR as ngx_int_t }
    }

    /// The pending error of the socket; 0 for none.
    pub(crate) fn socket_error(&self) -> i32 {
        let mut error: c_int = 0;
        let mut length = size_of::<c_int>() as socklen_t;
        // SAFETY: the descriptor is the open connection's; the kernel writes an int.
        let result = unsafe {
            getsockopt(
                (*self.raw()).fd,
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

    /// Has small commands not wait for the acknowledgement of earlier ones.
    pub(crate) fn send_at_once(&self) {
        if self.is_ip {
            // SAFETY: the connection is open.
            unsafe { ngx_tcp_nodelay(self.raw()) };
        }
    }

    /// Prepares TLS, for a server of this name; `None` when there is no memory.
    pub(crate) fn secure(&self, context: SslContext, name: &CStr) -> Option<()> {
        // SAFETY: the connection is open; nginx takes what it needs for TLS from the connection's pool, which
        // connections to others do not have of their own.
        unsafe {
            let connection = self.raw();
            if (*connection).pool.is_null() {
                (*connection).pool = ngx_create_pool(POOL_BYTES, (*connection).log);
                if (*connection).pool.is_null() {
                    return None;
                }
            }
            let flags = NGX_SSL_CLIENT as usize;
            let created = ngx_ssl_create_connection(context.as_ptr(), connection, flags);
            if created != NGX_OK as ngx_int_t {
                return None;
            }
        }
        let ssl = self.ssl()?;
        // SAFETY: the connection is secured; the name ends with a zero, and OpenSSL copies it.
        unsafe {
            // Bytes that could not be written whole may have moved by the next attempt, if more commands were
            // appended to them.
            let moving = i64::from(SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
            SSL_ctrl(ssl, SSL_CTRL_MODE as i32, moving, ptr::null_mut());
            if name.is_empty() {
                return Some(());
            }
            let kind = i64::from(TLSEXT_NAMETYPE_host_name);
            let name = name.as_ptr().cast_mut().cast();
            let set = SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME as i32, kind, name);
            (set != 0).then_some(())
        }
    }

    /// OpenSSL's part, after [`Connection::secure`].
    fn ssl(&self) -> Option<*mut SSL> {
        // SAFETY: the connection is open.
        unsafe { (*self.raw()).ssl.as_ref() }.map(|ssl| ssl.connection)
    }

    /// Negotiates; `false` if that has ended already, and `secured` will not be called.
    pub(crate) fn negotiate(&self) -> bool {
        // SAFETY: the connection is open; without TLS there is nothing to negotiate.
        unsafe {
            if (*self.raw()).ssl.is_null()
                || ngx_ssl_handshake(self.raw()) != NGX_AGAIN as ngx_int_t
            {
                return false;
            }
            (*(*self.raw()).ssl).handler = Some(self.handlers.secured.0);
            true
        }
    }

    /// Returns whether TLS was negotiated.
    pub(crate) fn is_secured(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { (*self.raw()).ssl.as_ref() }.is_some_and(|ssl| ssl.handshaked() != 0)
    }

    /// OpenSSL's number of what is wrong with the server's certificate; 0 if it is trusted.
    pub(crate) fn certificate_error(&self) -> i64 {
        // SAFETY: OpenSSL's part is valid while the connection is open.
        self.ssl()
            .map_or(-1, |ssl| unsafe { SSL_get_verify_result(ssl) })
    }

    /// Returns whether the server's certificate is for a name.
    pub(crate) fn is_certified_for(&self, name: &CStr) -> bool {
        let mut name = lent(name.to_bytes());
        // SAFETY: the connection is open; nginx only compares the name.
        self.ssl().is_some()
            && unsafe { ngx_ssl_check_host(self.raw(), &mut name) } == NGX_OK as ngx_int_t
    }
}

/// The system's text for an error of a socket.
pub(crate) fn error_text(error: i32) -> String {
    // SAFETY: `strerror` returns a text that is valid until its next call, in this thread.
    let text = unsafe { CStr::from_ptr(ngx::ffi::strerror(error)) };
    text.to_string_lossy().into_owned()
}
