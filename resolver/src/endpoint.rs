//! Endpoints of servers: a host and a port.

use std::fmt;

/// The most bytes that a host's name has.
const LONGEST_HOST: usize = 253;

/// A host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// A name, or an address without brackets. Empty where a server does not know its own.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// Takes a host and a port as a server reports them; `None` if the host is malformed. An empty
    /// host is accepted.
    pub fn new(host: &[u8], port: u16) -> Option<Self> {
        let is_host = host.len() <= LONGEST_HOST && host.iter().all(u8::is_ascii_graphic);
        let host = std::str::from_utf8(host).ok().filter(|_| is_host)?;
        Some(Self {
            host: host.to_owned(),
            port,
        })
    }

    /// Reads `host:port` as Redis writes it, an IPv6 address with or without brackets.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let colon = text.iter().rposition(|&byte| byte == b':')?;
        let (host, port) = (&text[..colon], &text[colon + 1..]);
        let port = vocabulary::number::parse_decimal(port)?;
        let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
        let bare = host.strip_prefix(b"[").and_then(|h| h.strip_suffix(b"]"));
        Self::new(bare.unwrap_or(host), port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only an IPv6 address has colons.
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read_and_shown() {
        for (text, shown) in [
            ("127.0.0.1:6379", "127.0.0.1:6379"),
            ("redis-1.example:1", "redis-1.example:1"),
            ("::1:7000", "[::1]:7000"),
            ("[::1]:7000", "[::1]:7000"),
            (":7000", ":7000"),
        ] {
            let endpoint = Endpoint::parse(text.as_bytes()).expect(text);
            assert_eq!(endpoint.to_string(), shown);
        }
        for text in [
            "", "a", "a:", "a:0", "a:65536", "a:x", "a b:1", "\u{e9}:1", "a:-1",
        ] {
            assert_eq!(Endpoint::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Endpoint::new(&[b'a'; 254], 1), None);
    }
}
