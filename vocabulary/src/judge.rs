//! The judge: the answer to a request for a code, from records and the time.
//!
//! The edge judges the records that Redis holds, the sidecar those that SQL implies. A link of a
//! campaign needs two records, which the edge reads one after the other: it judges them with
//! [`Judgement::of_link`] and [`Judgement::of_campaign`], and combines them with [`expand`].
//! [`judge`] does the same at once.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use crate::campaign::CampaignId;
use crate::code::Code;
use crate::parameters::Parameters;
use crate::plan::{Instead, Plan, Section};
use crate::record::{LinkRecord, Record, RecordError, RedirectStatus};
use crate::target;
use crate::template::{ExpandError, Template};
use crate::validity::{Phase, Validity};

/// The answer to a request for a code. `T` holds the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// The visitor is redirected.
    Redirect {
        /// The status of the redirect.
        status: RedirectStatus,
        /// Appends the visitor's query to the target.
        forwards_query: bool,
        /// The target has a place for the id of a click.
        has_click_id: bool,
        /// The target is a [plan](crate::plan), out of which it is chosen for the visitor.
        is_plan: bool,
        /// The bad news that the target stands instead of.
        instead_of: Option<BadNews>,
        /// The target, which may be served; of a campaign, its template.
        target: T,
    },
    /// The link or its campaign is revoked, is paused or has expired: 410.
    Gone,
    /// The validity of the link or its campaign has not begun: 404.
    NotYet,
    /// There is no such link: 404.
    Unknown,
    /// The source has no usable record, and another one must be asked.
    Miss(MissReason),
}

/// An answer that denies a redirect. Only a source that is authoritative now may give it, because it
/// is wrong for a link that is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNews {
    /// [`Answer::Gone`]
    Gone,
    /// [`Answer::NotYet`]
    NotYet,
    /// [`Answer::Unknown`]
    Unknown,
}

impl<T> Answer<T> {
    /// The answer as bad news, if it is, or a target instead of some.
    #[inline]
    pub fn bad_news(&self) -> Option<BadNews> {
        match self {
            Self::Gone => Some(BadNews::Gone),
            Self::NotYet => Some(BadNews::NotYet),
            Self::Unknown => Some(BadNews::Unknown),
            Self::Redirect { instead_of, .. } => *instead_of,
            Self::Miss(_) => None,
        }
    }

    /// Turns bad news into a miss, unless its source is authoritative now. The redirect of a live link is never
    /// doubtful.
    #[inline]
    pub fn vouched_by(self, is_authoritative: impl FnOnce() -> bool) -> Self {
        match self.bad_news() {
            Some(news) if !is_authoritative() => Self::Miss(MissReason::Doubtful(news)),
            _ => self,
        }
    }

    /// Replaces the target.
    #[inline]
    pub fn map<U>(self, replace: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Redirect {
                status,
                forwards_query,
                has_click_id,
                is_plan,
                instead_of,
                target,
            } => Answer::Redirect {
                status,
                forwards_query,
                has_click_id,
                is_plan,
                instead_of,
                target: replace(target),
            },
            Self::Gone => Answer::Gone,
            Self::NotYet => Answer::NotYet,
            Self::Unknown => Answer::Unknown,
            Self::Miss(reason) => Answer::Miss(reason),
        }
    }
}

impl Answer<()> {
    /// Adds the target, if there is one.
    #[inline]
    pub fn with(self, target: &[u8]) -> Answer<&[u8]> {
        self.map(|()| target)
    }
}

/// Reason for which a source has no usable record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissReason {
    /// There is no record.
    Absent,
    /// There is a value, but it is no record that this version reads, or its target may not be
    /// served; or its campaign has no such record.
    Unreadable,
    /// The parameters of the link do not fit the template of its campaign.
    Unexpandable(ExpandError),
    /// The source has bad news but is not authoritative now.
    Doubtful(BadNews),
    /// The source answered with an error.
    Error,
    /// The source was not reachable, or was lost while the request waited.
    Unavailable,
    /// The source did not answer within the time budget.
    TimedOut,
}

impl From<RecordError> for MissReason {
    fn from(_error: RecordError) -> Self {
        Self::Unreadable
    }
}

/// A record, or the reason why its source has none.
pub type Found<'a> = Result<Record<'a>, MissReason>;

