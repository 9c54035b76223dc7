//! What a reply from Redis means for the visitor.

use vocabulary::{Phase, Record, RedirectStatus, target};

use crate::resp::Reply;

/// The answer to a request, as far as Redis can give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The visitor is sent on.
    Redirect {
        /// How.
        status: RedirectStatus,
        /// Where to: checked again to be servable.
        target: &'a [u8],
    },
    /// The link was revoked or has expired: 410.
    Gone,
    /// SQL was asked a moment ago and knows no such link: 404.
    Unknown,
    /// Redis can't tell: the fallback is asked.
    Miss(MissReason),
}

/// Why Redis can't tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissReason {
    /// There is no record.
    Absent,
    /// There is a value, but it is no record that this version reads, or its target may not be
    /// served.
    Unreadable,
    /// Redis answered with an error.
    Error,
    /// Redis was not reachable, or was lost while the request waited.
    Unavailable,
    /// Redis did not answer within the time budget.
    TimedOut,
}

impl Answer<'_> {
    /// Whether this tells of Redis' state rather than of the link's.
    pub fn is_about_redis(&self) -> bool {
        matches!(
            self,
            Self::Miss(MissReason::Error | MissReason::Unavailable | MissReason::TimedOut)
        )
    }
}

/// Reads the reply to a `GET` of a link's record; `now` is in seconds since 1970.
#[inline]
pub fn answer_of_reply<'a>(reply: &Reply<'a>, now: u64) -> Answer<'a> {
    answer_and_expiry(reply, now).0
}

/// Reads the reply to a `GET` of a link's record, and until when the answer holds, in seconds
/// since 1970; 0 for ever.
#[inline]
pub fn answer_and_expiry<'a>(reply: &Reply<'a>, now: u64) -> (Answer<'a>, u64) {
    let answer = match reply {
        Reply::Bulk(value) => return answer_of_record(value, now),
        Reply::Null => Answer::Miss(MissReason::Absent),
        // A key of another type is somebody's mistake at this one key; Redis itself is well.
        Reply::Error(message) if message.starts_with(b"WRONGTYPE") => {
            Answer::Miss(MissReason::Unreadable)
        }
        Reply::Error(_) => Answer::Miss(MissReason::Error),
        Reply::Oversized(_)
        | Reply::Line(_)
        | Reply::Aggregate(_)
        | Reply::Invalidated(_)
        | Reply::InvalidatedAll
        | Reply::Push(_) => Answer::Miss(MissReason::Unreadable),
    };
    (answer, 0)
}

#[inline]
fn answer_of_record(value: &[u8], now: u64) -> (Answer<'_>, u64) {
    let answer = match Record::parse(value) {
        // This version does not pass queries on, nor wait for a link's beginning.
        Ok(Record::Link(link)) if link.forwards_query || link.validity.since().is_some() => {
            Answer::Miss(MissReason::Unreadable)
        }
        Ok(Record::Link(link)) if link.validity.at(now) == Phase::Over => Answer::Gone,
        Ok(Record::Link(link)) if target::is_servable(link.target) => {
            let redirect = Answer::Redirect {
                status: link.status,
                target: link.target,
            };
            return (
                redirect,
                link.validity.until().map_or(0, std::num::NonZeroU64::get),
            );
        }
        Ok(Record::Revoked { .. }) => Answer::Gone,
        Ok(Record::Unknown) => Answer::Unknown,
        Ok(Record::Link(_) | Record::CampaignLink(_)) | Err(_) => {
            Answer::Miss(MissReason::Unreadable)
        }
    };
    (answer, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: Answer<'_>) {
        assert_eq!(
            answer_of_reply(&Reply::Bulk(value.as_bytes()), 1000),
            expected,
            "{value}"
        );
    }

    #[test]
    fn records_are_answered() {
        let redirect = |status, target: &'static str| Answer::Redirect {
            status,
            target: target.as_bytes(),
        };
        check(
            "1 302 1 0 https://e.com/",
            redirect(RedirectStatus::Found, "https://e.com/"),
        );
        check(
            "1 301 1 1001 http://e.com/",
            redirect(RedirectStatus::MovedPermanently, "http://e.com/"),
        );
        check(
            "1 307 1 0 https://e.com/",
            redirect(RedirectStatus::TemporaryRedirect, "https://e.com/"),
        );
        check(
            "1 308 1 0 https://e.com/",
            redirect(RedirectStatus::PermanentRedirect, "https://e.com/"),
        );
        check("1 302 1 1000 https://e.com/", Answer::Gone);
        check("1 302 1 999 https://e.com/", Answer::Gone);
        check("1 410 2", Answer::Gone);
        check("1 404 0", Answer::Unknown);
    }

    #[test]
    fn what_may_not_be_served_is_a_miss() {
        for value in [
            "",
            "x",
            "2 302 1 0 https://e.com/",
            "1 C 1 0 7 m=1",
            "1 302 1 0 javascript:alert(1)",
            "1 302 1 0 //evil.example/",
            "1 302 1 0 /evil",
            "1 302 1 0 https://",
            "1 302 1 0 https:///evil.example",
            "1 302 1 0 https://e.com/\r\nSet-Cookie: a=b",
            "1 302 1 0 https://e.com/ x",
            "1 302 1 0 https://e.com/\u{e9}",
            "1 302 1 0 HTTPS://e.com/",
        ] {
            check(value, Answer::Miss(MissReason::Unreadable));
        }
        let long = format!(
            "1 302 1 0 https://e.com/{}",
            "a".repeat(target::MAX_TARGET_LENGTH)
        );
        check(&long, Answer::Miss(MissReason::Unreadable));
    }

    #[test]
    fn other_replies_are_misses_by_their_reason() {
        for (reply, reason) in [
            (Reply::Null, MissReason::Absent),
            (
                Reply::Error(b"WRONGTYPE Operation against a key"),
                MissReason::Unreadable,
            ),
            (Reply::Error(b"LOADING Redis is loading"), MissReason::Error),
            (Reply::Oversized(1 << 20), MissReason::Unreadable),
            (Reply::Line(b"OK"), MissReason::Unreadable),
        ] {
            assert_eq!(
                answer_of_reply(&reply, 0),
                Answer::Miss(reason),
                "{reply:?}"
            );
        }
    }
}
