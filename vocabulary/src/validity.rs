//! From when and until when a link or a campaign is live.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use crate::number::{parse_decimal, push_decimal};

/// The last second that a validity may name: the end of the year 9999.
pub const MAX_MOMENT: u64 = 253_402_300_799;

/// The time in which a link or a campaign is live, in seconds since 1970.
///
/// Written as `0` (always), `<until>`, `<since>-<until>` or `<since>-`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    since: Option<NonZeroU64>,
    until: Option<NonZeroU64>,
}

/// Phase of a validity at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has not begun: answered like an unknown code.
    Early,
    /// It is live.
    Live,
    /// It is over: 410.
    Over,
}

impl Phase {
    /// Finds the phase at a time between two bounds, in seconds since 1970.
    #[inline]
    pub fn at(now: u64, since: Option<NonZeroU64>, until: Option<NonZeroU64>) -> Self {
        if until.is_some_and(|until| now >= until.get()) {
            Self::Over
        } else if since.is_some_and(|since| now < since.get()) {
            Self::Early
        } else {
            Self::Live
        }
    }
}

impl Validity {
    /// Without bounds.
    pub const ALWAYS: Self = Self {
        since: None,
        until: None,
    };

    /// The most bytes that a validity is written with.
    pub(crate) const LONGEST: usize = "253402300799-253402300799".len();

    /// Takes the first second and the second from which it is over; `None` when one of them is
    /// beyond [`MAX_MOMENT`], or it would be over before it begins.
    pub fn new(since: Option<NonZeroU64>, until: Option<NonZeroU64>) -> Option<Self> {
        let is_moment =
            |moment: Option<NonZeroU64>| moment.is_none_or(|moment| moment.get() <= MAX_MOMENT);
        let is_span = match (since, until) {
            (Some(since), Some(until)) => since < until,
            _ => true,
        };
        (is_moment(since) && is_moment(until) && is_span).then_some(Self { since, until })
    }

    /// The first second, if there is one.
    #[inline]
    pub fn since(self) -> Option<NonZeroU64> {
        self.since
    }

    /// The second from which it is over, if there is one.
    #[inline]
    pub fn until(self) -> Option<NonZeroU64> {
        self.until
    }

    /// Returns the phase at a moment, in seconds since 1970.
    #[inline]
    pub fn at(self, now: u64) -> Phase {
        Phase::at(now, self.since, self.until)
    }

    /// Reads a validity; `None` when it is none.
    #[inline]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let Some(dash) = text.iter().position(|&byte| byte == b'-') else {
            return Self::new(None, NonZeroU64::new(parse_decimal(text)?));
        };
        let since = NonZeroU64::new(parse_decimal(&text[..dash])?)?;
        let until = match &text[dash + 1..] {
            b"" => None,
            until => Some(NonZeroU64::new(parse_decimal(until)?)?),
        };
        Self::new(Some(since), until)
    }

    /// Appends the validity as [`Validity::parse`] reads it.
    pub fn write(self, out: &mut Vec<u8>) {
        if let Some(since) = self.since {
            push_decimal(out, since.get());
            out.push(b'-');
        }
        match (self.since, self.until) {
            (_, Some(until)) => push_decimal(out, until.get()),
            (None, None) => out.push(b'0'),
            (Some(_), None) => {}
        }
    }
}