/// Result of judging a record at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement<R> {
    /// The ruling.
    pub ruling: R,
    /// The second since 1970 from which the ruling no longer holds; 0 if it always does. A redirect
    /// becomes [`Answer::Gone`] then; after [`Answer::NotYet`] the record is judged again.
    pub until: u64,
}

/// Decision of a link's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling<'a> {
    /// The answer.
    Answer(Answer<&'a [u8]>),
    /// The answer depends on the link's campaign.
    Campaign {
        /// The campaign.
        campaign: CampaignId,
        /// The values for the campaign's template.
        parameters: Parameters<'a>,
        /// The phase of the link.
        phase: Phase,
    },
}

impl<'a> From<Answer<&'a [u8]>> for Ruling<'a> {
    #[inline]
    fn from(answer: Answer<&'a [u8]>) -> Self {
        Self::Answer(answer)
    }
}

impl<R> Judgement<R> {
    /// Makes a judgement that always holds.
    #[inline]
    pub fn for_ever(ruling: impl Into<R>) -> Self {
        Self {
            ruling: ruling.into(),
            until: 0,
        }
    }

    /// Converts the ruling.
    #[inline]
    pub fn convert<S: From<R>>(self) -> Judgement<S> {
        Judgement {
            ruling: self.ruling.into(),
            until: self.until,
        }
    }
}

impl<'a> Judgement<Ruling<'a>> {
    /// Judges the record of a link; `now` is in seconds since 1970.
    #[inline]
    pub fn of_link(found: Found<'a>, now: u64) -> Self {
        match found {
            Ok(Record::Link(link)) => {
                let is_valid: fn(&[u8]) -> bool = match link.has_click_id {
                    false => target::is_servable,
                    true => target::is_servable_with_click_id,
                };
                Judgement::of_target(link, now, is_valid, target::is_servable).convert()
            }
            Ok(Record::CampaignLink(link)) => {
                Self::at(link.validity, now, |phase| Ruling::Campaign {
                    campaign: link.campaign,
                    parameters: link.parameters,
                    phase,
                })
            }
            Ok(Record::Revoked { .. }) => Self::for_ever(Answer::Gone),
            Ok(Record::Unknown { .. }) => Self::for_ever(Answer::Unknown),
            Err(reason) => Self::for_ever(Answer::Miss(reason)),
        }
    }
}

impl<'a> Judgement<Answer<&'a [u8]>> {
    /// Judges the record of a campaign: the answer of its live links, with a valid template for a
    /// target. `now` is in seconds since 1970.
    #[inline]
    pub fn of_campaign(found: Found<'a>, now: u64) -> Self {
        match found {
            Ok(Record::Link(campaign)) => {
                let is_template = |target: &[u8]| Template::parse(target).is_ok();
                let is_valid: fn(&[u8]) -> bool = match campaign.has_click_id {
                    false => is_template,
                    true => |target| Template::parse_with_click_id(target).is_ok(),
                };
                Self::of_target(campaign, now, is_valid, is_template)
            }
            Ok(Record::CampaignLink(_)) => Self::for_ever(Answer::Miss(MissReason::Unreadable)),
            Ok(Record::Revoked { .. }) => Self::for_ever(Answer::Gone),
            // It has links, so only an authoritative source can rule that it does not exist.
            Ok(Record::Unknown { .. }) | Err(MissReason::Doubtful(_)) => {
                Self::for_ever(Answer::Miss(MissReason::Absent))
            }
            Err(reason) => Self::for_ever(Answer::Miss(reason)),
        }
    }

    #[inline]
    fn of_target(
        link: LinkRecord<'a>,
        now: u64,
        is_valid: impl Fn(&[u8]) -> bool,
        is_valid_instead: impl Fn(&[u8]) -> bool,
    ) -> Self {
        if link.is_plan {
            return Self::of_plan(link, now, is_valid, is_valid_instead);
        }
        let live = Answer::Redirect {
            status: link.status,
            forwards_query: link.forwards_query,
            has_click_id: link.has_click_id,
            is_plan: false,
            instead_of: None,
            target: link.target,
        };
        let judgement = Self::at(link.validity, now, |phase| match phase {
            Phase::Early => Answer::NotYet,
            Phase::Live => live,
            Phase::Over => Answer::Gone,
        });
        if matches!(judgement.ruling, Answer::Redirect { .. }) && !is_valid(link.target) {
            return Self {
                ruling: Answer::Miss(MissReason::Unreadable),
                ..judgement
            };
        }
        judgement
    }

