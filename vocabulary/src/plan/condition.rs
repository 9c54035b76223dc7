//! Conditions of rules.
//!
//! ```text
//! d=ia                  an iPhone, iPad or iPod, or Android (the letters of `Device`)
//! l=de,pt-BR            the language that is asked for most is one of these, or a variety of one
//! c=DE,US-CA            the country is one of these, or the region
//! t=1760000000-         the time is in this validity
//! q=src                 the query has this parameter
//! q=src=ad%20two        the query has this parameter with this value
//! s=0.0-3000            the visitor is among these of 10,000, in the draw with the number 0
//! v=b                   always met: the name that visits by this rule carry
//! ```

use alloc::vec::Vec;

use super::{Device, Devices, MAX_VARIANT_LENGTH, Visitor};
use crate::language;
use crate::number::{parse_decimal, push_decimal};
use crate::validity::{Phase, Validity};

/// The part of all visitors for whom a rule is.
///
/// Shares of one group are of the same draw: a visitor has one point in it. So those that do not overlap divide the
/// visitors among them, and those of different groups are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The number of the draw.
    pub group: u8,
    /// The first point.
    pub from: u16,
    /// The point behind the last; more than `from`, at most [`Share::WHOLE`].
    pub until: u16,
}

impl Share {
    /// The number of points.
    pub const WHOLE: u16 = 10_000;

    fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = text.splitn(3, |&byte| matches!(byte, b'.' | b'-'));
        let mut number = || parse_decimal(parts.next()?);
        let share = Self {
            group: u8::try_from(number()?).ok()?,
            from: u16::try_from(number()?).ok()?,
            until: u16::try_from(number()?).ok()?,
        };
        (share.from < share.until && share.until <= Self::WHOLE).then_some(share)
    }

    /// Reports whether a point is part of it.
    #[inline]
    pub fn contains(self, point: u16) -> bool {
        (self.from..self.until).contains(&point)
    }
}

/// A condition, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// The device is one of these.
    Device(Devices),
    /// The language that is asked for most is one of these, separated by commas, or a variety of one.
    Language(&'a [u8]),
    /// The country, or the region with its country, is one of these, separated by commas.
    Country(&'a [u8]),
    /// The time is in this validity.
    Time(Validity),
    /// The query has a parameter, with a value if there is one here. Both are percent-encoded.
    Query(&'a [u8], Option<&'a [u8]>),
    /// The visitor is in a share of all.
    Share(Share),
    /// Always met: the name that visits carry.
    Variant(&'a [u8]),
}

impl<'a> Condition<'a> {
    /// Reads a condition; `None` when it is none that this version knows.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (&letter, rest) = text.split_first()?;
        let value = rest.strip_prefix(b"=")?;
        match letter {
            b'd' => Devices::parse(value).map(Self::Device),
            b'l' => is_list(value, is_language).then_some(Self::Language(value)),
            b'c' => is_list(value, is_place).then_some(Self::Country(value)),
            b't' => Validity::parse(value).map(Self::Time),
            b'q' => {
                let equals = value.iter().position(|&byte| byte == b'=');
                let (name, value) = match equals {
                    Some(equals) => (&value[..equals], Some(&value[equals + 1..])),
                    None => (value, None),
                };
                let is_read = !name.is_empty() && is_encoded(name) && value.is_none_or(is_encoded);
                is_read.then_some(Self::Query(name, value))
            }
            b's' => Share::parse(value).map(Self::Share),
            b'v' => is_variant(value).then_some(Self::Variant(value)),
            _ => None,
        }
    }

    /// Appends the condition as [`Condition::parse`] reads it.
    pub fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Device(devices) => {
                out.extend_from_slice(b"d=");
                devices.write(out);
            }
            Self::Language(list) => out.extend([b"l=", list].concat()),
            Self::Country(list) => out.extend([b"c=", list].concat()),
            Self::Time(validity) => {
                out.extend_from_slice(b"t=");
                validity.write(out);
            }
            Self::Query(name, None) => out.extend([b"q=", name].concat()),
            Self::Query(name, Some(value)) => out.extend([b"q=", name, b"=", value].concat()),
            Self::Share(share) => {
                out.extend_from_slice(b"s=");
                push_decimal(out, share.group.into());
                out.push(b'.');
                push_decimal(out, share.from.into());
                out.push(b'-');
                push_decimal(out, share.until.into());
            }
            Self::Variant(name) => out.extend([b"v=", name].concat()),
        }
    }

    /// Reports whether a visitor meets it at a time; a share is for [`Plan::choose`](super::Plan::choose) to decide.
    pub(super) fn is_met(&self, visitor: &impl Visitor, now: u64) -> bool {
        match *self {
            Self::Device(devices) => devices.contains(Device::of(visitor.user_agent())),
            Self::Language(list) => {
                let asked = language::preferred(visitor.accept_language());
                asked.is_some_and(|asked| {
                    items(list).any(|known| language::is_variety(asked, known))
                })
            }
            Self::Country(list) => {
                let (country, region) = (visitor.country(), visitor.region());
                !country.is_empty()
                    && items(list).any(|place| match place.split_at_checked(2) {
                        Some((of, [])) => of.eq_ignore_ascii_case(country),
                        Some((of, [_dash, part @ ..])) => {
                            of.eq_ignore_ascii_case(country) && part.eq_ignore_ascii_case(region)
                        }
                        None => false,
                    })
            }
            Self::Time(validity) => validity.at(now) == Phase::Live,
            Self::Query(name, value) => {
                let mut parameters = visitor.query().split(|&byte| byte == b'&');
                parameters.any(|parameter| {
                    let equals = parameter.iter().position(|&byte| byte == b'=');
                    let (of, has) = parameter.split_at(equals.unwrap_or(parameter.len()));
                    let has = has.get(1..).unwrap_or_default();
                    decoded(of).eq(decoded(name))
                        && value.is_none_or(|value| decoded(has).eq(decoded(value)))
                })
            }
            Self::Share(_) => false,
            Self::Variant(_) => true,
        }
    }
}

