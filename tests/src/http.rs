//! A client that sees and sends every byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The longest silence of a server.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers as they were received.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// The values of all headers of a name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let same = |known: &str| known.eq_ignore_ascii_case(name);
        let found = self.headers.iter().filter(|(known, _)| same(known));
        found.map(|(_, value)| value.as_str()).collect()
    }

    /// The header `Location`.
    pub fn location(&self) -> Option<&str> {
        self.header("Location")
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", String::from_utf8_lossy(&self.body)))
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects to a port of loopback.
    ///
    /// # Errors
    /// When no server listens there.
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Returns whether the other side has closed it, as far as that shows without sending anything.
    ///
    /// # Errors
    /// When the system reports an error.
    pub fn is_closed(&self) -> io::Result<bool> {
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true)?;
        let looked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        Ok(match looked {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        })
    }

    /// Lets the server be silent for so long.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(patience))
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads the answer to a request with this method, or an interim one (1xx) before it; `None`
    /// when the connection was closed before its first byte.
    ///
    /// # Errors
    /// When the connection breaks within it, or it is no HTTP.
    pub fn receive(&mut self, method: &str) -> io::Result<Option<Response>> {
        let Some(mut response) = self.receive_head()? else {
            return Ok(None);
        };
        if method != "HEAD" && !matches!(response.status, 100..200 | 204 | 304) {
            response.body = self.receive_body(&response)?;
        }
        Ok(Some(response))
    }

    /// Reads the answer up to its body; `None` when the connection was closed before its first
    /// byte.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_head(&mut self) -> io::Result<Option<Response>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status in {line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                break;
            }
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| io::Error::other("a header without colon"))?;
            headers.push((name.to_owned(), value.trim_start().to_owned()));
        }
        Ok(Some(Response {
            status,
            headers,
            body: Vec::new(),
        }))
    }

    /// Reads a chunk of a body that comes in chunks; an empty one is its end.
    ///
    /// # Errors
    /// When the connection breaks, or is silent for too long, or it is no chunk.
    pub fn receive_chunk(&mut self) -> io::Result<Vec<u8>> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim_end(), 16)
            .map_err(|error| io::Error::other(format!("{error} in {line:?}")))?;
        let mut chunk = vec![0; length];
        self.stream.read_exact(&mut chunk)?;
        self.stream.read_line(&mut String::new())?;
        Ok(chunk)
    }

    /// Reads until the other side closes.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn receive_all(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads until the other side closes or the connection breaks, and returns what has come.
    pub fn receive_what_comes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Bytes that were read before an error stay.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }

    fn receive_body(&mut self, response: &Response) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if response.header("Transfer-Encoding") == Some("chunked") {
            loop {
                let chunk = self.receive_chunk()?;
                if chunk.is_empty() {
                    return Ok(body);
                }
                body.extend(chunk);
            }
        }
        match response.header("Content-Length") {
            Some(length) => {
                let length = length
                    .parse()
                    .map_err(|_| io::Error::other("a Content-Length without number"))?;
                body.resize(length, 0);
                self.stream.read_exact(&mut body)?;
            }
            None => {
                self.stream.read_to_end(&mut body)?;
            }
        }
        Ok(body)
    }
}

/// Writes a request; the host is `localhost` unless a header sets another one.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("Host"))
    {
        text.push_str("Host: localhost\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}

/// Sends one request over a new connection.
///
/// # Errors
/// When there is no answer.
pub fn try_send(port: u16, method: &str, bytes: &[u8]) -> io::Result<Response> {
    let mut connection = Connection::open(port)?;
    connection.send(bytes)?;
    connection
        .receive(method)?
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Sends one request over a new connection.
///
/// # Panics
/// When there is no answer.
pub fn send(port: u16, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    try_send(port, method, &request(method, path, headers, b""))
        .unwrap_or_else(|error| panic!("{method} {path} on port {port}: {error}"))
}

/// Asks with GET over a new connection.
///
/// # Panics
/// When there is no answer.
pub fn get(port: u16, path: &str) -> Response {
    send(port, "GET", path, &[])
}
