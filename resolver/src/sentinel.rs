//! Reports of servers and sentinels about the master.
//!
//! Source: the Redis documentation of `ROLE` and of the sentinels' commands and events.

use crate::endpoint::Endpoint;
use crate::resp::value::{Elements, Value};

/// The most sentinels that are read from one reply.
const MAX_SENTINELS: usize = 64;

/// Role that a server reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Master,
    /// It follows a master.
    Replica {
        /// Set while its copy is being updated.
        is_connected: bool,
    },
    /// It is no server of data.
    Sentinel,
}

impl Role {
    /// Reads the reply to `ROLE`; `None` when it is not understood.
    pub fn parse(aggregate: &[u8]) -> Option<Self> {
        let mut elements = Elements::of(aggregate)?;
        match elements.next_text()? {
            b"master" => Some(Self::Master),
            b"sentinel" => Some(Self::Sentinel),
            b"slave" => {
                let _host = elements.next_text()?;
                let _port = elements.next_number()?;
                let state = elements.next_text()?;
                Some(Self::Replica {
                    is_connected: state == b"connected",
                })
            }
            _ => None,
        }
    }
}

/// Reads the reply to `SENTINEL GET-MASTER-ADDR-BY-NAME`.
pub fn master_reply(aggregate: &[u8]) -> Option<Endpoint> {
    let mut elements = Elements::of(aggregate)?;
    endpoint(elements.next_text()?, elements.next_number()?)
}

/// Reads the reply to `SENTINEL SENTINELS`: where the other sentinels listen.
pub fn sentinels_reply(aggregate: &[u8]) -> Vec<Endpoint> {
    let sentinels = Elements::of(aggregate).into_iter().flatten();
    let endpoints = sentinels.filter_map(|sentinel| {
        let Value::Sequence(mut fields) = sentinel else {
            return None;
        };
        let (mut host, mut port) = (None, None);
        while let (Some(name), Some(value)) = (fields.next_text(), fields.next()) {
            match (name, value) {
                (b"ip", Value::Text(text)) => host = Some(text),
                (b"port", Value::Text(text)) => port = vocabulary::number::parse_decimal(text),
                _ => {}
            }
        }
        endpoint(host?, port?)
    });
    endpoints.take(MAX_SENTINELS).collect()
}

/// Reads a sentinel's push: the new master of the group, if it names one.
pub fn switch_master(push: &[u8], master_name: &str) -> Option<Endpoint> {
    let mut elements = Elements::of(push)?;
    if elements.next_text()? != b"message" || elements.next_text()? != b"+switch-master" {
        return None;
    }
    let mut words = elements.next_text()?.split(|&byte| byte == b' ');
    if words.next()? != master_name.as_bytes() {
        return None;
    }
    let (_old_host, _old_port) = (words.next()?, words.next()?);
    let host = words.next()?;
    endpoint(host, vocabulary::number::parse_decimal(words.next()?)?)
}

fn endpoint(host: &[u8], port: u64) -> Option<Endpoint> {
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    Endpoint::new(host, port).filter(|endpoint| !endpoint.host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read() {
        let role = |text: &str| Role::parse(text.as_bytes());
        assert_eq!(
            role("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"),
            Some(Role::Master)
        );
        for (state, is_connected) in [("connected", true), ("connect", false), ("sync", false)] {
            let text = format!(
                "*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:6379\r\n${}\r\n{state}\r\n:-1\r\n",
                state.len()
            );
            assert_eq!(role(&text), Some(Role::Replica { is_connected }));
        }
        assert_eq!(
            role("*2\r\n$8\r\nsentinel\r\n*1\r\n$1\r\nm\r\n"),
            Some(Role::Sentinel)
        );
        for text in [
            "*0\r\n",
            "*1\r\n$5\r\nslave\r\n",
            "*1\r\n$3\r\nfoo\r\n",
            "+OK\r\n",
        ] {
            assert_eq!(role(text), None, "{text}");
        }
    }

    #[test]
    fn masters_and_sentinels_are_read() {
        let master = master_reply(b"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6380\r\n").expect("a master");
        assert_eq!(master.to_string(), "127.0.0.1:6380");
        for text in [
            "*0\r\n",
            "*2\r\n$0\r\n\r\n$1\r\n1\r\n",
            "*2\r\n$1\r\na\r\n$1\r\n0\r\n",
        ] {
            assert_eq!(master_reply(text.as_bytes()), None, "{text}");
        }
        let reply = "*3\r\n%2\r\n+ip\r\n+10.0.0.1\r\n+port\r\n+26379\r\n\
            *6\r\n+name\r\n+x\r\n+port\r\n+26380\r\n+ip\r\n+10.0.0.2\r\n%1\r\n+ip\r\n+10.0.0.3\r\n";
        let shown: Vec<String> = sentinels_reply(reply.as_bytes())
            .iter()
            .map(Endpoint::to_string)
            .collect();
        assert_eq!(shown, ["10.0.0.1:26379", "10.0.0.2:26380"]);
    }

    #[test]
    fn a_new_master_is_read() {
        let push = |channel: &str, text: &str| {
            format!(
                ">3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n{text}\r\n",
                channel.len(),
                text.len()
            )
        };
        let read = |push: String| switch_master(push.as_bytes(), "main").map(|e| e.to_string());
        let text = "main 10.0.0.1 6379 10.0.0.2 6380";
        assert_eq!(
            read(push("+switch-master", text)),
            Some("10.0.0.2:6380".to_owned())
        );
        assert_eq!(read(push("+sdown", text)), None);
        assert_eq!(
            read(push("+switch-master", "other 10.0.0.1 6379 10.0.0.2 6380")),
            None
        );
        assert_eq!(read(push("+switch-master", "main 10.0.0.1 6379")), None);
        assert_eq!(read(">1\r\n$9\r\nsubscribe\r\n".to_owned()), None);
    }
}
