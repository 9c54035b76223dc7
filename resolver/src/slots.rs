//! Slots of a Redis Cluster: which slot a key belongs to, which node has which, and what a node
//! says that does not have one.
//!
//! Source: the Redis Cluster specification.

use vocabulary::KeyPrefix;
use vocabulary::slot::crc16;
pub use vocabulary::slot::{SLOTS, slot_of_tag};

use crate::endpoint::Endpoint;
use crate::key::Key;
use crate::resp::value::{Elements, Value};

/// Computes the slots of keys. Neither a prefix nor a code nor an id has braces, so a key is hashed
/// whole, and the part before the code or id is hashed once.
#[derive(Clone, Copy, Debug)]
pub struct KeySlots {
    of_links: u16,
    of_campaigns: u16,
}

impl KeySlots {
    /// Prepares for keys with a prefix.
    pub fn new(prefix: &KeyPrefix) -> Self {
        let of_prefix = crc16(0, prefix.as_bytes());
        Self {
            of_links: crc16(of_prefix, b"l:"),
            of_campaigns: crc16(of_prefix, b"c:"),
        }
    }

    /// The slot of a link's or a campaign's key.
    #[inline]
    pub fn slot(self, key: &Key) -> u16 {
        let crc = match key {
            Key::Link(code) => crc16(self.of_links, code.as_bytes()),
            Key::Campaign(id) => id.with_text(|text| crc16(self.of_campaigns, text)),
        };
        crc % SLOTS
    }
}

/// Map from slots to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    nodes: Vec<Endpoint>,
    /// For each slot the number of its node, plus one; 0 where no node has it.
    slots: Vec<u16>,
}

impl SlotMap {
    /// Reads the reply to `CLUSTER SLOTS`; `None` when it is not one.
    pub fn parse(aggregate: &[u8]) -> Option<Self> {
        let mut map = Self {
            nodes: Vec::new(),
            slots: vec![0; usize::from(SLOTS)],
        };
        let ranges = Elements::of(aggregate)?;
        let expected = ranges.left();
        let mut read = 0;
        for range in ranges {
            let Value::Sequence(mut range) = range else {
                return None;
            };
            let first = usize::try_from(range.next_number()?).ok()?;
            let last = usize::try_from(range.next_number()?).ok()?;
            let mut master = range.next_sequence()?;
            let host = match master.next()? {
                Value::Text(host) => host,
                Value::Null => b"",
                Value::Sequence(_) => return None,
            };
            let port = u16::try_from(master.next_number()?).ok()?;
            let host = if host == b"?" {
                // The node prefers a name but has none: its address stands behind its id.
                match address_of(&mut master) {
                    Some(address) => address,
                    None => {
                        read += 1;
                        continue;
                    }
                }
            } else {
                host
            };
            let master = Endpoint::new(host, port)?;
            let known = map.nodes.iter().position(|node| *node == master);
            let index = known.unwrap_or_else(|| {
                map.nodes.push(master);
                map.nodes.len() - 1
            });
            let number = u16::try_from(index + 1).ok()?;
            if first > last {
                return None;
            }
            map.slots.get_mut(first..=last)?.fill(number);
            read += 1;
        }
        (read == expected).then_some(map)
    }

    /// The masters.
    pub fn nodes(&self) -> &[Endpoint] {
        &self.nodes
    }

    /// The number of a slot's master among [`SlotMap::nodes`].
    pub fn node(&self, slot: u16) -> Option<usize> {
        let number = *self.slots.get(usize::from(slot))?;
        usize::from(number).checked_sub(1)
    }
}

/// Reads the address of a node from the fields behind its port: its id, and names with values.
fn address_of<'a>(node: &mut Elements<'a>) -> Option<&'a [u8]> {
    let _id = node.next_text()?;
    let mut facts = node.next_sequence()?;
    while let (Some(name), Some(value)) = (facts.next_text(), facts.next()) {
        if let (b"ip", Value::Text(address)) = (name, value) {
            return Some(address);
        }
    }
    None
}

/// Reason for which a node redirects a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectionKind {
    /// The slot belongs to another node.
    Moved,
    /// The slot is on its way to another node, which has this key already.
    Ask,
}

/// Redirection by a node that does not have a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// Reason for it.
    pub kind: RedirectionKind,
    /// The key's slot.
    pub slot: u16,
    /// The node that has it.
    pub to: Endpoint,
}

