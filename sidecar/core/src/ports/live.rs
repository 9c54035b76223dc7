//! Access of the live feed to the visit queue: it reads and removes nothing.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;

use super::PublishError;

/// Reads the streams that the edge appends visits to. It removes nothing and leaves no trace, so
/// that the processes that store visits don't notice.
#[async_trait]
pub trait VisitTail: Send + Sync {
    /// The number of streams; they are numbered from 0.
    fn streams(&self) -> u16;

    /// Reads the present bounds of each stream.
    async fn bounds(&self) -> Result<Vec<StreamBounds>, PublishError>;

    /// Reads the entries of a stream behind one, at most `most`, the oldest first. Does not wait
    /// for new ones.
    async fn read(
        &self,
        stream: u16,
        after: EntryId,
        most: usize,
    ) -> Result<Vec<TailBatch>, PublishError>;

    /// Lets go of the connection: nothing is read for a while.
    fn close(&self);
}

/// Names an entry of a stream. Later entries have greater names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// The time of the append by Redis' clock, in milliseconds since 1970.
    pub ms: u64,
    /// Its number among those of the same millisecond.
    pub number: u64,
}

impl EntryId {
    /// Reads the name as Redis writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let (ms, number) = text.split_once('-')?;
        Some(Self {
            ms: digits(ms)?,
            number: digits(number)?,
        })
    }

    /// The greatest name before this one; the first one is its own.
    #[must_use]
    pub fn before(self) -> Self {
        match (self.ms, self.number) {
            (ms, number @ 1..) => Self {
                ms,
                number: number - 1,
            },
            (ms @ 1.., 0) => Self {
                ms: ms - 1,
                number: u64::MAX,
            },
            (0, 0) => self,
        }
    }
}

/// Reads a number of digits only, without a sign.
pub fn digits<N: FromStr>(text: &str) -> Option<N> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

/// The bounds of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamBounds {
    /// The first entry that is left; `None` when none is.
    pub first: Option<EntryId>,
    /// The last entry ever appended, even if it was removed.
    pub last: EntryId,
}

/// A batch of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailBatch {
    /// The number of the stream.
    pub stream: u16,
    /// The entry in the stream.
    pub entry: EntryId,
    /// The frames of the events, one behind the other; empty for an entry that is no batch.
    pub frames: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> EntryId {
        EntryId::parse(text).expect("an entry")
    }

    #[test]
    fn names_are_read_as_they_are_written_and_are_in_order() {
        for text in ["0-0", "0-1", "17-0", "17-18446744073709551615", "18-0"] {
            assert_eq!(entry(text).to_string(), text);
        }
        assert!(entry("17-9") < entry("17-10") && entry("17-10") < entry("18-0"));
        for text in [
            "",
            "1",
            "1-",
            "-1",
            "1-2-3",
            "+1-0",
            "1-x",
            "18446744073709551616-0",
        ] {
            assert_eq!(EntryId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn nothing_stands_between_an_entry_and_the_one_before() {
        assert_eq!(entry("5-3").before(), entry("5-2"));
        assert_eq!(entry("5-0").before(), entry("4-18446744073709551615"));
        assert_eq!(entry("0-0").before(), entry("0-0"));
    }
}
