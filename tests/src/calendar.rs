//! The time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970.
///
/// # Panics
/// When the system's clock is before that.
#[expect(
    clippy::disallowed_methods,
    reason = "nginx goes by the system's clock, and so do validity windows"
)]
pub fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time after 1970")
}

/// The current second since 1970.
pub fn now() -> u64 {
    since_1970().as_secs()
}

/// RFC 3339 of a second since 1970, by the calendar's rules.
pub fn format_time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    let lengths = [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!(
        "{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
        month + 1,
        day + 1
    )
}
