//! Cursors: where a listing goes on, as a text that means nothing to a client.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use vocabulary::Code;

use crate::core::ports::{KeyPosition, Position};

/// What a cursor begins with before it is encoded, so that another form can come later.
const VERSION: &str = "1";

/// Writes a cursor.
pub(super) fn encode(position: &Position) -> String {
    let Position { created_at, code } = position;
    URL_SAFE_NO_PAD.encode(format!("{VERSION}.{}.{code}", created_at.as_millisecond()))
}

/// Reads a cursor; `None` when [`encode`] has not made it.
pub(super) fn decode(cursor: &str) -> Option<Position> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let text = std::str::from_utf8(&bytes).ok()?;
    let (version, rest) = text.split_once('.')?;
    let (millisecond, code) = rest.split_once('.')?;
    if version != VERSION {
        return None;
    }
    Some(Position {
        created_at: Timestamp::from_millisecond(millisecond.parse().ok()?).ok()?,
        code: Code::parse(code.as_bytes()).ok()?,
    })
}

/// What cursors of other listings begin with: none of them is a cursor of another listing.
const HISTORY_VERSION: &str = "h1";
const KEYS_VERSION: &str = "k1";
const AUDIT_VERSION: &str = "a1";
const VISIT_VERSION: &str = "v1";

/// Writes a cursor of a history: behind the change that left a revision behind.
pub(super) fn encode_revision(revision: u64) -> String {
    URL_SAFE_NO_PAD.encode(format!("{HISTORY_VERSION}.{revision}"))
}

/// Reads a cursor of a history; `None` when [`encode_revision`] has not made it.
pub(super) fn decode_revision(cursor: &str) -> Option<u64> {
    versioned(cursor, HISTORY_VERSION)?.parse().ok()
}

/// Writes a cursor of keys.
pub(super) fn encode_key(position: &KeyPosition) -> String {
    let KeyPosition { created_at, id } = position;
    let millisecond = created_at.as_millisecond();
    URL_SAFE_NO_PAD.encode(format!("{KEYS_VERSION}.{millisecond}.{id}"))
}

/// Reads a cursor; `None` when [`encode_key`] has not made it.
pub(super) fn decode_key(cursor: &str) -> Option<KeyPosition> {
    let rest = versioned(cursor, KEYS_VERSION)?;
    let (millisecond, id) = rest.split_once('.')?;
    Some(KeyPosition {
        created_at: Timestamp::from_millisecond(millisecond.parse().ok()?).ok()?,
        id: id.to_owned(),
    })
}

/// Writes a cursor of the audit log: behind the entry with this number.
pub(super) fn encode_audit(id: i64) -> String {
    URL_SAFE_NO_PAD.encode(format!("{AUDIT_VERSION}.{id}"))
}

/// Reads a cursor; `None` when [`encode_audit`] has not made it.
pub(super) fn decode_audit(cursor: &str) -> Option<i64> {
    versioned(cursor, AUDIT_VERSION)?.parse().ok()
}

/// Writes a cursor of visits: behind the visit with this number.
pub(super) fn encode_visit(number: i64) -> String {
    URL_SAFE_NO_PAD.encode(format!("{VISIT_VERSION}.{number}"))
}

/// Reads a cursor; `None` when [`encode_visit`] has not made it.
pub(super) fn decode_visit(cursor: &str) -> Option<i64> {
    versioned(cursor, VISIT_VERSION)?.parse().ok()
}

/// What follows the version that a cursor must begin with.
fn versioned(cursor: &str, version: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (found, rest) = text.split_once('.')?;
    (found == version).then(|| rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listing_has_cursors_of_its_own() {
        let created_at = Timestamp::from_millisecond(1_767_225_600_123).expect("a moment");
        let of_links = encode(&Position {
            created_at,
            code: "abc".parse().expect("a code"),
        });
        let position = KeyPosition {
            created_at,
            id: "abc".to_owned(),
        };
        let of_keys = encode_key(&position);
        let of_audit = encode_audit(7);
        assert_eq!(decode_key(&of_keys), Some(position));
        assert_eq!(decode_audit(&of_audit), Some(7));
        assert_eq!((decode(&of_keys), decode(&of_audit)), (None, None));
        assert_eq!((decode_key(&of_links), decode_key(&of_audit)), (None, None));
        assert_eq!(
            (decode_audit(&of_links), decode_audit(&of_keys)),
            (None, None)
        );
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for millisecond in [0, 1, 1_767_225_600_123] {
            for code in ["a", "Ab3xK9qY", "0123456789ABCDEF"] {
                let position = Position {
                    created_at: Timestamp::from_millisecond(millisecond).expect("a moment"),
                    code: code.parse().expect("a code"),
                };
                assert_eq!(decode(&encode(&position)), Some(position));
            }
        }
    }

    #[test]
    fn a_cursor_of_a_history_is_read_as_it_was_written_and_is_none_of_a_listing() {
        for revision in [0, 1, u64::MAX] {
            let cursor = encode_revision(revision);
            assert_eq!(decode_revision(&cursor), Some(revision));
            assert_eq!(decode(&cursor), None);
        }
        for text in ["", "h1", "h1.", "h1.x", "h1.-1", "h2.1", "1.5.abc"] {
            assert_eq!(
                decode_revision(&URL_SAFE_NO_PAD.encode(text)),
                None,
                "{text}"
            );
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
            "1.5.a-c",
            "1.5.abc.d",
            "1.99999999999999999999.abc",
            "1.9223372036854775807.abc",
            "1.5.0123456789ABCDEFG",
        ] {
            assert_eq!(decode(&URL_SAFE_NO_PAD.encode(text)), None, "{text}");
        }
        for text in ["not base64!", "MS41LmFiYw==", "/w", "_w"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
