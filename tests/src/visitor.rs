//! A client that asks for one thing after the other over a connection that it keeps.

use std::io;

use crate::http::{Connection, Response, request};

/// Asks a port of loopback. A connection that the server has closed meanwhile is opened again, so
/// it is for requests that may be sent twice.
#[derive(Debug)]
pub struct Visitor {
    port: u16,
    connection: Option<Connection>,
}

impl Visitor {
    /// Does not connect yet.
    pub fn new(port: u16) -> Self {
        Self {
            port,
            connection: None,
        }
    }

    /// Asks with GET.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Response {
        let bytes = request("GET", path, headers, b"");
        let is_kept = self.connection.is_some();
        let answer = match self.ask(&bytes) {
            Err(_closed) if is_kept => self.ask(&bytes),
            answer => answer,
        };
        answer.unwrap_or_else(|error| panic!("GET {path} on port {}: {error}", self.port))
    }

    fn ask(&mut self, bytes: &[u8]) -> io::Result<Response> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(self.port)?,
        };
        connection.send(bytes)?;
        let answer = connection.receive("GET")?;
        let answer = answer.ok_or(io::ErrorKind::UnexpectedEof)?;
        if answer.header("Connection") != Some("close") {
            self.connection = Some(connection);
        }
        Ok(answer)
    }
}