    /// Judges a record with a plan, which is checked as a whole.
    #[cold]
    fn of_plan(
        link: LinkRecord<'a>,
        now: u64,
        is_valid: impl Fn(&[u8]) -> bool,
        is_valid_instead: impl Fn(&[u8]) -> bool,
    ) -> Self {
        let Some(plan) = Plan::parse(link.target, is_valid, is_valid_instead) else {
            return Self::for_ever(Answer::Miss(MissReason::Unreadable));
        };
        Self::at(link.validity, now, |phase| match phase {
            Phase::Early => instead(plan, BadNews::NotYet),
            Phase::Live => Answer::Redirect {
                status: link.status,
                forwards_query: link.forwards_query,
                has_click_id: link.has_click_id,
                is_plan: true,
                instead_of: None,
                target: link.target,
            },
            Phase::Over => instead(plan, BadNews::Gone),
        })
    }
}

/// The answer of a link with a plan that is not live: the target instead of bad news, or them.
pub fn instead(plan: Plan<'_>, news: BadNews) -> Answer<&[u8]> {
    let (instead, answer) = match news {
        BadNews::Gone => (Instead::Expired, Answer::Gone),
        BadNews::NotYet => (Instead::NotYet, Answer::NotYet),
        BadNews::Unknown => return Answer::Unknown,
    };
    plan.instead(instead)
        .map_or(answer, |target| redirect_instead(news, target))
}

/// The redirect to a target instead of bad news.
pub fn redirect_instead<T>(news: BadNews, target: T) -> Answer<T> {
    Answer::Redirect {
        status: RedirectStatus::Found,
        forwards_query: false,
        has_click_id: false,
        is_plan: false,
        instead_of: Some(news),
        target,
    }
}

impl<R> Judgement<R> {
    /// Judges a validity.
    #[inline]
    fn at(validity: Validity, now: u64, ruling: impl FnOnce(Phase) -> R) -> Self {
        let second = |bound: Option<NonZeroU64>| bound.map_or(0, NonZeroU64::get);
        let phase = validity.at(now);
        Self {
            ruling: ruling(phase),
            until: match phase {
                Phase::Early => second(validity.since()),
                Phase::Live => second(validity.until()),
                Phase::Over => 0,
            },
        }
    }
}

/// Reports whether a judgement with this [`until`](Judgement::until) no longer holds.
#[inline]
pub fn is_over(until: u64, now: u64) -> bool {
    until != 0 && now >= until
}

/// Makes the answer of a link in a phase from the answer of its campaign. The target replaces the contents of `target`.
///
/// The phase of a link that is not live goes before the campaign's state, and stands without the campaign's record, too.
pub fn expand(
    code: &Code,
    parameters: Parameters<'_>,
    phase: Phase,
    campaign: Answer<&[u8]>,
    target: &mut Vec<u8>,
) -> Answer<()> {
    let news = match phase {
        Phase::Live => None,
        Phase::Early => Some(BadNews::NotYet),
        Phase::Over => Some(BadNews::Gone),
    };
    let template = match (campaign, news) {
        // The link exists, so it must not be taken for an unknown one.
        (Answer::Miss(MissReason::Absent), None) => Answer::Miss(MissReason::Unreadable),
        (campaign, None) => campaign,
        (
            Answer::Redirect {
                instead_of: None,
                is_plan: true,
                target: plan,
                ..
            },
            Some(news),
        ) => instead(Plan::from_checked(plan), news),
        (campaign, Some(news)) if campaign.bad_news() == Some(news) => campaign,
        (_, Some(BadNews::NotYet)) => Answer::NotYet,
        (_, Some(_)) => Answer::Gone,
    };
    let expanded = match template {
        Answer::Redirect {
            has_click_id,
            is_plan,
            target: text,
            ..
        } => match is_plan {
            false => expand_template(code, parameters, has_click_id, text, target),
            true => expand_plan(code, parameters, has_click_id, text, target),
        },
        _ => Ok(()),
    };
    match expanded {
        Ok(()) => template.map(|_template| ()),
        Err(error) => Answer::Miss(MissReason::Unexpandable(error)),
    }
}

