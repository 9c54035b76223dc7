//! Conversions: actions of a link's visitors at its target, such as orders, as callers report them.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use vocabulary::{CampaignId, ClickId, Code};

/// The time by which the clock of a caller may be ahead.
pub const MAX_AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// The digits of a value before the point, and behind it.
const DIGITS: (usize, usize) = (9, 4);

/// A text that is no value of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a decimal number from 0 to 999999999.9999, such as 49.90, as a string")]
pub struct AmountError;

/// A text that is no currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the three capital letters of a currency (ISO 4217), such as EUR")]
pub struct CurrencyError;

/// An amount of money, in ten-thousandths of the currency's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount(pub i64);

impl FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |digits: &str, most| {
            (1..=most).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit())
        };
        if !is_number(whole, DIGITS.0) || !is_number(part, DIGITS.1) {
            return Err(AmountError);
        }
        let number = format!("{whole}{part:0<4}").parse();
        number.map(Self).map_err(|_error| AmountError)
    }
}

/// Without zeros at the end of the part behind the point.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        let text = format!("{whole}.{part:04}");
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// All refunds of a conversion together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refunded {
    /// All of it, with or without a value: it no longer counts.
    All,
    /// So much of its value; the rest counts if there is any.
    Amount(Amount),
}

/// A text that is no refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be all, or a decimal number such as 9.90, as a string")]
pub struct RefundedError;

impl FromStr for Refunded {
    type Err = RefundedError;

    fn from_str(text: &str) -> Result<Self, RefundedError> {
        let amount = || text.parse().map(Self::Amount);
        match text {
            "all" => Ok(Self::All),
            _ => amount().map_err(|_error| RefundedError),
        }
    }
}

/// A currency: the three letters of ISO 4217. Which codes are in use is not checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Currency([u8; 3]);

impl Currency {
    /// The letters.
    pub fn as_str(&self) -> &str {
        // Only ASCII letters become one.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Currency {
    type Err = CurrencyError;

    fn from_str(text: &str) -> Result<Self, CurrencyError> {
        let letters: [u8; 3] = text.as_bytes().try_into().map_err(|_error| CurrencyError)?;
        if letters.iter().all(u8::is_ascii_uppercase) {
            Ok(Self(letters))
        } else {
            Err(CurrencyError)
        }
    }
}

/// The link of a conversion, as the caller names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Converted {
    /// By its code.
    Code(Code),
    /// By the click id of one of its visits.
    ClickId(ClickId),
    /// By the caller's id, of one campaign if several links have it.
    ExternalId {
        /// The id.
        id: String,
        /// The campaign.
        campaign: Option<CampaignId>,
    },
}

/// A conversion as it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewConversion {
    /// Its link.
    pub of: Converted,
    /// The caller's id, by which a repetition is recognised among the conversions of the link.
    pub id: String,
    /// The time.
    pub at: Timestamp,
    /// The value, if it has one.
    pub value: Option<(Currency, Amount)>,
    /// The refunds of a conversion that was reported before, whose time and value stay.
    pub refunded: Option<Refunded>,
}

/// The outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionOutcome {
    /// The conversion or its refund is counted now.
    New(Code),
    /// The conversion, or a refund of as much, was counted already.
    Repeated(Code),
    /// The link has a conversion with this id and another value.
    Different(Code),
    /// The conversion is of a time whose visits were erased.
    Erased(Code),
    /// The link has no conversion with the id of a refund.
    NoConversion(Code),
    /// The conversion has a smaller value than its refund, or none.
    TooMuch(Code),
    /// The link does not exist.
    Unknown,
    /// Several links have the external id.
    Ambiguous,
}

/// Conversions with a common currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueTotal {
    /// The currency.
    pub currency: Currency,
    /// The number of conversions.
    pub conversions: u64,
    /// The sum of their values. Sums above 922,337,203,685,477 units are not counted on.
    pub value: Amount,
}

/// The conversions of a link or of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversionTotals {
    /// The number of links with a conversion.
    pub links: u64,
    /// The number of all conversions.
    pub conversions: u64,
    /// Conversions with a value, by currency.
    pub values: Vec<ValueTotal>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_exactly_and_written_without_zeros() {
        for (text, amount, shown) in [
            ("0", 0, "0"),
            ("49.90", 499_000, "49.9"),
            ("007.5", 75_000, "7.5"),
            ("1200", 12_000_000, "1200"),
            ("0.0001", 1, "0.0001"),
            ("999999999.9999", 9_999_999_999_999, "999999999.9999"),
        ] {
            let read: Amount = text.parse().expect(text);
            assert_eq!((read, &*read.to_string()), (Amount(amount), shown));
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "1 ",
            "0.00001",
            "1000000000",
            "1.2.3",
            "٣",
        ] {
            assert_eq!(text.parse::<Amount>(), Err(AmountError), "{text}");
        }
        assert_eq!(Amount(i64::MAX).to_string(), "922337203685477.5807");
    }

    #[test]
    fn refunds_are_amounts_or_all() {
        assert_eq!("all".parse(), Ok(Refunded::All));
        assert_eq!("9.9".parse(), Ok(Refunded::Amount(Amount(99_000))));
        for text in ["", "All", "-1", "all ", "1,5"] {
            assert_eq!(text.parse::<Refunded>(), Err(RefundedError), "{text}");
        }
    }

    #[test]
    fn currencies_have_three_capital_letters() {
        assert_eq!("EUR".parse::<Currency>().expect("one").as_str(), "EUR");
        for text in ["", "EU", "eur", "EURO", "E1R", "ÄB"] {
            assert_eq!(text.parse::<Currency>(), Err(CurrencyError), "{text}");
        }
    }
}
