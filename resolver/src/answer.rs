//! What a reply from Redis means for the visitor.

use std::num::NonZeroU64;

use vocabulary::{
    CampaignId, LinkRecord, Parameters, Phase, Record, RedirectStatus, Template, Validity, target,
};

use crate::resp::Reply;

/// The answer to a request, as far as Redis can give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The visitor is sent on.
    Redirect {
        /// How.
        status: RedirectStatus,
        /// Whether the visitor's query is to be appended to the target.
        forwards_query: bool,
        /// Where to: checked again to be servable.
        target: &'a [u8],
    },
    /// The link or its campaign was revoked, is paused or has expired: 410.
    Gone,
    /// SQL was asked a moment ago and knows no such link, or it is not live yet: 404.
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
    /// served; or its campaign has no such record.
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

/// What a reply says, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading<'a> {
    /// What it says.
    pub said: Said<'a>,
    /// The second since 1970 from which it does not hold any more; 0 when it holds for ever. A
    /// redirect becomes [`Answer::Gone`] then, and of what is [`Answer::Unknown`] until then
    /// nothing is known any more.
    pub until: u64,
}

/// What a reply says of a link or of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// The answer; of a campaign, that of all its links, with a checked template for a target.
    Answer(Answer<'a>),
    /// The link leads where its campaign says.
    CampaignLink {
        /// The campaign.
        campaign: CampaignId,
        /// What the campaign's template is filled with.
        parameters: Parameters<'a>,
    },
}

impl<'a> Reading<'a> {
    /// An answer that holds until it is told to have changed.
    pub fn for_ever(answer: Answer<'a>) -> Self {
        Self {
            said: Said::Answer(answer),
            until: 0,
        }
    }

    /// What is read before its time.
    fn early(validity: Validity) -> Self {
        Self {
            said: Said::Answer(Answer::Unknown),
            until: second(validity.since()),
        }
    }
}

/// Reads the reply to a `GET` of a link's record; `now` is in seconds since 1970.
#[inline]
pub fn read_link<'a>(reply: &Reply<'a>, now: u64) -> Reading<'a> {
    let Reply::Bulk(value) = reply else {
        return Reading::for_ever(answer_without_record(reply));
    };
    let answer = match Record::parse(value) {
        Ok(Record::Link(link)) => match link.validity.at(now) {
            Phase::Over => Answer::Gone,
            Phase::Early => return Reading::early(link.validity),
            Phase::Live if target::is_servable(link.target) => return redirect(&link),
            Phase::Live => Answer::Miss(MissReason::Unreadable),
        },
        Ok(Record::CampaignLink(link)) => match link.validity.at(now) {
            Phase::Over => Answer::Gone,
            Phase::Early => return Reading::early(link.validity),
            Phase::Live => {
                return Reading {
                    said: Said::CampaignLink {
                        campaign: link.campaign,
                        parameters: link.parameters,
                    },
                    until: second(link.validity.until()),
                };
            }
        },
        Ok(Record::Revoked { .. }) => Answer::Gone,
        Ok(Record::Unknown) => Answer::Unknown,
        Err(_) => Answer::Miss(MissReason::Unreadable),
    };
    Reading::for_ever(answer)
}

/// Reads the reply to a `GET` of a campaign's record; `now` is in seconds since 1970. It is never
/// [`Said::CampaignLink`].
pub fn read_campaign<'a>(reply: &Reply<'a>, now: u64) -> Reading<'a> {
    let Reply::Bulk(value) = reply else {
        return Reading::for_ever(answer_without_record(reply));
    };
    let answer = match Record::parse(value) {
        Ok(Record::Link(campaign)) => match campaign.validity.at(now) {
            Phase::Over => Answer::Gone,
            Phase::Early => return Reading::early(campaign.validity),
            Phase::Live if Template::parse(campaign.target).is_ok() => return redirect(&campaign),
            Phase::Live => Answer::Miss(MissReason::Unreadable),
        },
        Ok(Record::Revoked { .. }) => Answer::Gone,
        // That a campaign does not exist which has links is for the fallback to judge.
        Ok(Record::Unknown) => Answer::Miss(MissReason::Absent),
        Ok(Record::CampaignLink(_)) | Err(_) => Answer::Miss(MissReason::Unreadable),
    };
    Reading::for_ever(answer)
}

/// How the error begins that tells of a key of another type: somebody's mistake at this one key;
/// Redis itself is well.
pub(crate) const WRONG_TYPE: &[u8] = b"WRONGTYPE";