/// The conditions of a rule, in their order. One that can't be read is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions<'a>(&'a [u8]);

impl<'a> Conditions<'a> {
    pub(super) fn from_text(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// As they are written.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> IntoIterator for Conditions<'a> {
    type Item = Option<Condition<'a>>;
    type IntoIter = ConditionsIter<'a>;

    fn into_iter(self) -> ConditionsIter<'a> {
        ConditionsIter {
            rest: (!self.0.is_empty()).then_some(self.0),
        }
    }
}

/// See [`Conditions`].
#[derive(Clone, Debug)]
pub struct ConditionsIter<'a> {
    /// `None` behind the last.
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for ConditionsIter<'a> {
    type Item = Option<Condition<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest.take()?;
        let Some(end) = text.iter().position(|&byte| byte == b';') else {
            return Some(Condition::parse(text));
        };
        self.rest = Some(&text[end + 1..]);
        Some(Condition::parse(&text[..end]))
    }
}

/// Appends a condition to those of a rule.
pub fn push_condition(out: &mut Vec<u8>, condition: &Condition<'_>) {
    if !out.is_empty() {
        out.push(b';');
    }
    condition.write(out);
}

fn items(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b',')
}

fn is_list(list: &[u8], is_item: fn(&[u8]) -> bool) -> bool {
    items(list).all(is_item)
}

/// Reports whether a text has the form of a language tag (RFC 5646): letters and digits, in parts of one to eight.
pub(super) fn is_language(text: &[u8]) -> bool {
    let mut parts = text.split(|&byte| byte == b'-');
    let is_first = |part: &[u8]| (2..=8).contains(&part.len()) && part.is_ascii();
    parts.clone().next().is_some_and(is_first)
        && parts
            .all(|part| (1..=8).contains(&part.len()) && part.iter().all(u8::is_ascii_alphanumeric))
}

/// Reports whether a text is a country, or a region with its country: `DE`, `US-CA`.
pub(super) fn is_place(text: &[u8]) -> bool {
    let Some((country, rest)) = text.split_at_checked(2) else {
        return false;
    };
    let is_region = |region: &[u8]| {
        (1..=3).contains(&region.len()) && region.iter().all(u8::is_ascii_alphanumeric)
    };
    country.iter().all(u8::is_ascii_uppercase)
        && match rest {
            [] => true,
            [b'-', region @ ..] => is_region(region),
            _ => false,
        }
}

/// Reports whether a text can be the name of a variant.
pub(super) fn is_variant(text: &[u8]) -> bool {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_VARIANT_LENGTH).contains(&text.len()) && text.iter().all(is_fine)
}

/// Reports whether a text has unreserved characters of URLs and percent escapes only.
fn is_encoded(text: &[u8]) -> bool {
    crate::parameters::Parameters::parse(text).is_some() && !text.contains(&b'&')
}

/// The bytes that stand in a query, without escapes; what is no escape stands for itself.
fn decoded(text: &[u8]) -> impl Iterator<Item = u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut rest = text;
    core::iter::from_fn(move || {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        if byte == b'%'
            && let [high, low, behind @ ..] = behind
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            rest = behind;
            return Some(high << 4 | low);
        }
        Some(if byte == b'+' { b' ' } else { byte })
    })
}
