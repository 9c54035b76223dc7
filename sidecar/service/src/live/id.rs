//! Position of a visit in the feed, from which a listener can resume.

use std::fmt;

use shortlink_core::ports::{EntryId, digits};

/// Position of a visit. Its text is `<stream>:<entry>:<place>:<rest>`, such as
/// `0:1767225600123-0:3:2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveId {
    /// Index of the stream.
    pub stream: u16,
    /// Id of the entry in the stream.
    pub entry: EntryId,
    /// Index in the entry's batch, from 0.
    pub place: u32,
    /// Number of visits behind it in the batch. At 0, a listener misses nothing when the entry is
    /// gone.
    pub rest: u32,
}

impl LiveId {
    /// Parses the text; `None` when it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let id = Self {
            stream: digits(parts.next()?)?,
            entry: EntryId::parse(parts.next()?)?,
            place: digits(parts.next()?)?,
            rest: digits(parts.next()?)?,
        };
        parts.next().is_none().then_some(id)
    }
}

impl fmt::Display for LiveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stream,
            entry,
            place,
            rest,
        } = self;
        write!(f, "{stream}:{entry}:{place}:{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for text in ["0:1767225600123-0:3:2", "1023:0-1:0:0"] {
            let id = LiveId::parse(text).expect("an id");
            assert_eq!(id.to_string(), text);
        }
        for text in [
            "",
            "0",
            "0:1-0",
            "0:1-0:3",
            "0:1-0:3:2:1",
            "0:1:3:2",
            "65536:1-0:3:2",
            "0:1-0:+3:2",
            "0:1-0:3:-2",
            "0:1-0:4294967296:0",
            " 0:1-0:3:2",
        ] {
            assert_eq!(LiveId::parse(text), None, "{text}");
        }
    }
}
