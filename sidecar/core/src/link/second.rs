//! Whole seconds, in which links begin and end.

use std::num::NonZeroU64;

use jiff::{SignedDuration, Timestamp};

/// A whole second after the first of 1970: a bound of a link's validity. Records in Redis have no
/// fractions of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Second(NonZeroU64);

impl Second {
    /// The whole second that a moment falls into; `None` up to the first second of 1970.
    pub fn at(moment: Timestamp) -> Option<Self> {
        let second = u64::try_from(moment.as_second()).ok()?;
        NonZeroU64::new(second).map(Self)
    }

    /// The first whole second that is not before a moment; `None` up to the first second of 1970.
    pub fn not_before(moment: Timestamp) -> Option<Self> {
        let rest = SignedDuration::from_nanos(999_999_999);
        Self::at(moment.checked_add(rest).unwrap_or(Timestamp::MAX))
    }

    /// The moment at which it begins.
    pub fn moment(self) -> Timestamp {
        // Only moments make seconds, so that the way back is always open.
        Timestamp::from_second(self.get() as i64).unwrap_or(Timestamp::MAX)
    }

    /// The seconds since 1970.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The seconds since 1970, as records have them.
    pub fn non_zero(self) -> NonZeroU64 {
        self.0
    }
}

/// Returns the whole seconds since 1970, as records and their judge count time; 0 before.
pub fn since_1970(moment: Timestamp) -> u64 {
    Second::at(moment).map_or(0, Second::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_cut_at_the_end_and_filled_up_at_the_beginning() {
        for (moment, at, not_before) in [
            ("1969-12-31T23:59:58Z", None, None),
            ("1970-01-01T00:00:00Z", None, None),
            ("1970-01-01T00:00:00.5Z", None, Some(1)),
            ("1970-01-01T00:00:01Z", Some(1), Some(1)),
            ("1970-01-01T00:00:01.000000001Z", Some(1), Some(2)),
            ("1970-01-01T00:00:01.999Z", Some(1), Some(2)),
        ] {
            let moment: Timestamp = moment.parse().expect("a moment");
            assert_eq!(Second::at(moment).map(Second::get), at, "{moment}");
            let filled = Second::not_before(moment).map(Second::get);
            assert_eq!(filled, not_before, "{moment}");
        }
        let last = Second::not_before(Timestamp::MAX).expect("a second");
        assert!(last.moment() <= Timestamp::MAX);
    }
}
