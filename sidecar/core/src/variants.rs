//! Results of A/B tests.

use jiff::Timestamp;

use crate::conversion::ValueTotal;

/// The clicks and the conversions of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantResult {
    /// The name of the variant; empty for all other visits, which were counted while there were variants.
    pub variant: String,
    /// The number of links with human visits by it.
    pub links: u64,
    /// The number of their visits.
    pub visits: u64,
    /// The time of the first one.
    pub first_at: Timestamp,
    /// The time of the last one.
    pub last_at: Timestamp,
    /// The number of links with conversions that count for it.
    pub converted: u64,
    /// The number of these conversions.
    pub conversions: u64,
    /// Conversions with a value, by currency.
    pub values: Vec<ValueTotal>,
}

/// A proportion of trials that succeeded, with the bounds of its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proportion {
    /// Successes by trials, 0 to 1.
    pub rate: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// The quantile of the normal distribution for a confidence of 95%: 2.5% of it are above.
const Z: f64 = 1.959_963_984_540_054;

impl Proportion {
    /// The proportion with its score interval by Wilson of 95%; `None` without trials. More successes than trials count as
    /// so many.
    ///
    /// The bounds are the solutions p of |s/n − p| = z √(p (1 − p) / n): the proportions from which what was observed is
    /// just not too far. E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of
    /// the American Statistical Association 22 (1927), 209–212. Unlike the interval around s/n that is usual, it is right
    /// for few trials and for rates near 0.
    pub fn wilson(successes: u64, trials: u64) -> Option<Self> {
        if trials == 0 {
            return None;
        }
        let n = trials as f64;
        let rate = successes.min(trials) as f64 / n;
        let square = Z * Z;
        let middle = rate + square / (2.0 * n);
        let reach = Z * (rate * (1.0 - rate) / n + square / (4.0 * n * n)).sqrt();
        let scale = 1.0 + square / n;
        Some(Self {
            rate,
            low: ((middle - reach) / scale).clamp(0.0, rate),
            high: ((middle + reach) / scale).clamp(rate, 1.0),
        })
    }
}

/// The place of the greatest rate, and whether its interval is above that of the next one; `None` without two rates, or if
/// two are the greatest.
pub fn leader(rates: &[Option<Proportion>]) -> Option<(usize, bool)> {
    let known = rates.iter().enumerate();
    let mut known: Vec<(usize, Proportion)> = known
        .filter_map(|(place, rate)| Some((place, (*rate)?)))
        .collect();
    known.sort_by(|one, other| other.1.rate.total_cmp(&one.1.rate));
    let [(place, first), (_, next), ..] = *known else {
        return None;
    };
    (first.rate > next.rate).then_some((place, first.low > next.high))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn intervals_are_those_of_other_programs() {
        // The solutions of the equation, found by bisection.
        for (successes, trials, low, high) in [
            (0, 10, 0.0, 0.277_532_8),
            (10, 10, 0.722_467_2, 1.0),
            (1, 1, 0.206_549_3, 1.0),
            (10, 100, 0.055_229_1, 0.174_365_6),
            (50, 100, 0.403_831_5, 0.596_168_5),
            (25, 1000, 0.016_990_1, 0.036_645_3),
        ] {
            let it = Proportion::wilson(successes, trials).expect("trials");
            assert!((it.low - low).abs() < 1e-6, "{successes}/{trials} {it:?}");
            assert!((it.high - high).abs() < 1e-6, "{successes}/{trials} {it:?}");
        }
        assert_eq!(Proportion::wilson(1, 0), None);
        assert_eq!(Proportion::wilson(3, 2), Proportion::wilson(2, 2));
    }

    #[test]
    fn the_leader_is_ahead_of_all_others_or_not_yet() {
        let rate = |successes, trials| Proportion::wilson(successes, trials);
        assert_eq!(leader(&[rate(50, 100), rate(10, 100)]), Some((0, true)));
        assert_eq!(leader(&[rate(10, 100), rate(12, 100)]), Some((1, false)));
        // Another one has few visits.
        assert_eq!(
            leader(&[rate(50, 100), rate(10, 100), rate(1, 4)]),
            Some((0, false))
        );
        assert_eq!(leader(&[rate(1, 10), rate(10, 100)]), None);
        assert_eq!(leader(&[rate(1, 10), None]), None);
        assert_eq!(leader(&[]), None);
    }

    proptest! {
        #[test]
        fn bounds_are_as_far_from_the_rate_as_chance_explains(
            trials in 1_u64..100_000, part in 0.0..=1.0_f64,
        ) {
            let successes = (trials as f64 * part) as u64;
            let it = Proportion::wilson(successes, trials).expect("trials");
            prop_assert!(0.0 <= it.low && it.low <= it.rate && it.rate <= it.high && it.high <= 1.0);
            for bound in [it.low, it.high] {
                let chance = Z * (bound * (1.0 - bound) / trials as f64).sqrt();
                prop_assert!(((it.rate - bound).abs() - chance).abs() < 1e-6, "{it:?}");
            }
        }
    }
}
