//! The answer that a reply from Redis leads to.

use vocabulary::{Found, Record, judge};

pub use vocabulary::judge::{Judgement, MissReason, Ruling};

use crate::resp::Reply;

/// The answer to a request, as far as Redis can give it.
pub type Answer<'a> = judge::Answer<&'a [u8]>;

/// An answer whose target, if it has one, is in a buffer of the edge.
pub(crate) type Expanded = judge::Answer<()>;

/// The beginning of the error for a key of another type: a mistake at this key, while Redis works.
pub(crate) const WRONG_TYPE: &[u8] = b"WRONGTYPE";

/// Reads the reply to a `GET` of a record.
#[inline]
pub fn found<'a>(reply: &Reply<'a>) -> Found<'a> {
    match reply {
        Reply::Bulk(value) => Ok(Record::parse(value)?),
        other => Err(reason_without_record(other)),
    }
}

/// Finds the reason why a reply brings no record.
fn reason_without_record(reply: &Reply<'_>) -> MissReason {
    match reply {
        Reply::Null => MissReason::Absent,
        Reply::Error(message) if message.starts_with(WRONG_TYPE) => MissReason::Unreadable,
        Reply::Error(_) => MissReason::Error,
        Reply::Bulk(_)
        | Reply::Oversized(_)
        | Reply::Line(_)
        | Reply::Aggregate(_)
        | Reply::Invalidated(_)
        | Reply::InvalidatedAll
        | Reply::Push(_) => MissReason::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_replies_are_misses_by_their_reason() {
        for (reply, reason) in [
            (Reply::Null, MissReason::Absent),
            (Reply::Bulk(b"no record"), MissReason::Unreadable),
            (
                Reply::Error(b"WRONGTYPE Operation against a key"),
                MissReason::Unreadable,
            ),
            (Reply::Error(b"LOADING Redis is loading"), MissReason::Error),
            (Reply::Oversized(1 << 20), MissReason::Unreadable),
            (Reply::Line(b"OK"), MissReason::Unreadable),
        ] {
            assert_eq!(found(&reply), Err(reason), "{reply:?}");
        }
    }
}
