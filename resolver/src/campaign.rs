//! What a campaign says, and what becomes of its links.

use vocabulary::{Code, Parameters, RedirectStatus, Template};

use crate::answer::{Answer, MissReason};
use crate::counters::Source;

/// An answer whose target, if it has one, stands in a buffer of the owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Redirect {
        status: RedirectStatus,
        forwards_query: bool,
    },
    Gone,
    Unknown,
    Miss(MissReason),
}

impl Verdict {
    /// Takes an answer's target into a buffer.
    fn take(answer: Answer<'_>, target_of: &mut Vec<u8>) -> Self {
        match answer {
            Answer::Redirect {
                status,
                forwards_query,
                target,
            } => {
                target_of.clear();
                target_of.extend_from_slice(target);
                Self::Redirect {
                    status,
                    forwards_query,
                }
            }
            Answer::Gone => Self::Gone,
            Answer::Unknown => Self::Unknown,
            Answer::Miss(reason) => Self::Miss(reason),
        }
    }

    /// The answer, with the target that stands in a buffer.
    pub(crate) fn answer(self, target: &[u8]) -> Answer<'_> {
        match self {
            Self::Redirect {
                status,
                forwards_query,
            } => Answer::Redirect {
                status,
                forwards_query,
                target,
            },
            Self::Gone => Answer::Gone,
            Self::Unknown => Answer::Unknown,
            Self::Miss(reason) => Answer::Miss(reason),
        }
    }
}

/// What a campaign has answered, out of reach of what happens to the connection and the cache
/// while its links are answered one after the other.
#[derive(Debug)]
pub(crate) struct Campaign {
    verdict: Verdict,
    template: Vec<u8>,
    source: Source,
}

impl Campaign {
    pub(crate) fn new() -> Self {
        Self {
            verdict: Verdict::Miss(MissReason::Unavailable),
            template: Vec::new(),
            source: Source::None,
        }
    }

    /// Notes what it has answered, and who says so.
    pub(crate) fn set(&mut self, answer: Answer<'_>, source: Source) {
        self.verdict = Verdict::take(answer, &mut self.template);
        self.source = source;
    }

    /// Who says so.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// What it has answered.
    pub(crate) fn answer(&self) -> Answer<'_> {
        self.verdict.answer(&self.template)
    }
}

/// What a live link of a campaign answers when its campaign answers so; the target is put in the
/// place of what stands in `target`.
pub(crate) fn expand(
    code: &Code,
    parameters: Parameters<'_>,
    campaign: Answer<'_>,
    target: &mut Vec<u8>,
) -> Verdict {
    match campaign {
        Answer::Redirect {
            status,
            forwards_query,
            target: template,
        } => match Template::from_checked(template).expand(code, parameters, target) {
            Ok(()) => Verdict::Redirect {
                status,
                forwards_query,
            },
            Err(_) => Verdict::Miss(MissReason::Unreadable),
        },
        Answer::Gone => Verdict::Gone,
        Answer::Unknown => Verdict::Unknown,
        // The link is there: nobody may take it for one that does not exist.
        Answer::Miss(MissReason::Absent) => Verdict::Miss(MissReason::Unreadable),
        Answer::Miss(reason) => Verdict::Miss(reason),
    }
}
