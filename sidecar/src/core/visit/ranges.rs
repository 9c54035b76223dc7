//! The events of an origin that are already stored.
//!
//! An origin counts its events from 0 and reports nearly all of them, so what is stored are few
//! ranges however many events there are: that is all it takes to store none twice.

/// Sets of sequence numbers, as ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds a number; `false` when it is there already.
    pub fn add(&mut self, number: u64) -> bool {
        // Behind every range that begins at or before the number; mostly behind the last.
        let at = self.0.partition_point(|&(first, _)| first <= number);
        let before = at.checked_sub(1);
        if before.is_some_and(|before| number <= self.0[before].1) {
            return false;
        }
        let joins_before = before.filter(|&before| self.0[before].1 + 1 == number);
        let joins_after = self
            .0
            .get(at)
            .is_some_and(|&(first, _)| number.checked_add(1) == Some(first));
        match (joins_before, joins_after) {
            (Some(before), true) => {
                self.0[before].1 = self.0[at].1;
                self.0.remove(at);
            }
            (Some(before), false) => self.0[before].1 = number,
            (None, true) => self.0[at].0 = number,
            (None, false) => self.0.insert(at, (number, number)),
        }
        true
    }

    /// The ranges as text: `0-99 120 200-250`.
    pub fn to_text(&self) -> String {
        let ranges = self.0.iter().map(|&(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        });
        ranges.collect::<Vec<_>>().join(" ")
    }

    /// Reads what [`Ranges::to_text`] has written; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for range in text.split(' ').filter(|range| !range.is_empty()) {
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
                None => {
                    let number = range.parse().ok()?;
                    (number, number)
                }
            };
            let is_behind = ranges
                .last()
                .is_none_or(|&(_, end)| end.checked_add(1).is_some_and(|next| next < first));
            if first > last || !is_behind {
                return None;
            }
            ranges.push((first, last));
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
