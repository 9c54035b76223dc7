//! The ways in which files write times.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// The least number that is a time: in seconds below [`LEAST_MILLISECONDS`], and in milliseconds
/// from it on. Both begin on 3 March 1973. Less would more likely be a date without its dashes.
const LEAST_SECONDS: i64 = 100_000_000;
const LEAST_MILLISECONDS: i64 = 100_000_000_000;

/// The contents of a cell for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// No time: `0`, `0000-00-00 00:00:00`.
    None,
    /// A time.
    At(Timestamp),
}

/// Reads RFC 3339, `YYYY-MM-DD` with or without `HH:MM:SS` (in UTC), or the seconds or milliseconds
/// since 1970; `None` for anything else. Times are cut to milliseconds.
pub fn parse(text: &str) -> Option<Moment> {
    if text == "0" || text.starts_with("0000-00-00") {
        return Some(Moment::None);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let moment = if is_number(whole) && is_number(fraction) {
        let number: i64 = whole.parse().ok()?;
        match number {
            LEAST_MILLISECONDS.. => Timestamp::from_millisecond(number).ok()?,
            LEAST_SECONDS.. => Timestamp::from_second(number).ok()?,
            _ => return None,
        }
    } else {
        let utc = |time: DateTime| Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp());
        // A date has its dashes.
        if text.as_bytes().get(4) != Some(&b'-') || text.as_bytes().get(7) != Some(&b'-') {
            return None;
        }
        if text.len() == "0000-00-00".len() {
            utc(text.parse::<Date>().ok()?.at(0, 0, 0, 0))?
        } else {
            match text.parse::<Timestamp>() {
                Ok(moment) => moment,
                Err(_) => utc(text.parse::<DateTime>().ok()?)?,
            }
        }
    };
    Timestamp::from_millisecond(moment.as_millisecond())
        .ok()
        .map(Moment::At)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_common_way() {
        let expected = "2021-06-01T12:30:00Z".parse().expect("a moment");
        for text in [
            "2021-06-01T12:30:00Z",
            "2021-06-01t14:30:00+02:00",
            "2021-06-01 12:30:00",
            "2021-06-01T12:30:00",
            "2021-06-01 12:30",
            "2021-06-01 12:30:00+00:00",
            "2021-06-01T12:30:00.0004Z",
            "1622550600",
            "1622550600.0",
            "1622550600000",
        ] {
            assert_eq!(parse(text), Some(Moment::At(expected)), "{text}");
        }
        let day = "2021-06-01T00:00:00Z".parse().expect("a moment");
        assert_eq!(parse("2021-06-01"), Some(Moment::At(day)));
        for text in ["0", "0000-00-00 00:00:00", "0000-00-00"] {
            assert_eq!(parse(text), Some(Moment::None), "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_time() {
        for text in [
            "",
            "20210601",
            "1",
            "-5",
            "01/06/2021",
            "2021-02-30",
            "2021-06-01 25:00:00",
            "2021-06-01T12:30:00+99:00",
            "99999999999999999999",
            "1622550600000000000",
            "1.",
            ".5",
            "1622550600.x",
            "soon",
            "2021\u{e9}6-01",
            "2021-06-01\0",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
