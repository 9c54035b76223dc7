//! Campaigns, which define the target of many links.

use core::fmt;
use core::num::NonZeroU64;

use crate::alphabet::Alphabet;

/// The number of a campaign, 1 to [`CampaignId::LARGEST`].
///
/// It is written in the digits of [`Alphabet::Base62`] without leading zeros, because it stands in
/// the record of every link of the campaign: a million campaigns need four characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CampaignId(NonZeroU64);

impl CampaignId {
    /// The smallest.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The largest number: 2^40 - 1.
    pub const LARGEST: u64 = (1 << 40) - 1;

    /// The most characters that a number is written with.
    pub const LONGEST: usize = 7;

    /// Takes a number; `None` unless it is one of a campaign.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= Self::LARGEST => Some(Self(number)),
            _ => None,
        }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Reads a number as it is written; `None` for anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > Self::LONGEST || text.first() == Some(&b'0') {
            return None;
        }
        let number = text.iter().try_fold(0, |number, &character| {
            let digit = Alphabet::Base62.digit(character)?;
            Some(number * 62 + u64::from(digit))
        });
        Self::new(number?)
    }

    /// Lends the number as it is written.
    pub fn with_text<R>(self, take: impl FnOnce(&[u8]) -> R) -> R {
        let mut digits = [0; Self::LONGEST];
        let mut start = digits.len();
        let mut rest = self.get();
        while rest > 0 {
            start -= 1;
            digits[start] = Alphabet::Base62.character((rest % 62) as u8);
            rest /= 62;
        }
        take(&digits[start..])
    }
}

impl fmt::Display for CampaignId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The digits are ASCII.
        self.with_text(|text| f.pad(core::str::from_utf8(text).unwrap_or_default()))
    }
}

impl fmt::Debug for CampaignId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CampaignId({self})")
    }
}

impl core::str::FromStr for CampaignId {
    type Err = CampaignIdError;

    fn from_str(text: &str) -> Result<Self, CampaignIdError> {
        Self::parse(text.as_bytes()).ok_or(CampaignIdError)
    }
}

/// The text is not the number of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CampaignIdError;

impl fmt::Display for CampaignIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a campaign's id has 1 to 7 of the characters 0-9, A-Z and a-z, the first not 0, and \
             stands for a number below 2^40",
        )
    }
}

impl core::error::Error for CampaignIdError {}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_number_is_written_in_one_way() {
        for (number, text) in [
            (1, "1"),
            (10, "A"),
            (61, "z"),
            (62, "10"),
            (62 * 62 - 1, "zz"),
            (CampaignId::LARGEST, "JMAIjoV"),
        ] {
            let id = CampaignId::new(number).expect("in range");
            assert_eq!(id.to_string(), text);
            assert_eq!(text.parse(), Ok(id));
            assert_eq!(id.get(), number);
        }
        for text in [
            "", "0", "01", "a-b", "JMAIjoW", "zzzzzzz", "00000001", "10000000",
        ] {
            assert_eq!(CampaignId::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(CampaignId::new(0), None);
        assert_eq!(CampaignId::new(CampaignId::LARGEST + 1), None);
    }
}
