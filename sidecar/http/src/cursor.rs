//! Cursors: positions in listings, opaque to clients.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use super::problem::Problem;

/// Prefixes of cursors. Each listing has its own, so that it rejects cursors of other listings.
pub(super) const LINKS: &str = "1";
pub(super) const HISTORY: &str = "h1";
pub(super) const KEYS: &str = "k1";
pub(super) const PEOPLE: &str = "p1";
pub(super) const AUDIT: &str = "a1";
pub(super) const VISITS: &str = "v1";
pub(super) const JOBS: &str = "j1";
pub(super) const RECIPIENTS: &str = "r1";
pub(super) const FEED: &str = "f1";
pub(super) const ATTEMPTS: &str = "w1";

/// An item of a listing by time: its moment and its code or id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dated<T>(pub(super) Timestamp, pub(super) T);

impl<T: Display> Display for Dated<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0.as_millisecond(), self.1)
    }
}

impl<T: FromStr> FromStr for Dated<T> {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (millisecond, rest) = text.split_once('.').ok_or(())?;
        let millisecond = millisecond.parse().map_err(|_error| ())?;
        let moment = Timestamp::from_millisecond(millisecond).map_err(|_error| ())?;
        Ok(Self(moment, rest.parse().map_err(|_error| ())?))
    }
}

/// Encodes the position after an item of a listing.
pub(super) fn encode(prefix: &str, item: impl Display) -> String {
    URL_SAFE_NO_PAD.encode(format!("{prefix}.{item}"))
}

/// Reads a cursor of a listing, if a request has one.
pub(super) fn decode<T: FromStr>(
    prefix: &str,
    cursor: Option<String>,
) -> Result<Option<T>, Problem> {
    let item = |cursor| {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (found, item) = std::str::from_utf8(&bytes).ok()?.split_once('.')?;
        (found == prefix).then(|| item.parse().ok())?
    };
    let item = cursor.map(|cursor| item(cursor).ok_or_else(Problem::cursor));
    item.transpose()
}

#[cfg(test)]
mod tests {
    use vocabulary::Code;

    use super::*;

    fn read<T: FromStr>(prefix: &str, cursor: &str) -> Option<T> {
        decode(prefix, Some(cursor.to_owned())).ok().flatten()
    }

    fn read_link(cursor: &str) -> Option<Dated<Code>> {
        read(LINKS, cursor)
    }

    #[test]
    fn every_listing_has_cursors_of_its_own() {
        let moment = Timestamp::from_millisecond(1_767_225_600_123).expect("a moment");
        let item = Dated(moment, "abc".to_owned());
        let prefixes = [LINKS, HISTORY, KEYS, AUDIT, VISITS, FEED, ATTEMPTS];
        for prefix in prefixes {
            for other in prefixes {
                let is_same = prefix == other;
                let dated = read(prefix, &encode(other, &item));
                assert_eq!(dated, is_same.then(|| item.clone()), "{prefix} {other}");
                let number = read(prefix, &encode(other, 7));
                assert_eq!(number, is_same.then_some(7), "{prefix} {other}");
            }
        }
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for millisecond in [0, 1, 1_767_225_600_123] {
            for code in ["a", "Ab3xK9qY", "0123456789ABCDEF"] {
                let moment = Timestamp::from_millisecond(millisecond).expect("a moment");
                let item = Dated(moment, code.parse().expect("a code"));
                assert_eq!(read_link(&encode(LINKS, &item)), Some(item));
            }
        }
        let of_earlier_versions = "MS4xNzY3MjI1NjAwMTIzLmFiYw";
        let moment = Timestamp::from_millisecond(1_767_225_600_123).expect("a moment");
        let item = Dated(moment, "abc".parse().expect("a code"));
        assert_eq!(read_link(of_earlier_versions), Some(item));
    }

    #[test]
    fn a_cursor_of_a_history_is_read_as_it_was_written_and_is_none_of_a_listing() {
        for revision in [0, 1, u64::MAX] {
            let cursor = encode(HISTORY, revision);
            assert_eq!(read(HISTORY, &cursor), Some(revision));
            assert_eq!(read_link(&cursor), None);
        }
        for text in ["", "h1", "h1.", "h1.x", "h1.-1", "h2.1", "1.5.abc"] {
            let read = read::<u64>(HISTORY, &URL_SAFE_NO_PAD.encode(text));
            assert_eq!(read, None, "{text}");
        }
    }

    #[test]
    fn nothing_else_is_a_cursor() {
        for text in [
            "",
            "1",
            "1.5",
            "1.5.",
            "2.5.abc",
            "1.x.abc",
            "1.5.a+c",
            "1.5.abc.d",
            "1.99999999999999999999.abc",
            "1.9223372036854775807.abc",
            &format!("1.5.{}", "0".repeat(65)),
        ] {
            assert_eq!(read_link(&URL_SAFE_NO_PAD.encode(text)), None, "{text}");
        }
        for text in ["not base64!", "MS41LmFiYw==", "/w", "_w"] {
            assert_eq!(read_link(text), None, "{text}");
        }
    }
}