/// What a reply means that brings no record.
fn answer_without_record(reply: &Reply<'_>) -> Answer<'static> {
    Answer::Miss(match reply {
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
    })
}

#[inline]
fn redirect<'a>(link: &LinkRecord<'a>) -> Reading<'a> {
    Reading {
        said: Said::Answer(Answer::Redirect {
            status: link.status,
            forwards_query: link.forwards_query,
            target: link.target,
        }),
        until: second(link.validity.until()),
    }
}

#[inline]
fn second(moment: Option<NonZeroU64>) -> u64 {
    moment.map_or(0, NonZeroU64::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: Answer<'_>) {
        let reading = read_link(&Reply::Bulk(value.as_bytes()), 1000);
        assert_eq!(reading.said, Said::Answer(expected), "{value}");
    }

    fn check_campaign(value: &str, expected: Answer<'_>, until: u64) {
        let reading = read_campaign(&Reply::Bulk(value.as_bytes()), 1000);
        let said = Said::Answer(expected);
        assert_eq!(reading, Reading { said, until }, "{value}");
    }

    #[test]
    fn records_are_answered() {
        let redirect = |status, target: &'static str| Answer::Redirect {
            status,
            forwards_query: false,
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
        check("1 302 1 999-1000 https://e.com/", Answer::Gone);
        check("1 302 1 1001- https://e.com/", Answer::Unknown);
        check("1 C1 1 1001-1002 ", Answer::Unknown);
        check("1 C1 1 1000 ", Answer::Gone);
        check(
            "1 302 1 1000-1001 https://e.com/",
            redirect(RedirectStatus::Found, "https://e.com/"),
        );
        check("1 410 2", Answer::Gone);
        check("1 404 0", Answer::Unknown);
        let query = Answer::Redirect {
            status: RedirectStatus::PermanentRedirect,
            forwards_query: true,
            target: b"https://e.com/",
        };
        check("1 308q 1 0 https://e.com/", query);
    }

    #[test]
    fn a_reading_says_until_when_it_holds() {
        for (value, until) in [
            ("1 302 1 0 https://e.com/", 0),
            ("1 302 1 1001 https://e.com/", 1001),
            ("1 302 1 999-1001 https://e.com/", 1001),
            ("1 302 1 1001- https://e.com/", 1001),
            ("1 302 1 1001-1005 https://e.com/", 1001),
            ("1 302 1 1000 https://e.com/", 0),
            ("1 C1 1 1001 ", 1001),
            ("1 C1 1 1002-1005 ", 1002),
            ("c1 ", 0),
            ("1 410 1", 0),
        ] {
            assert_eq!(
                read_link(&Reply::Bulk(value.as_bytes()), 1000).until,
                until,
                "{value}"
            );
        }
    }

    #[test]
    fn a_campaign_says_what_holds_for_its_links() {
        let redirect = |target: &'static str| Answer::Redirect {
            status: RedirectStatus::Found,
            forwards_query: false,
            target: target.as_bytes(),
        };
        check_campaign(
            "1 302 1 0 https://e.com/{0}",
            redirect("https://e.com/{0}"),
            0,
        );
        check_campaign(
            "1 302 1 1001 https://e.com/",
            redirect("https://e.com/"),
            1001,
        );
        check_campaign("1 302 1 1000 https://e.com/", Answer::Gone, 0);
        check_campaign("1 302 1 1001- https://e.com/", Answer::Unknown, 1001);
        check_campaign("1 410 9", Answer::Gone, 0);
        check_campaign("1 404 0", Answer::Miss(MissReason::Absent), 0);
        for value in [
            "c1 a",
            "1 C1 2 0 a",
            "1 302 1 0 https://{0}/",
            "1 302 1 0 https://e.com/{x}",
            "1 302 1 0 javascript:{0}",
            "1 302 1 0 https://e.com/\r\n{0}",
            "",
        ] {
            check_campaign(value, Answer::Miss(MissReason::Unreadable), 0);
        }
        let link = read_link(&Reply::Bulk(b"c4f a&b"), 1000);
        let said = Said::CampaignLink {
            campaign: "4f".parse().expect("an id"),
            parameters: Parameters::parse(b"a&b").expect("parameters"),
        };
        assert_eq!(link, Reading { said, until: 0 });
    }

    #[test]
    fn what_may_not_be_served_is_a_miss() {
        for value in [
            "",
            "x",
            "2 302 1 0 https://e.com/",
            "1 C 1 0 7 m=1",
            "c1 m=1",
            "c1",
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
            let expected = Reading::for_ever(Answer::Miss(reason));
            assert_eq!(read_link(&reply, 0), expected, "{reply:?}");
            assert_eq!(read_campaign(&reply, 0), expected, "{reply:?}");
        }
    }
}
