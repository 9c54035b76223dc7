//! Cursors: where a listing goes on, as a text that means nothing to a client.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use vocabulary::Code;

use crate::domain::ports::Position;

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

/// What a cursor of a history begins with before it is encoded.
const HISTORY_VERSION: &str = "h1";

/// Writes a cursor of a history: behind the change that left a revision behind.
pub(super) fn encode_revision(revision: u64) -> String {
    URL_SAFE_NO_PAD.encode(format!("{HISTORY_VERSION}.{revision}"))
}

/// Reads a cursor of a history; `None` when [`encode_revision`] has not made it.
pub(super) fn decode_revision(cursor: &str) -> Option<u64> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let text = std::str::from_utf8(&bytes).ok()?;
    let (version, revision) = text.split_once('.')?;
    if version != HISTORY_VERSION {
        return None;
    }
    revision.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
