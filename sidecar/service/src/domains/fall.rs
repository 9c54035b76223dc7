//! Detection of suspected blocked domains, whose visits collapse.
//!
//! The rule: a domain is suspected blocked from a minute on if it was visited steadily in the ten
//! minutes before (eight of them with at least a quarter of their mean), and has since had at most
//! 15% of that mean for at least three minutes, both in the first five minutes and in all minutes
//! since. At the earlier rate, those first minutes must amount to 50 visits: fewer may be missing
//! by chance. Visits after a mass mailing fade over minutes and do not match; a short burst is not
//! steady.

/// Minutes from which the earlier rate is calculated.
pub const BEFORE: usize = 10;

/// Number of those minutes that must be steady, and their least part of the mean.
const STEADY: usize = 8;
const STEADY_PART: f64 = 0.25;

/// The least number of minutes since, and the number of first minutes that are judged on their own.
pub(super) const LEAST: usize = 3;
pub(super) const FIRST: usize = 5;

/// The most visits since, as a part of the earlier rate.
const LEFT: f64 = 0.15;

/// The least number of visits expected in the first minutes.
pub(super) const ENOUGH: f64 = 50.0;

/// A collapse of a domain's visits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fall {
    /// Index of its first minute.
    pub at: usize,
    /// Visits per minute before.
    pub before: f64,
    /// Visits per minute since.
    pub since: f64,
}

/// Finds the first collapse that still lasts, in the visits of consecutive whole minutes.
pub fn find(minutes: &[u64]) -> Option<Fall> {
    let last = minutes.len().checked_sub(LEAST)?;
    (BEFORE..=last).find_map(|at| find_at(minutes, at))
}

/// Reports the collapse that begins at a minute and still lasts, if there is one.
pub(super) fn find_at(minutes: &[u64], at: usize) -> Option<Fall> {
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
        // Not before the third minute with few visits, and not after visits are back.
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
            // Visits halve every five minutes, as after a mass mailing.
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
            // Each of 100 phones visits with the same small probability per minute.
            let chance = f64::from(10 + round % 40) / 100.0;
            let minutes: Vec<u64> = (0..60)
                .map(|_| (0..100).filter(|_| random.random_bool(chance)).count() as u64)
                .collect();
            assert_eq!(find(&minutes), None, "{minutes:?}");
        }
    }
}
