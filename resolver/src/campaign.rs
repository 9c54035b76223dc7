//! The answer of a campaign, while its links are answered.

use crate::answer::{Answer, Expanded, MissReason};
use crate::counters::Source;

/// The answer of a campaign, copied: the connection and the cache may change while its links are
/// answered one after the other.
#[derive(Debug)]
pub(crate) struct Campaign {
    answer: Expanded,
    template: Vec<u8>,
    source: Source,
}

impl Campaign {
    pub(crate) fn new() -> Self {
        Self {
            answer: Expanded::Miss(MissReason::Unavailable),
            template: Vec::new(),
            source: Source::None,
        }
    }

    /// Copies an answer and its source.
    pub(crate) fn set(&mut self, answer: Answer<'_>, source: Source) {
        self.answer = answer.map(|template| {
            self.template.clear();
            self.template.extend_from_slice(template);
        });
        self.source = source;
    }

    /// The source of the answer.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// The answer.
    pub(crate) fn answer(&self) -> Answer<'_> {
        self.answer.with(&self.template)
    }
}
