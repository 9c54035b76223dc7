//! The intervals of statistics in a time zone.
//!
//! Visits are counted by hours of UTC. A day of a time zone therefore begins with the hour of UTC that has its first
//! moment: in a zone whose offset has half an hour, such as India's, at 23:30.

use jiff::tz::TimeZone;
use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};
use shortlink_core::ports::{CountQuery, Hours, Intervals};

use super::query::values;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// A time zone with a name in the IANA database.
pub(super) struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    /// UTC.
    pub(super) fn utc() -> Self {
        Self {
            name: "UTC".to_owned(),
            zone: TimeZone::UTC,
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        let zone = TimeZone::get(name).ok()?;
        let name = zone.iana_name()?.to_owned();
        Some(Self { name, zone })
    }

    /// The name in the database, such as `Asia/Shanghai`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The start of the interval that contains an hour of UTC, itself an hour of UTC.
    pub(super) fn begin_of(&self, length: Hours, hour: Timestamp) -> Timestamp {
        match length {
            Hours::One => hour,
            Hours::Day => self.day_of(hour).unwrap_or(hour),
        }
    }

    /// The start of the day that contains the last moment of an hour. That hour belongs to it, for the day before ends
    /// with the hour before.
    fn day_of(&self, hour: Timestamp) -> Result<Timestamp, jiff::Error> {
        let last = hour.checked_add(HOUR - SignedDuration::from_nanos(1))?;
        let first = last.to_zoned(self.zone.clone()).start_of_day()?;
        Ok(floor(first.timestamp(), Unit::Hour))
    }

    /// The parts of a period in which the zone has one offset, in which intervals follow from arithmetic.
    /// [`Zone::begin_of`] finds the start of an interval whose day begins in the part before.
    pub(super) fn parts(&self, length: Hours, query: &CountQuery) -> Vec<(CountQuery, Intervals)> {
        if length == Hours::One {
            return vec![(*query, Intervals { length, ahead: 0 })];
        }
        let changes = self.zone.following(query.since);
        let mut bounds = vec![query.since];
        for change in changes.take_while(|change| change.timestamp() < query.until) {
            let at = floor(change.timestamp(), Unit::Hour);
            if bounds.last().is_some_and(|last| *last < at) {
                bounds.push(at);
            }
        }
        let ends = bounds.iter().skip(1).copied().chain([query.until]);
        let parts = bounds.iter().zip(ends).map(|(&since, until)| {
            // An hour later the offset is the new one even where the change is within the hour.
            let offset = self.zone.to_offset(since + HOUR).seconds();
            let ahead = i64::from(offset).div_euclid(3600) + i64::from(offset % 3600 != 0);
            let part = CountQuery {
                since,
                until,
                ..*query
            };
            (part, Intervals { length, ahead })
        });
        parts.collect()
    }
}

/// Rounds a moment down to a whole unit.
pub(super) fn floor(at: Timestamp, unit: Unit) -> Timestamp {
    let round = TimestampRound::new().smallest(unit).mode(RoundMode::Floor);
    at.round(round).unwrap_or(at)
}

values! {
    Zone: Zone::by_name, "the name of a time zone, such as Asia/Shanghai or UTC";
}

#[cfg(test)]
mod tests {
    use shortlink_core::ports::Counted;
    use shortlink_core::testing::moment;

    use super::*;

    /// The starts of all days of a period, hour by hour and by the parts.
    fn days(zone: &str, since: &str, until: &str) -> Vec<String> {
        let zone = Zone::by_name(zone).expect("a zone");
        let query = CountQuery {
            of: Counted::All,
            since: moment(since),
            until: moment(until),
        };
        let mut days = Vec::new();
        let parts = zone.parts(Hours::Day, &query);
        let mut next = query.since;
        for (part, Intervals { ahead, .. }) in parts {
            assert_eq!(part.since, next);
            next = part.until;
            let mut hour = part.since;
            while hour < part.until {
                let number = hour.as_second() / 3600;
                let begin = (number + ahead).div_euclid(24) * 24 - ahead;
                let begin = Timestamp::from_second(begin * 3600).expect("a time");
                let by_hour = zone.begin_of(Hours::Day, hour);
                assert_eq!(
                    zone.begin_of(Hours::Day, begin.max(part.since)),
                    by_hour,
                    "{hour}"
                );
                if days.last() != Some(&by_hour) {
                    days.push(by_hour);
                }
                hour += HOUR;
            }
        }
        assert_eq!(next, query.until);
        days.iter()
            .map(|day| day.strftime("%d %H").to_string())
            .collect()
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let begins = days(
            "Asia/Shanghai",
            "2026-03-01T00:00:00Z",
            "2026-03-03T00:00:00Z",
        );
        assert_eq!(begins, ["28 16", "01 16", "02 16"]);
        let begins = days("UTC", "2026-03-01T05:00:00Z", "2026-03-03T00:00:00Z");
        assert_eq!(begins, ["01 00", "02 00"]);
        // A day of 23 hours and one of 25.
        let begins = days(
            "Europe/Vienna",
            "2026-03-28T00:00:00Z",
            "2026-03-31T00:00:00Z",
        );
        assert_eq!(begins, ["27 23", "28 23", "29 22", "30 22"]);
        let begins = days(
            "America/Sao_Paulo",
            "2026-03-28T00:00:00Z",
            "2026-03-29T00:00:00Z",
        );
        assert_eq!(begins, ["27 03", "28 03"]);
        // Half an hour is rounded down.
        let begins = days(
            "Asia/Kolkata",
            "2026-03-28T00:00:00Z",
            "2026-03-29T00:00:00Z",
        );
        assert_eq!(begins, ["27 18", "28 18"]);
    }

    #[test]
    fn parts_agree_with_the_zone_wherever_clocks_change() {
        // Clocks change at midnight, by half an hour, and a day that does not exist.
        for zone in [
            "America/Havana",
            "Africa/Cairo",
            "Asia/Beirut",
            "Australia/Lord_Howe",
            "Asia/Kathmandu",
            "America/St_Johns",
            "Pacific/Chatham",
            "America/Santiago",
        ] {
            let days = days(zone, "2025-01-15T07:00:00Z", "2026-12-20T11:00:00Z");
            assert!((705..=706).contains(&days.len()), "{zone}: {}", days.len());
        }
        let days = days(
            "Pacific/Apia",
            "2011-12-28T00:00:00Z",
            "2012-01-02T00:00:00Z",
        );
        assert_eq!(days.len(), 6, "{days:?}");
    }

    #[test]
    fn a_zone_has_a_name() {
        let name = |text| Zone::by_name(text).map(|zone| zone.name().to_owned());
        assert_eq!(name("asia/shanghai").as_deref(), Some("Asia/Shanghai"));
        assert_eq!(name("UTC").as_deref(), Some("UTC"));
        for text in ["", "Mars/Olympus", "+02:00", "../../etc/passwd"] {
            assert_eq!(name(text), None, "{text}");
        }
    }
}
