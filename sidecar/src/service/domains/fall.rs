//! Whether a domain is visited far less than shortly before, as one that is blocked.
//!
//! The rule: a domain has fallen at a minute if it had been visited steadily for ten minutes (eight of
//! them with at least a quarter of their mean), and from that minute on, for three minutes at least, it
//! has had no more than 15% of that mean, neither in the first five minutes nor in all since. It is said
//! only when those first minutes would have had 50 visits: fewer may stay away by chance. Visits after
//! many messages were sent fade over minutes and are no fall; a stroke of many at once is not steady.

/// How many minutes tell how often a domain was visited before.
pub const BEFORE: usize = 10;

/// How many of them need how many visits, as a part of their mean.
const STEADY: usize = 8;
const STEADY_PART: f64 = 0.25;

/// How many minutes there must have been since, and how many of them are looked at on their own.
const LEAST: usize = 3;
const FIRST: usize = 5;

/// How many visits there may be since, as a part of what there were before.
const LEFT: f64 = 0.15;

/// How many visits the first minutes would have had.
const ENOUGH: f64 = 50.0;

/// A fall of a domain's visits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fall {
    /// The place of the minute at which it fell.
    pub at: usize,
    /// How many visits a minute there were before.
    pub before: f64,
    /// How many there are since.
    pub since: f64,
}

/// Finds the first fall that still lasts, in the visits of whole minutes that follow each other.
pub fn find(minutes: &[u64]) -> Option<Fall> {
    let last = minutes.len().checked_sub(LEAST)?;
    (BEFORE..=last).find_map(|at| {
        let (earlier, later) = minutes.split_at(at);
        let earlier = &earlier[at - BEFORE..];
        let before = mean(earlier);
        let first = &later[..later.len().min(FIRST)];
        let steady = earlier
            .iter()
            .filter(|visits| **visits as f64 >= before * STEADY_PART);
        let fell = before * first.len() as f64 >= ENOUGH
            && steady.count() >= STEADY
            && mean(first) <= before * LEFT
            && mean(later) <= before * LEFT;
        fell.then(|| Fall {
            at,
            before,
            since: mean(later),
        })
    })
}

fn mean(minutes: &[u64]) -> f64 {
    minutes.iter().sum::<u64>() as f64 / minutes.len() as f64
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn hour(of: impl Fn(usize) -> u64) -> Vec<u64> {
        (0..60).map(of).collect()
    }

    #[test]
    fn a_cliff_is_a_fall_for_as_long_as_it_lasts() {
        let blocked = hour(|n| if n < 50 { 120 } else { 3 });
        let expected = Fall {
            at: 50,
            before: 120.0,
            since: 3.0,
        };
        assert_eq!(find(&blocked), Some(expected));
        assert_eq!(find(&blocked[..53]), Some(expected));
        // Not at the first minute that is missing, and not when the visits are back.
        assert_eq!(find(&blocked[..52]), None);
        let back = hour(|n| if (30..40).contains(&n) { 3 } else { 120 });
        assert_eq!(find(&back), None);
        let at = find(&hour(|n| if n < 10 { 20 } else { 0 })).map(|fall| fall.at);
        assert_eq!(at, Some(10));
    }

    #[test]
    fn what_is_usual_is_no_fall() {
        for (why, minutes) in [
            ("nothing", hour(|_| 0)),
            ("few", hour(|n| if n < 50 { 9 } else { 0 })),
            ("steady", hour(|_| 100)),
            ("less", hour(|n| if n < 50 { 100 } else { 30 })),
            // Half as many every five minutes, as after a batch of messages.
            (
                "fading",
                hour(|n| (4000.0 * 0.5_f64.powf(n as f64 / 5.0)) as u64),
            ),
            ("a stroke", hour(|n| if n == 45 { 5000 } else { 0 })),
            (
                "now and then",
                hour(|n| if n % 10 == 0 && n < 50 { 900 } else { 0 }),
            ),
            ("too short", vec![100; 2]),
        ] {
            assert_eq!(find(&minutes), None, "{why}");
        }
    }

    #[test]
    fn chance_alone_makes_no_fall() {
        let mut random = StdRng::seed_from_u64(1);
        for round in 0..300 {
            // Each of 100 phones comes with the same small chance in a minute.
            let chance = f64::from(10 + round % 40) / 100.0;
            let minutes: Vec<u64> = (0..60)
                .map(|_| (0..100).filter(|_| random.random_bool(chance)).count() as u64)
                .collect();
            assert_eq!(find(&minutes), None, "{minutes:?}");
        }
    }
}
