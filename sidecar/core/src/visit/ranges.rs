//! The events of an origin that are already stored.
//!
//! An origin counts its events from 0 and reports nearly all of them, so the stored ones form few
//! ranges, however many events there are. The ranges suffice to deduplicate events.

use std::ops::RangeInclusive;

use rangemap::RangeInclusiveSet;

/// Sets of sequence numbers, as ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(RangeInclusiveSet<u64>);

impl Ranges {
    /// Adds a number; `false` when it is there already.
    pub fn add(&mut self, number: u64) -> bool {
        let is_new = !self.0.contains(&number);
        if is_new {
            self.0.insert(number..=number);
        }
        is_new
    }

    /// The ranges as text: `0-99 120 200-250`.
    pub fn to_text(&self) -> String {
        let ranges = self.0.iter().map(|range| {
            let (first, last) = (range.start(), range.end());
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        });
        ranges.collect::<Vec<_>>().join(" ")
    }

    /// Parses the output of [`Ranges::to_text`]; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut ranges = RangeInclusiveSet::new();
        for range in text.split(' ').filter(|range| !range.is_empty()) {
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
                None => {
                    let number = range.parse().ok()?;
                    (number, number)
                }
            };
            let is_behind = ranges.last().is_none_or(|before: &RangeInclusive<u64>| {
                before.end().checked_add(1).is_some_and(|next| next < first)
            });
            if first > last || !is_behind {
                return None;
            }
            ranges.insert(first..=last);
        }
        Some(Self(ranges))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_grow_and_join() {
        let mut ranges = Ranges::default();
        for (number, is_new, text) in [
            (5, true, "5"),
            (5, false, "5"),
            (7, true, "5 7"),
            (6, true, "5-7"),
            (0, true, "0 5-7"),
            (4, true, "0 4-7"),
            (u64::MAX, true, "0 4-7 18446744073709551615"),
            (
                u64::MAX - 1,
                true,
                "0 4-7 18446744073709551614-18446744073709551615",
            ),
        ] {
            assert_eq!(ranges.add(number), is_new, "{number}");
            assert_eq!(ranges.to_text(), text);
            assert_eq!(Ranges::parse(text), Some(ranges.clone()));
        }
        for wrong in ["x", "1-", "2-1", "1 2", "3-5 5", "5 3", "-1", "1--2"] {
            assert_eq!(Ranges::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn they_are_a_set(numbers in proptest::collection::vec(0_u64..64, 0..200)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(ranges.add(number), set.insert(number));
                prop_assert_eq!(Ranges::parse(&ranges.to_text()), Some(ranges.clone()));
            }
        }
    }
}
