//! Deduplication: requests that get the link of an identical one.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

/// The earlier requests whose link a request accepts, if it is identical to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dedupe {
    /// It gets a new link.
    #[default]
    Never,
    /// It accepts the link of an identical request, however long ago that was.
    Always,
    /// It accepts the link of an identical request if the last one was not longer ago.
    Within(Window),
}

impl Dedupe {
    /// The window, if there is one.
    pub fn window(self) -> Option<Window> {
        match self {
            Self::Within(window) => Some(window),
            Self::Never | Self::Always => None,
        }
    }
}

/// The time within which identical requests get the same link. Each of them renews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(u32);

impl Window {
    /// The most seconds: ten years of 365 days.
    pub const MOST_SECONDS: u32 = 10 * 365 * 86_400;

    /// The form of its text, as a regular expression.
    pub const PATTERN: &str = "^[1-9][0-9]{0,8}[smhd]$";

    /// The number of seconds, at least one.
    pub fn seconds(self) -> u32 {
        self.0
    }

    /// Reports whether a request at a moment is within the window of the last one. Clocks of two processes differ, and
    /// a clock is set back: a last request in the future counts like one as far in the past, so that a clock that was
    /// wrong for a while extends no window by more than the window itself.
    pub fn covers(self, last: Timestamp, now: Timestamp) -> bool {
        let elapsed = now.duration_since(last).abs();
        elapsed <= SignedDuration::from_secs(self.0.into())
    }
}

/// The text is no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a duration from 1s to 3650d: a whole number and a unit (s, m, h or d), such as 1h"
)]
pub struct WindowError;

impl FromStr for Window {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let (number, unit) = text
            .split_at_checked(text.len().saturating_sub(1))
            .ok_or(WindowError)?;
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return Err(WindowError),
        };
        // Neither a sign nor a leading zero.
        let begins = number.starts_with(|first: char| matches!(first, '1'..='9'));
        let number: Option<u32> = number.parse().ok().filter(|_| begins);
        let seconds = number.and_then(|number| number.checked_mul(unit));
        let seconds = seconds.filter(|seconds| *seconds <= Self::MOST_SECONDS);
        seconds.map(Self).ok_or(WindowError)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::moment;

    #[test]
    fn a_window_has_a_number_and_a_unit() {
        for (text, seconds) in [
            ("1s", 1),
            ("90s", 90),
            ("15m", 900),
            ("1h", 3600),
            ("7d", 604_800),
            ("3650d", Window::MOST_SECONDS),
            ("315360000s", Window::MOST_SECONDS),
        ] {
            let window = text.parse::<Window>().expect(text);
            assert_eq!(window.seconds(), seconds);
            assert_eq!(window.to_string().parse(), Ok(window));
        }
        for text in [
            "",
            "s",
            "1",
            "0s",
            "01s",
            "+1s",
            "-1s",
            "1.5h",
            "1 h",
            "1w",
            "1H",
            "h1",
            "3651d",
            "315360001s",
            "4294967295d",
            "99999999999s",
            "1ü",
        ] {
            assert_eq!(text.parse::<Window>(), Err(WindowError), "{text}");
        }
    }

    #[test]
    fn a_window_reaches_as_far_into_the_future_as_into_the_past() {
        let window: Window = "1h".parse().expect("a window");
        let now = moment("2026-06-01T12:00:00Z");
        for (last, is_covered) in [
            ("2026-06-01T12:00:00Z", true),
            ("2026-06-01T11:00:00Z", true),
            ("2026-06-01T10:59:59.999Z", false),
            ("2026-06-01T13:00:00Z", true),
            ("2026-06-01T13:00:00.001Z", false),
        ] {
            assert_eq!(window.covers(moment(last), now), is_covered, "{last}");
        }
    }
}
