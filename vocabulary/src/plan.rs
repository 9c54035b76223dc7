//! Plans: targets of a link that depend on the visitor, or on whether the link is live.
//!
//! ```text
//! T20:https://example.com/R45:d=i;l=de https://apps.example.com/de/app?id=7E21:https://example.com/o
//! ```
//!
//! A plan is a row of sections: a letter, the length of its text in decimal, a colon, and the text.
//!
//! - `T`: the target of those whom no rule sends elsewhere. It is there once, and first.
//! - `R`: a [rule](Rule): its [conditions](Condition) joined by `;`, a space, and its target. Of those whose conditions
//!   are all met the first is followed. There are at most [`MAX_RULES`].
//! - `E`, `P` and `N`: the target [instead](Instead) of an answer that denies a redirect, each at most once.
//! - `o`: the [preview](Preview), at most once, and directly behind `T`.
//!
//! A reader that does not know a capital letter, or a condition, can't read the plan: it would send visitors to where
//! their rule does not. It skips sections with small letters that it does not know.
//!
//! Targets of campaigns are [templates](crate::template). Those of `T` and `R` have a place for the
//! [id of the click](crate::click) if the record says so.

mod condition;
mod device;

use alloc::vec::Vec;

use crate::code::Code;
use crate::number::{parse_decimal, push_decimal};
use crate::preview::{Preview, is_preview_agent};
use crate::siphash::siphash24;

pub use condition::{Condition, Conditions, Share, push_condition};
pub use device::{Device, Devices};

/// The most rules that a plan has.
pub const MAX_RULES: usize = 20;

/// The most bytes that a plan has, its targets included.
pub const MAX_PLAN_LENGTH: usize = 16_384;

/// The most bytes of the name of a variant.
pub const MAX_VARIANT_LENGTH: usize = 32;

/// The letter of the section with the preview.
pub const PREVIEW: u8 = b'o';

/// A visitor, as far as known. Rules ask for what they need, so that nothing else is read.
pub trait Visitor {
    /// The header `User-Agent`; empty without one.
    fn user_agent(&self) -> &[u8];
    /// The header `Accept-Language`; empty without one.
    fn accept_language(&self) -> &[u8];
    /// The country by ISO 3166-1, two letters; empty if it is unknown.
    fn country(&self) -> &[u8];
    /// The region by ISO 3166-2, without the country; empty if it is unknown.
    fn region(&self) -> &[u8];
    /// The query of the request, without a question mark.
    fn query(&self) -> &[u8];
    /// The address, in any form that stays the same for the visitor.
    fn address(&self) -> &[u8];
}

/// The answers that a target can stand instead of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instead {
    /// The link has expired: not 410.
    Expired,
    /// The link is paused: not 410.
    Paused,
    /// The link is not live yet: not 404.
    NotYet,
}

impl Instead {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 3] = [Self::Expired, Self::Paused, Self::NotYet];

    /// The letter of its section.
    pub const fn letter(self) -> u8 {
        match self {
            Self::Expired => b'E',
            Self::Paused => b'P',
            Self::NotYet => b'N',
        }
    }
}

/// A rule, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// All of them must be met.
    pub conditions: Conditions<'a>,
    /// The target.
    pub target: &'a [u8],
}

impl<'a> Rule<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        let space = text.iter().position(|&byte| byte == b' ')?;
        Some(Self {
            conditions: Conditions::from_text(&text[..space]),
            target: &text[space + 1..],
        })
    }

    /// The name that visits by this rule carry.
    pub fn variant(&self) -> Option<&'a [u8]> {
        self.conditions.into_iter().find_map(|it| match it {
            Some(Condition::Variant(name)) => Some(name),
            _ => None,
        })
    }
}

