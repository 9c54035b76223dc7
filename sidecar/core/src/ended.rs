//! The time for which Redis has the records of ended links.
//!
//! The fallback answers 410 for an ended link without a record, so that its record is of use only while visitors still
//! come. Every writer of records follows [`EndedDays::stay`]; the records expire by themselves.

/// The life in seconds of a record that is written although its link needs none any more: a burst of visitors reaches
/// SQL once.
pub const BRIEF_S: u64 = 300;

/// The days for which Redis has the record of a link from its end on; 0 for as long as the link exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedDays(pub u32);

/// The life of a record from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// As long as the link exists.
    Lasting,
    /// This number of seconds, more than [`BRIEF_S`].
    Until(u64),
    /// Redis needs no record of the link. If one is written all the same, it stays for [`BRIEF_S`].
    Over,
}

impl EndedDays {
    /// The life of the record of a link that has ended in a second, or has not.
    pub fn stay(self, ended_s: Option<u64>, now_s: u64) -> Stay {
        let Some(ended_s) = ended_s.filter(|_| self.0 > 0) else {
            return Stay::Lasting;
        };
        let whole = u64::from(self.0) * 86_400;
        match whole.saturating_sub(now_s.saturating_sub(ended_s)) {
            ..=BRIEF_S => Stay::Over,
            left => Stay::Until(left),
        }
    }
}

impl Stay {
    /// The seconds after which Redis deletes a record that is written now; `None` for never.
    pub fn expiry_s(self) -> Option<u64> {
        match self {
            Self::Lasting => None,
            Self::Until(seconds) => Some(seconds),
            Self::Over => Some(BRIEF_S),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_stays_for_some_days_from_the_end_of_its_link_on() {
        let (days, now) = (EndedDays(2), 1_000_000);
        let whole = 2 * 86_400;
        for (ended, stay) in [
            (None, Stay::Lasting),
            (Some(now), Stay::Until(whole)),
            // A clock that is behind makes no life longer.
            (Some(now + 50), Stay::Until(whole)),
            (Some(now - 60), Stay::Until(whole - 60)),
            (Some(now - whole + BRIEF_S + 1), Stay::Until(BRIEF_S + 1)),
            (Some(now - whole + BRIEF_S), Stay::Over),
            (Some(now - whole), Stay::Over),
            (Some(0), Stay::Over),
        ] {
            assert_eq!(days.stay(ended, now), stay, "{ended:?}");
            assert_eq!(EndedDays(0).stay(ended, now), Stay::Lasting);
        }
        assert_eq!(Stay::Over.expiry_s(), Some(BRIEF_S));
        assert_eq!(Stay::Lasting.expiry_s(), None);
    }
}