#[inline]
fn expand_template(
    code: &Code,
    parameters: Parameters<'_>,
    has_click_id: bool,
    text: &[u8],
    target: &mut Vec<u8>,
) -> Result<(), ExpandError> {
    let template = Template::from_checked(text);
    match has_click_id {
        false => template.expand(code, parameters, target),
        true => template.expand_with_click_id(code, parameters, target),
    }
}

/// Fills in the templates of a plan that a visitor of a live link can come to.
#[cold]
fn expand_plan(
    code: &Code,
    parameters: Parameters<'_>,
    has_click_id: bool,
    plan: &[u8],
    target: &mut Vec<u8>,
) -> Result<(), ExpandError> {
    target.clear();
    let mut expanded = Vec::new();
    Plan::from_checked(plan).map(target, |section, template, out| {
        match section {
            Section::Instead(..) => return Ok(false),
            Section::Preview(_) => {
                out.extend_from_slice(template);
                return Ok(true);
            }
            Section::Target(_) | Section::Rule(_) | Section::Skipped => {}
        }
        expand_template(code, parameters, has_click_id, template, &mut expanded)?;
        out.extend_from_slice(&expanded);
        Ok(true)
    })
}

/// Judges the record of a link together with the record of its campaign, which counts only if the
/// link belongs to one. `now` is in seconds since 1970; `room` receives a target that is
/// made from a template.
pub fn judge<'a>(
    code: &Code,
    link: Found<'a>,
    campaign: Found<'_>,
    now: u64,
    room: &'a mut Vec<u8>,
) -> Answer<&'a [u8]> {
    match Judgement::of_link(link, now).ruling {
        Ruling::Answer(answer) => answer,
        Ruling::Campaign {
            parameters, phase, ..
        } => {
            let campaign = Judgement::of_campaign(campaign, now).ruling;
            expand(code, parameters, phase, campaign, room).with(room)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(value: &str) -> Found<'_> {
        Ok(Record::parse(value.as_bytes())?)
    }

    fn check(value: &str, expected: Answer<&[u8]>) {
        let judgement = Judgement::of_link(found(value), 1000);
        assert_eq!(judgement.ruling, Ruling::Answer(expected), "{value}");
    }

    fn check_campaign(value: &str, ruling: Answer<&[u8]>, until: u64) {
        let judgement = Judgement::of_campaign(found(value), 1000);
        assert_eq!(judgement, Judgement { ruling, until }, "{value}");
    }

    #[test]
    fn records_are_answered() {
        let redirect = |status, target: &'static str| Answer::Redirect {
            status,
            forwards_query: false,
            has_click_id: false,
            is_plan: false,
            instead_of: None,
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
        check("1 302 1 1001- https://e.com/", Answer::NotYet);
        check(
            "1 302 1 1000-1001 https://e.com/",
            redirect(RedirectStatus::Found, "https://e.com/"),
        );
        check("1 410 2", Answer::Gone);
        check("1 404 0", Answer::Unknown);
        check("1 404 7", Answer::Unknown);
        let query = Answer::Redirect {
            status: RedirectStatus::PermanentRedirect,
            forwards_query: true,
            has_click_id: false,
            is_plan: false,
            instead_of: None,
            target: &b"https://e.com/"[..],
        };
        check("1 308q 1 0 https://e.com/", query);
        let click = Answer::Redirect {
            status: RedirectStatus::Found,
            forwards_query: true,
            has_click_id: true,
            is_plan: false,
            instead_of: None,
            target: &b"https://e.com/?c= "[..],
        };
        check("1 302kq 1 0 https://e.com/?c= ", click);
    }

    #[test]
    fn a_judgement_holds_until_its_second() {
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
                Judgement::of_link(found(value), 1000).until,
                until,
                "{value}"
            );
        }
    }

    #[test]
    fn a_campaign_is_judged_for_its_links() {
        let redirect = |target: &'static str| Answer::Redirect {
            status: RedirectStatus::Found,
            forwards_query: false,
            has_click_id: false,
            is_plan: false,
            instead_of: None,
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
        check_campaign("1 302 1 1001- https://e.com/", Answer::NotYet, 1001);
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
        let link = Judgement::of_link(found("c4f a&b"), 1000);
        let ruling = Ruling::Campaign {
            campaign: "4f".parse().expect("an id"),
            parameters: Parameters::parse(b"a&b").expect("parameters"),
            phase: Phase::Live,
        };
        assert_eq!(link, Judgement { ruling, until: 0 });
    }

    #[test]
    fn a_link_that_is_not_live_gets_the_target_instead() {
        let plan = "T14:https://e.com/E16:https://e.com/eeN15:https://e.com/n";
        for (validity, target, news, until) in [
            ("1000", "https://e.com/ee", BadNews::Gone, 0),
            ("1001-", "https://e.com/n", BadNews::NotYet, 1001),
        ] {
            let record = format!("2 301q 1 {validity} {plan}");
            let ruling = redirect_instead(news, target.as_bytes());
            let judgement = Judgement::of_link(found(&record), 1000);
            assert_eq!(judgement.ruling, Ruling::Answer(ruling));
            check_campaign(&record, ruling, until);
            assert_eq!(ruling.bad_news(), Some(news));
            let doubtful = Answer::Miss(MissReason::Doubtful(news));
            assert_eq!(ruling.vouched_by(|| false), doubtful);
        }
        // Without one the answer is as before.
        check("2 302 1 1000 T14:https://e.com/", Answer::Gone);
        check("2 302 1 1001- T14:https://e.com/", Answer::NotYet);
        // A plan is read as a whole.
        let broken = "2 302 1 1000 T14:https://e.com/E9:ftp://e.c";
        check(broken, Answer::Miss(MissReason::Unreadable));
    }

    #[test]
    fn a_campaign_s_targets_stand_for_links_that_are_not_live() {
        let code: Code = "abc".parse().expect("a code");
        let answer = |link: &str, campaign: &str| {
            let mut room = Vec::new();
            let answer = judge(&code, found(link), found(campaign), 1000, &mut room);
            answer.map(|target| String::from_utf8(target.to_vec()).expect("ASCII"))
        };
        let plan = "T17:https://e.com/{0}R22:d=i https://e.com/i{0}E18:https://e.com/e{0}N18:https://e.com/n{0}";
        let live = format!("2 302 1 0 {plan}");
        let over = format!("2 302 1 1000 {plan}");
        let instead = |news, target: &str| redirect_instead(news, target.to_owned());
        let gone = instead(BadNews::Gone, "https://e.com/ex");
        assert_eq!(answer("1 C1 1 1000 x", &live), gone);
        assert_eq!(answer("1 C1 1 1000 x", &over), gone);
        assert_eq!(answer("c1 x", &over), gone);
        let early = instead(BadNews::NotYet, "https://e.com/nx");
        assert_eq!(answer("1 C1 1 1001- x", &live), early);
        let Answer::Redirect {
            is_plan: true,
            target,
            ..
        } = answer("c1 x", &live)
        else {
            panic!("no plan")
        };
        assert_eq!(target, "T15:https://e.com/xR20:d=i https://e.com/ix");
        let plain = "1 302 1 0 https://e.com/{0}";
        assert_eq!(answer("1 C1 1 1000 x", plain), Answer::Gone);
        assert_eq!(answer("1 C1 1 1001- x", plain), Answer::NotYet);
        assert_eq!(answer("1 C1 1 1000 x", "1 410 2"), Answer::Gone);
        // The campaign's record is not needed for these.
        assert_eq!(answer("1 C1 1 1000 x", ""), Answer::Gone);
        assert_eq!(answer("1 C1 1 1001- x", "1 404 0"), Answer::NotYet);
        let missing = "2 302 1 0 T17:https://e.com/{0}R22:d=i https://e.com/i{1}";
        let error = ExpandError::Missing(1);
        let unexpandable = Answer::Miss(MissReason::Unexpandable(error));
        assert_eq!(answer("c1 x", missing), unexpandable);
    }

    #[test]
    fn unusable_records_are_misses() {
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
            "1 302k 1 0 https://e.com/?c=",
            "1 302k 1 0 https://e.com ",
            "1 301k 1 0 https://e.com/?c= ",
            "1 302qk 1 0 https://e.com/?c= ",
        ] {
            check(value, Answer::Miss(MissReason::Unreadable));
        }
        let long = format!(
            "1 302 1 0 https://e.com/{}",
            "a".repeat(target::MAX_TARGET_LENGTH)
        );
        check(&long, Answer::Miss(MissReason::Unreadable));
    }
}