/// A section, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section<'a> {
    /// The target of those whom no rule sends elsewhere.
    Target(&'a [u8]),
    /// A rule.
    Rule(Rule<'a>),
    /// A target instead of another answer.
    Instead(Instead, &'a [u8]),
    /// The preview in messengers.
    Preview(Preview<'a>),
    /// One that readers of this version skip.
    Skipped,
}

/// A rule that was tried on a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried<'a> {
    /// The rule.
    pub rule: Rule<'a>,
    /// The visitor meets all its conditions.
    pub is_met: bool,
    /// The first condition that the visitor does not meet.
    pub unmet: Option<Condition<'a>>,
}

/// The target for a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    /// The target.
    pub target: &'a [u8],
    /// The place of the rule that was followed, from 0.
    pub rule: Option<usize>,
    /// The name that the visit carries.
    pub variant: Option<&'a [u8]>,
    /// The preview, for a visitor that is a preview agent: its page is the answer instead of the redirect.
    pub preview: Option<Preview<'a>>,
}

/// The plan of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan<'a>(&'a [u8]);

impl<'a> Plan<'a> {
    /// Reads a plan. `is_target` checks the targets of visitors, `is_instead` those of others.
    pub fn parse(
        text: &'a [u8],
        is_target: impl Fn(&[u8]) -> bool,
        is_instead: impl Fn(&[u8]) -> bool,
    ) -> Option<Self> {
        if text.len() > MAX_PLAN_LENGTH {
            return None;
        }
        let mut rules = 0;
        let mut seen: Vec<u8> = Vec::new();
        for (place, section) in Self(text).raw().enumerate() {
            let (letter, bytes) = section?;
            if (letter == b'T') != (place == 0) {
                return None;
            }
            match section_of(letter, bytes)? {
                Section::Target(target) if !is_target(target) => return None,
                Section::Rule(rule) => {
                    rules += 1;
                    let is_read = rule.conditions.into_iter().all(|it| it.is_some());
                    if rules > MAX_RULES || !is_read || !is_target(rule.target) {
                        return None;
                    }
                }
                Section::Instead(_, target) => {
                    if seen.contains(&letter) || !is_instead(target) {
                        return None;
                    }
                    seen.push(letter);
                }
                Section::Preview(_) if place != 1 => return None,
                Section::Target(_) | Section::Preview(_) | Section::Skipped => {}
            }
        }
        (!text.is_empty()).then_some(Self(text))
    }

    /// Takes a text that [`Plan::parse`] has accepted before.
    #[inline]
    pub fn from_checked(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The plan as it is written.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The sections, in order; one that can't be read ends them.
    pub fn sections(self) -> impl Iterator<Item = Section<'a>> {
        let raw = self.raw();
        raw.map_while(|section| section.and_then(|(letter, bytes)| section_of(letter, bytes)))
    }

    /// The rules, in order.
    pub fn rules(self) -> impl Iterator<Item = Rule<'a>> {
        self.sections().filter_map(|section| match section {
            Section::Rule(rule) => Some(rule),
            _ => None,
        })
    }

    /// The target of those whom no rule sends elsewhere.
    pub fn target(self) -> Option<&'a [u8]> {
        match self.sections().next() {
            Some(Section::Target(target)) => Some(target),
            _ => None,
        }
    }

    /// The preview, if there is one.
    pub fn preview(self) -> Option<Preview<'a>> {
        Preview::parse(self.preview_text()?)
    }

    #[inline]
    fn preview_text(self) -> Option<&'a [u8]> {
        let (letter, text) = self.raw().nth(1)??;
        (letter == PREVIEW).then_some(text)
    }

    /// The text of the first section with a letter, which readers of records may skip.
    pub fn other(self, letter: u8) -> Option<&'a [u8]> {
        let mut sections = self.raw().map_while(|section| section);
        sections.find_map(|(found, text)| (found == letter).then_some(text))
    }

    /// The target instead of an answer, if there is one.
    pub fn instead(self, of: Instead) -> Option<&'a [u8]> {
        self.sections().find_map(|section| match section {
            Section::Instead(instead, target) if instead == of => Some(target),
            _ => None,
        })
    }

    /// The rules, in order, as far as they meet a visitor; `now` is in seconds since 1970.
    pub fn tried(
        self,
        code: &Code,
        visitor: &impl Visitor,
        now: u64,
    ) -> impl Iterator<Item = Tried<'a>> {
        let mut points = Points::default();
        self.rules().map(move |rule| {
            let mut conditions = rule.conditions.into_iter();
            let unmet = conditions.find(|condition| {
                !condition.is_some_and(|condition| match condition {
                    Condition::Share(share) => {
                        share.contains(points.of(share.group, code, visitor))
                    }
                    other => other.is_met(visitor, now),
                })
            });
            Tried {
                rule,
                is_met: unmet.is_none(),
                unmet: unmet.flatten(),
            }
        })
    }

    /// Chooses the target for a visitor; `now` is in seconds since 1970. `None` only for a plan that was not checked.
    pub fn choose(self, code: &Code, visitor: &impl Visitor, now: u64) -> Option<Choice<'a>> {
        let preview = self.preview_text();
        let preview = preview.filter(|_| is_preview_agent(visitor.user_agent()));
        let preview = preview.and_then(Preview::parse);
        let mut tried = self.tried(code, visitor, now).enumerate();
        let chosen = tried.find_map(|(place, tried)| {
            tried.is_met.then(|| Choice {
                target: tried.rule.target,
                rule: Some(place),
                variant: tried.rule.variant(),
                preview,
            })
        });
        chosen.or_else(|| {
            Some(Choice {
                target: self.target()?,
                rule: None,
                variant: None,
                preview,
            })
        })
    }

    /// Appends a plan with other targets: `write` appends that of a section, or the text of a preview. Sections for which
    /// it returns `false` are left out, and those that this version does not know.
    ///
    /// # Errors
    /// Fails if `write` does.
    pub fn map<E>(
        self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(Section<'a>, &'a [u8], &mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut text = Vec::new();
        for (letter, bytes) in self.raw().flatten() {
            let Some(section) = section_of(letter, bytes) else {
                continue;
            };
            text.clear();
            let is_kept = match section {
                Section::Target(target) | Section::Instead(_, target) => {
                    write(section, target, &mut text)?
                }
                Section::Rule(rule) => {
                    text.extend_from_slice(rule.conditions.as_bytes());
                    text.push(b' ');
                    write(section, rule.target, &mut text)?
                }
                Section::Preview(_) => write(section, bytes, &mut text)?,
                Section::Skipped => false,
            };
            if is_kept {
                push_section(out, letter, &text);
            }
        }
        Ok(())
    }

    #[inline]
    fn raw(self) -> RawSections<'a> {
        RawSections::of(self.0)
    }
}

