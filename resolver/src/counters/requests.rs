//! Outcomes of requests, and the sources of answers: the labels of `shortlink_requests_total`.

/// Makes an enum of the values of a label.
macro_rules! label {
    (
        $(#[$about:meta])*
        $label:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $label {
            $($(#[$doc])* $value,)+
        }

        impl $label {
            /// All values, in the order in which they are shown.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// The value's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }
    };
}

label! {
    /// Outcome of a request.
    Outcome {
        /// Answered with the link's redirect.
        Redirect = "redirect",
        /// Answered 410: the link was revoked or has expired.
        Gone = "gone",
        /// Answered 404: SQL knows no such link.
        Unknown = "unknown",
        /// Answered 404: the path names no code.
        Malformed = "malformed",
        /// Answered 404: the check character is wrong.
        WrongCheck = "wrong_check",
        /// Answered 405.
        Method = "method",
        /// Redis had no usable record; handed to the fallback, if there is one.
        Miss = "miss",
        /// Redis gave no usable answer in time; handed to the fallback, if there is one.
        Unavailable = "unavailable",
        /// Refused: the address has asked for too many codes that do not exist.
        Limited = "limited",
    }
}

label! {
    /// Source of an answer.
    Source {
        /// None was needed.
        None = "none",
        /// The cache.
        Cache = "cache",
        /// The cache, with a record past its time because Redis could not be asked.
        Stale = "stale",
        /// Redis.
        Redis = "redis",
        /// The fallback location.
        Fallback = "fallback",
    }
}

/// The place of a combination among all of them. There is one for those that should not happen
/// as well: a mistake elsewhere must neither lose a request nor count it as something else.
#[inline]
pub(super) const fn index(outcome: Outcome, source: Source) -> usize {
    outcome as usize * Source::ALL.len() + source as usize
}

/// Reports whether a combination can happen: these are shown even when they are 0, so that an alert
/// finds them before the first request; others only once they are counted.
pub(super) const fn can_happen(outcome: Outcome, source: Source) -> bool {
    match outcome {
        Outcome::Redirect | Outcome::Gone | Outcome::Unknown => {
            matches!(source, Source::Cache | Source::Stale | Source::Redis)
        }
        Outcome::Malformed | Outcome::WrongCheck | Outcome::Method | Outcome::Limited => {
            matches!(source, Source::None)
        }
        Outcome::Miss => matches!(source, Source::Redis | Source::Fallback),
        Outcome::Unavailable => matches!(source, Source::None | Source::Fallback),
    }
}
