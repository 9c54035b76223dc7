//! Rules that can never match, because the earlier ones take all their visitors.

use vocabulary::language::is_variety;
use vocabulary::plan::{Devices, Share};

use super::rule::Conditions;

/// Finds the last of the earlier rules without which a rule could match; `None` if it can match.
pub(super) fn covered_by(earlier: &[&Conditions], rule: &Conditions) -> Option<usize> {
    let mut points = 0;
    for (place, one) in earlier.iter().enumerate() {
        if !one.meets_all_of(rule) {
            continue;
        }
        match one.points {
            None => return Some(place),
            // Shares do not overlap: together they can be all visitors, but none of another share.
            Some(share) if rule.points.is_none() => points += u32::from(share),
            Some(_) => {}
        }
        if points >= u32::from(Share::WHOLE) {
            return Some(place);
        }
    }
    None
}

impl Conditions {
    /// Reports whether all visitors of another rule meet these conditions, apart from the share.
    fn meets_all_of(&self, other: &Self) -> bool {
        let device = self.devices == Devices::default()
            || other.devices != Devices::default()
                && other.devices.iter().all(|it| self.devices.contains(it));
        let language = covers(&self.languages, &other.languages, |known, asked| {
            is_variety(asked.as_bytes(), known.as_bytes())
        });
        let place = covers(&self.places, &other.places, |known, place| {
            place.eq_ignore_ascii_case(known) || place.split('-').next() == Some(known)
        });
        let since = self.since <= other.since;
        let until = match (self.until, other.until) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(other)) => end >= other,
        };
        let query = match (&self.query, &other.query) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some((name, value)), Some((of, has))) => {
                name == of && (value.is_none() || value == has)
            }
        };
        device && language && place && since && until && query
    }
}

/// Reports whether each of `others` is covered by one of a list, which is a condition unless it is empty.
fn covers(list: &[String], others: &[String], is_covered: impl Fn(&str, &str) -> bool) -> bool {
    let of_list = |other: &String| list.iter().any(|known| is_covered(known, other));
    list.is_empty() || !others.is_empty() && others.iter().all(of_list)
}