impl Redirection {
    /// Reads an error; `None` when it is another one.
    pub fn parse(error: &[u8]) -> Option<Self> {
        let mut words = error.splitn(3, |&byte| byte == b' ');
        let kind = match words.next()? {
            b"MOVED" => RedirectionKind::Moved,
            b"ASK" => RedirectionKind::Ask,
            _ => return None,
        };
        let slot = vocabulary::number::parse_decimal(words.next()?)?;
        let slot = u16::try_from(slot).ok().filter(|slot| *slot < SLOTS)?;
        // A question mark stands for a node without a name; the map has to be read then.
        let to = Endpoint::parse(words.next()?).filter(|to| to.host != "?")?;
        Some(Self { kind, slot, to })
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::{CampaignId, Code};

    use super::*;

    #[test]
    fn keys_are_hashed_as_the_specification_says() {
        assert_eq!(crc16(0, b"123456789"), 0x31c3);
        assert_eq!(crc16(0, b"foo") % SLOTS, 12182);
        let prefix = KeyPrefix::new(b"sl:").expect("a prefix");
        let code: Code = "Ab3xK9q2".parse().expect("a code");
        let slot = KeySlots::new(&prefix).slot(&Key::Link(code));
        assert_eq!(slot, crc16(0, b"sl:l:Ab3xK9q2") % SLOTS);
        let id: CampaignId = "4f".parse().expect("an id");
        let slot = KeySlots::new(&prefix).slot(&Key::Campaign(id));
        assert_eq!(slot, crc16(0, b"sl:c:4f") % SLOTS);
    }

    /// As Redis 7.0 sends it over RESP3: masters with a replica and metadata.
    const MAP: &str = "*3\r\n\
        *3\r\n:0\r\n:5460\r\n*4\r\n$9\r\n127.0.0.1\r\n:7001\r\n$2\r\nid\r\n%0\r\n\
        *4\r\n:5461\r\n:10922\r\n*4\r\n$9\r\n127.0.0.1\r\n:7002\r\n$2\r\nid\r\n*0\r\n\
        *4\r\n$9\r\n127.0.0.1\r\n:7004\r\n$2\r\nid\r\n*0\r\n\
        *3\r\n:10923\r\n:16383\r\n*4\r\n_\r\n:7003\r\n$2\r\nid\r\n*2\r\n+hostname\r\n+h\r\n";

    #[test]
    fn maps_are_read() {
        let map = SlotMap::parse(MAP.as_bytes()).expect("a map");
        let shown: Vec<String> = map.nodes().iter().map(Endpoint::to_string).collect();
        assert_eq!(shown, ["127.0.0.1:7001", "127.0.0.1:7002", ":7003"]);
        for (slot, node) in [
            (0, 0),
            (5460, 0),
            (5461, 1),
            (10922, 1),
            (10923, 2),
            (16383, 2),
        ] {
            assert_eq!(map.node(slot), Some(node));
        }
        let unnamed = "*2\r\n*3\r\n:0\r\n:1\r\n*4\r\n$1\r\n?\r\n:1\r\n$2\r\nid\r\n\
            *2\r\n$2\r\nip\r\n$3\r\n::1\r\n*3\r\n:2\r\n:3\r\n*3\r\n+?\r\n:1\r\n+id\r\n";
        let map = SlotMap::parse(unnamed.as_bytes()).expect("a map");
        assert_eq!(map.nodes()[0].to_string(), "[::1]:1");
        assert_eq!((map.node(1), map.node(2)), (Some(0), None));
        let gap = "*1\r\n*3\r\n:5\r\n:6\r\n*2\r\n$1\r\na\r\n:1\r\n";
        let map = SlotMap::parse(gap.as_bytes()).expect("a map");
        assert_eq!(
            (map.node(4), map.node(5), map.node(7)),
            (None, Some(0), None)
        );
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for end in 0..MAP.len() {
            assert_eq!(SlotMap::parse(&MAP.as_bytes()[..end]), None, "{end}");
        }
        for map in [
            "*1\r\n*3\r\n:6\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:65536\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\n \r\n:1\r\n",
            "*1\r\n*2\r\n:0\r\n:1\r\n",
            "*1\r\n:0\r\n",
        ] {
            assert_eq!(SlotMap::parse(map.as_bytes()), None, "{map}");
        }
    }

    #[test]
    fn redirections_are_read() {
        let read = |text: &str| {
            Redirection::parse(text.as_bytes())
                .map(|found| (found.kind, found.slot, found.to.to_string()))
        };
        assert_eq!(
            read("MOVED 3999 127.0.0.1:6381"),
            Some((RedirectionKind::Moved, 3999, "127.0.0.1:6381".to_owned()))
        );
        assert_eq!(
            read("ASK 16383 ::1:7000"),
            Some((RedirectionKind::Ask, 16383, "[::1]:7000".to_owned()))
        );
        assert_eq!(
            read("MOVED 1 :7000"),
            Some((RedirectionKind::Moved, 1, ":7000".to_owned()))
        );
        for text in [
            "MOVED",
            "MOVED 1",
            "MOVED 16384 a:1",
            "MOVED x a:1",
            "ERR 1 a:1",
            "ASK 1 a",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
