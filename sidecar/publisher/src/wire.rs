//! A plain connection to one server, for commands by the thousand.
//!
//! Commands are written into one buffer and leave together; replies are read in place. A library
//! makes several allocations of each command and each reply, which is most of the time that a
//! rebuild would take. The protocol is RESP2.

use std::io;

use redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use vocabulary::number::push_decimal;

use super::servers::Address;

/// The number of bytes per read.
const CHUNK: usize = 64 << 10;

/// The longest reply that is taken: no record and no page of keys is nearly as long.
const LONGEST_REPLY: usize = 64 << 20;

/// A reply, where it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    /// A line such as `OK`.
    Simple(&'a [u8]),
    /// An error.
    Error(&'a [u8]),
    /// A whole number.
    Integer(i64),
    /// A text; `None` for none.
    Bulk(Option<&'a [u8]>),
    /// Several replies.
    Array(Vec<Reply<'a>>),
}

/// Commands that leave together.
#[derive(Debug, Default)]
pub(super) struct Commands {
    bytes: Vec<u8>,
    count: usize,
}

impl Commands {
    /// Adds a command of so many words, which follow through [`Commands::word`].
    pub(super) fn begin(&mut self, words: u64) {
        self.bytes.push(b'*');
        push_decimal(&mut self.bytes, words);
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
    }

    /// Adds a word, given in parts.
    pub(super) fn word(&mut self, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.push(b'$');
        push_decimal(&mut self.bytes, length as u64);
        self.bytes.extend_from_slice(b"\r\n");
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds a command of words that are known whole.
    pub(super) fn command(&mut self, words: &[&[u8]]) {
        self.begin(words.len() as u64);
        for word in words {
            self.word(&[word]);
        }
    }

    /// The number of commands.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The commands one by one: their words, and the command as it is packed.
    pub(super) fn each(&self) -> impl Iterator<Item = (Vec<&[u8]>, &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (reply, length) = parse(rest).ok()??;
            let (packed, others) = rest.split_at(length);
            rest = others;
            let Reply::Array(words) = reply else {
                return None;
            };
            let words = words.into_iter().filter_map(|word| match word {
                Reply::Bulk(word) => word,
                _ => None,
            });
            Some((words.collect(), packed))
        })
    }

    /// Adds a command that is packed already.
    pub(super) fn packed(&mut self, command: &[u8]) {
        self.bytes.extend_from_slice(command);
        self.count += 1;
    }
}

async fn open(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// An open connection.
pub(super) struct Wire {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Bytes that are read but not yet parsed.
    input: Vec<u8>,
}

impl Wire {
    /// Connects to a server with a user, a password and a database.
    pub(super) async fn connect(address: &Address) -> io::Result<Self> {
        let (reader, writer): (
            Box<dyn AsyncRead + Send + Unpin>,
            Box<dyn AsyncWrite + Send + Unpin>,
        ) = match (address.info.addr(), &address.tls) {
            (ConnectionAddr::Tcp(host, port), _) => {
                let (reader, writer) = open(host, *port).await?.into_split();
                (Box::new(reader), Box::new(writer))
            }
            (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
                let stream = tls.secure(host, open(host, *port).await?).await?;
                let (reader, writer) = tokio::io::split(stream);
                (Box::new(reader), Box::new(writer))
            }
            (ConnectionAddr::Unix(path), _) => {
                let (reader, writer) = UnixStream::connect(path).await?.into_split();
                (Box::new(reader), Box::new(writer))
            }
            _ => return Err(io::Error::other("there is no way to such an address")),
        };
        let settings = address.info.redis_settings();
        let mut wire = Self {
            reader,
            writer,
            input: Vec::with_capacity(CHUNK),
        };
        let mut greeting = Commands::default();
        if let Some(password) = settings.password() {
            match settings.username() {
                Some(user) => {
                    greeting.command(&[b"AUTH", user.as_bytes(), password.as_bytes()]);
                }
                None => greeting.command(&[b"AUTH", password.as_bytes()]),
            }
        }
        if settings.db() != 0 {
            greeting.command(&[b"SELECT", settings.db().to_string().as_bytes()]);
        }
        wire.exchange(&greeting, |_, reply| match reply {
            Reply::Error(error) => Err(refused(error)),
            _ => Ok(()),
        })
        .await?;
        Ok(wire)
    }

    /// Sends commands and hands over each reply with the place of its command. After an error the
    /// connection is of no more use.
    pub(super) async fn exchange(
        &mut self,
        commands: &Commands,
        mut each: impl FnMut(usize, Reply<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let Self {
            reader,
            writer,
            input,
        } = self;
        // Both at once: a server that can't get rid of its replies reads no more commands.
        let write = async {
            writer.write_all(&commands.bytes).await?;
            writer.flush().await
        };
        let read = async {
            let mut place = 0;
            while place < commands.count {
                let mut start = 0;
                while place < commands.count
                    && let Some((reply, length)) = parse(&input[start..])?
                {
                    each(place, reply)?;
                    start += length;
                    place += 1;
                }
                input.drain(..start);
                if place == commands.count {
                    break;
                }
                if input.len() > LONGEST_REPLY {
                    return Err(io::Error::other("a reply has no end"));
                }
                input.reserve(CHUNK);
                if reader.read_buf(input).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Ok(())
        };
        tokio::try_join!(write, read).map(|_| ())
    }
}

/// An error that the server has answered with.
pub(super) fn refused(error: &[u8]) -> io::Error {
    io::Error::other(String::from_utf8_lossy(error).into_owned())
}

/// A reply of another kind than the command has.
pub(super) fn unexpected(reply: &Reply<'_>) -> io::Error {
    match reply {
        Reply::Error(error) => refused(error),
        _ => io::Error::other("the server's answer does not fit the request"),
    }
}

/// The deepest nesting of arrays: `SCAN` has two levels.
const DEEPEST: usize = 4;

/// Reads the reply that begins a text, and how many bytes it has; `None` when it has not ended.
fn parse(text: &[u8]) -> io::Result<Option<(Reply<'_>, usize)>> {
    parse_at(text, 0, DEEPEST)
}

fn parse_at(text: &[u8], start: usize, depth: usize) -> io::Result<Option<(Reply<'_>, usize)>> {
    let malformed = || io::Error::other("the server does not speak RESP");
    let Some(&kind) = text.get(start) else {
        return Ok(None);
    };
    let rest = &text[start + 1..];
    let Some(length) = rest.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let line = &rest[..length];
    let end = start + 1 + length + 2;
    let number = || -> io::Result<i64> {
        let line = std::str::from_utf8(line).map_err(|_error| malformed())?;
        line.parse().map_err(|_error| malformed())
    };
    let reply = match kind {
        b'+' => Reply::Simple(line),
        b'-' => Reply::Error(line),
        b':' => Reply::Integer(number()?),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Reply::Bulk(None),
            Ok(length) if length > LONGEST_REPLY => return Err(malformed()),
            Ok(length) => {
                let Some(bulk) = text.get(end..end + length + 2) else {
                    return Ok(None);
                };
                return Ok(Some((Reply::Bulk(Some(&bulk[..length])), end + length + 2)));
            }
        },
        b'*' => {
            let count = usize::try_from(number()?).unwrap_or_default();
            if depth == 0 || count > LONGEST_REPLY {
                return Err(malformed());
            }
            let (mut elements, mut end) = (Vec::new(), end);
            for _ in 0..count {
                let Some((element, next)) = parse_at(text, end, depth - 1)? else {
                    return Ok(None);
                };
                elements.push(element);
                end = next;
            }
            return Ok(Some((Reply::Array(elements), end)));
        }
        _ => return Err(malformed()),
    };
    Ok(Some((reply, end)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REPLIES: &[u8] =
        b"+OK\r\n$-1\r\n$5\r\na\r\nbc\r\n:-3\r\n-ERR no\r\n*2\r\n$1\r\n7\r\n*1\r\n$0\r\n\r\n";

    #[test]
    fn replies_are_read_wherever_they_are_cut() {
        for cut in 0..REPLIES.len() {
            let mut seen = Vec::new();
            let mut start = 0;
            while let Some((reply, length)) = parse(&REPLIES[start..cut]).expect("RESP") {
                seen.push(format!("{reply:?}"));
                start += length;
            }
            assert!(seen.len() < 6, "{cut}");
        }
        let mut start = 0;
        let mut seen = Vec::new();
        while let Some((reply, length)) = parse(&REPLIES[start..]).expect("RESP") {
            seen.push(reply);
            start += length;
        }
        assert_eq!(
            seen,
            [
                Reply::Simple(b"OK"),
                Reply::Bulk(None),
                Reply::Bulk(Some(b"a\r\nbc")),
                Reply::Integer(-3),
                Reply::Error(b"ERR no"),
                Reply::Array(vec![
                    Reply::Bulk(Some(b"7")),
                    Reply::Array(vec![Reply::Bulk(Some(b""))])
                ]),
            ]
        );
        assert!(parse(b"HTTP/1.1 400\r\n").is_err());
        assert!(parse(b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n").is_err());
    }

    #[test]
    fn commands_are_packed_as_resp_has_them() {
        let mut commands = Commands::default();
        commands.begin(2);
        commands.word(&[b"GET"]);
        commands.word(&[b"sl:", b"l:", b"abc"]);
        commands.command(&[b"PING"]);
        assert_eq!(commands.count, 2);
        assert_eq!(
            commands.bytes,
            b"*2\r\n$3\r\nGET\r\n$8\r\nsl:l:abc\r\n*1\r\n$4\r\nPING\r\n"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_bytes_like_replies_make_it_panic(text in "[-+:$*0-9a\r\n]{0,80}") {
            let _ = parse(text.as_bytes());
        }
    }
}
