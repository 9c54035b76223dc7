//! Measures of randomness. Keys and seeds are fixed, so the tests are deterministic.

/// The largest accepted deviation, in standard deviations. Chance exceeds it once in half a million
/// times.
pub(super) const FAR: f64 = 4.75;

/// Chi-squared statistic against a uniform distribution: the sum over all cells of the squared
/// difference from the expected count, divided by it.
pub(super) fn chi_squared(counts: &[u32]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let expected = sum / counts.len() as f64;
    let squares = counts
        .iter()
        .map(|&count| (f64::from(count) - expected).powi(2));
    squares.sum::<f64>() / expected
}

/// Upper limit of [`chi_squared`] of so many cells, which chance exceeds once in a million times
/// (Wilson and Hilferty's approximation).
pub(super) fn chi_squared_limit(cells: usize) -> f64 {
    let freedom = (cells - 1) as f64;
    let ninth = 2.0 / (9.0 * freedom);
    freedom * (1.0 - ninth + FAR * ninth.sqrt()).powi(3)
}

/// Correlation of two series, from -1 to 1. Unrelated series have about 0, with a standard
/// deviation of one over the root of their length.
pub(super) fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let mean = |series: &[f64]| series.iter().sum::<f64>() / series.len() as f64;
    let (mean_one, mean_other) = (mean(one), mean(other));
    let pairs = || one.iter().zip(other);
    let together: f64 = pairs()
        .map(|(x, y)| (x - mean_one) * (y - mean_other))
        .sum();
    let spread = |series: &[f64], mean: f64| -> f64 {
        series.iter().map(|value| (value - mean).powi(2)).sum()
    };
    together / (spread(one, mean_one) * spread(other, mean_other)).sqrt()
}

/// Returns the number of smaller values for each value.
pub(super) fn ranks(values: &[u64]) -> Vec<f64> {
    let mut ranks = vec![0.0; values.len()];
    for (rank, place) in sorted_places(values).into_iter().enumerate() {
        ranks[place] = rank as f64;
    }
    ranks
}

/// Returns the places of the values in ascending order of value.
pub(super) fn sorted_places(values: &[u64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    places.sort_unstable_by_key(|&place| values[place]);
    places
}

/// The limits agree with published tables.
#[test]
fn the_limit_of_chi_squared_is_that_of_tables() {
    for (cells, expected) in [(57, 121.35), (62, 128.52), (101, 182.13), (3844, 4274.2)] {
        let limit = chi_squared_limit(cells);
        assert!((limit / expected - 1.0).abs() < 0.005, "{cells}: {limit}");
    }
}