/// Appends a section.
pub fn push_section(out: &mut Vec<u8>, letter: u8, text: &[u8]) {
    out.push(letter);
    push_decimal(out, text.len() as u64);
    out.push(b':');
    out.extend_from_slice(text);
}

/// Reads the text of a section; `None` if it can't be read and may not be skipped.
#[inline]
fn section_of(letter: u8, text: &[u8]) -> Option<Section<'_>> {
    match letter {
        b'T' => Some(Section::Target(text)),
        b'R' => Rule::parse(text).map(Section::Rule),
        PREVIEW => Preview::parse(text).map(Section::Preview),
        b'a'..=b'z' => Some(Section::Skipped),
        _ => {
            let mut all = Instead::ALL.into_iter();
            let instead = all.find(|it| it.letter() == letter)?;
            Some(Section::Instead(instead, text))
        }
    }
}

/// Letters and texts; one that can't be read is `None`, and the last.
pub(crate) struct RawSections<'a> {
    rest: &'a [u8],
}

impl<'a> RawSections<'a> {
    /// The sections of a text.
    pub(crate) fn of(text: &'a [u8]) -> Self {
        Self { rest: text }
    }
}

impl<'a> Iterator for RawSections<'a> {
    type Item = Option<(u8, &'a [u8])>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&letter, rest) = core::mem::take(&mut self.rest).split_first()?;
        // No length has more digits.
        let window = &rest[..rest.len().min(6)];
        let read = window
            .iter()
            .position(|&byte| byte == b':')
            .and_then(|colon| {
                let length = usize::try_from(parse_decimal(&rest[..colon])?).ok()?;
                rest[colon + 1..].split_at_checked(length)
            });
        Some(read.map(|(text, rest)| {
            self.rest = rest;
            (letter, text)
        }))
    }
}

/// The points of one visitor between 0 and [`Share::WHOLE`]: one for each group, always the same.
#[derive(Default)]
struct Points {
    last: Option<(u8, u16)>,
}

impl Points {
    fn of(&mut self, group: u8, code: &Code, visitor: &impl Visitor) -> u16 {
        if let Some((known, point)) = self.last
            && known == group
        {
            return point;
        }
        let mut key = *b"shortlink share\0";
        key[15] = group;
        let input = [code.as_bytes(), visitor.address(), visitor.user_agent()].join(&0);
        let hash = siphash24(&key, &input);
        let point = ((u128::from(hash) * u128::from(Share::WHOLE)) >> 64) as u16;
        self.last = Some((group, point));
        point
    }
}

#[cfg(test)]
mod tests;
