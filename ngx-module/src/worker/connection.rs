//! One connection to a server, in the worker's own event loop.
//!
//! It moves bytes between a socket and the edge. The edge decides on commands, answers and time limits;
//! [`driver`](crate::driver) carries it out. Nothing is written while a request is handled: the flush is an event of
//! its own that nginx runs at the end of an iteration of its loop, so that all requests of it leave in one write.

use resolver::NodeId;

use crate::nginx::connection::{self, Moved, Notice, error_text};
use crate::settings::redis::Tls;
use crate::worker::edge::WorkerEdge;

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

/// The result of one read.
pub(crate) enum Read {
    /// Bytes: look for completions, then read on.
    Some,
    /// The socket is empty, or it is not the node's any more.
    Empty,
    /// The connection is lost, with this reason.
    Lost(String),
}

/// A connection to a node.
pub(crate) struct Connection {
    node: NodeId,
    /// `None` while there is no connection.
    socket: Option<connection::Connection>,
    stage: Stage,
}

impl Connection {
    /// Begins without a connection.
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            node,
            socket: None,
            stage: Stage::Opening,
        }
    }

    /// Returns the node that it connects to.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns whether a notice is about the connection that there is now.
    #[inline]
    pub(crate) fn is(&self, notice: Notice) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.is(notice))
    }

    /// Returns whether TLS is to be negotiated.
    pub(crate) fn is_securing(&self) -> bool {
        self.stage == Stage::Securing
    }

    /// Returns whether bytes can be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Closes the connection without telling the edge.
    pub(crate) fn close(&mut self) {
        self.socket = None;
        self.stage = Stage::Opening;
    }

    /// Takes over a socket that has begun to connect.
    pub(crate) fn take(&mut self, socket: connection::Connection) {
        self.stage = Stage::Opening;
        self.socket = Some(socket);
    }

    /// Writes what the edge has to send; `false` when the connection broke.
    pub(crate) fn flush(&self, edge: &mut WorkerEdge, micros: u64) -> bool {
        let Some(socket) = self.socket.as_ref().filter(|_| self.is_open()) else {
            return true;
        };
        loop {
            let output = edge.output(self.node);
            if output.is_empty() || !socket.is_writable() {
                break;
            }
            match socket.send(output) {
                Moved::Bytes(count) => edge.wrote(self.node, count, micros),
                // Then the socket takes nothing.
                Moved::End => {}
                Moved::Nothing => break,
                Moved::Broken => return false,
            }
        }
        socket.expect_writing()
    }

    /// Reads once; the clock is of microseconds.
    pub(crate) fn read(&self, edge: &mut WorkerEdge, clock: impl Fn() -> u64) -> Read {
        let Some(socket) = &self.socket else {
            return Read::Empty;
        };
        match socket.receive(edge.input_space(self.node)) {
            Moved::Bytes(count) => {
                edge.received(self.node, count, clock());
                Read::Some
            }
            Moved::Nothing => Read::Empty,
            Moved::End if self.is_open() => Read::Lost("it closed the connection".to_owned()),
            Moved::Broken if self.is_open() => Read::Lost("the connection broke".to_owned()),
            Moved::End | Moved::Broken => Read::Lost(connect_error(socket.socket_error())),
        }
    }

    /// Has nginx say when there is more; `false` when that failed.
    pub(crate) fn read_on(&self) -> bool {
        let socket = self.socket.as_ref();
        socket.is_none_or(connection::Connection::expect_reading)
    }

    /// Prepares the connected socket, unless that was done; `Ok(true)` if bytes can be sent now.
    ///
    /// # Errors
    /// The reason that it can't be used.
    pub(crate) fn opened(&mut self, tls: Option<&Tls>) -> Result<bool, String> {
        let Some(socket) = self
            .socket
            .as_ref()
            .filter(|_| self.stage == Stage::Opening)
        else {
            return Ok(false);
        };
        match socket.socket_error() {
            0 => {}
            error => return Err(connect_error(error)),
        }
        socket.send_at_once();
        let Some(tls) = tls else {
            self.stage = Stage::Open;
            return Ok(true);
        };
        let secured = socket.secure(tls.context, &tls.name);
        secured.ok_or("there is no memory for TLS")?;
        self.stage = Stage::Securing;
        Ok(false)
    }

    /// Negotiates TLS; `true` when that has ended already.
    pub(crate) fn negotiate(&self) -> bool {
        self.socket
            .as_ref()
            .is_some_and(|socket| !socket.negotiate())
    }

    /// Checks what was negotiated.
    ///
    /// # Errors
    /// When nothing was, or the server is not who it should be.
    pub(crate) fn secured(&mut self, tls: &Tls) -> Result<(), String> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        if !socket.is_secured() {
            return Err("TLS can't be negotiated (the lines before have the reason)".to_owned());
        }
        if tls.verifies {
            match socket.certificate_error() {
                0 => {}
                error => {
                    return Err(format!("its certificate is not trusted (error {error})"));
                }
            }
            if !socket.is_certified_for(&tls.name) {
                let name = tls.name.to_string_lossy();
                return Err(format!("its certificate is not for {name}"));
            }
        }
        socket.listen();
        self.stage = Stage::Open;
        Ok(())
    }

    /// Returns whether bytes may have come that nginx does not announce.
    pub(crate) fn is_readable(&self) -> bool {
        let socket = self.socket.as_ref();
        socket.is_some_and(connection::Connection::is_readable)
    }
}

/// Returns the message for a connection that could not be opened, for the socket's error.
fn connect_error(error: i32) -> String {
    match error {
        0 => "the connection can't be opened".to_owned(),
        error => {
            let text = error_text(error);
            format!("the connection can't be opened ({error}: {text})")
        }
    }
}
