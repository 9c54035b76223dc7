//! Simple statistics on permuted codes do not reveal the order in which they were issued.
//!
//! Each measure is shown to detect an order where there is one: in plain counting, and in counting
//! by a large step modulo the size, which looks random to the eye.

use std::collections::HashSet;

use shortlink_core::codes::numbering::{CodeKey, Numbering};
use vocabulary::{Alphabet, Check};

use super::statistics::{FAR, chi_squared, chi_squared_limit, correlation, ranks, sorted_places};

const LENGTH: usize = 7;
const COUNT: usize = 20_000;

/// Number of bodies.
const SIZE: u64 = 62_u64.pow(LENGTH as u32);

/// The numbers that the bodies of codes represent, in order of issue.
fn issued() -> Vec<u64> {
    let numbering = Numbering::new(&CodeKey::new([8; 32]));
    let check = Check::Luhn;
    let codes = (0..).filter_map(|count| numbering.issued(Alphabet::Base62, &check, LENGTH, count));
    let value = |body: &[u8]| {
        body.iter().fold(0, |value, &character| {
            let digit = Alphabet::Base62.digit(character).expect("a digit");
            value * 62 + u64::from(digit)
        })
    };
    codes
        .take(COUNT)
        .map(|code| value(&code.as_bytes()[..LENGTH]))
        .collect()
}

/// Plain counting.
fn counted() -> Vec<u64> {
    (1_000_000..).take(COUNT).collect()
}

/// Counting by a large step.
fn stepped() -> Vec<u64> {
    let at = |count| u128::from(count) * 1_358_987_654_321 % u128::from(SIZE);
    (0..COUNT as u64).map(|count| at(count) as u64).collect()
}

fn as_floats(values: &[u64]) -> Vec<f64> {
    values.iter().map(|&value| value as f64).collect()
}

/// The correlation between the order of issue and the order of the codes, in standard deviations.
fn rank_correlation(values: &[u64]) -> f64 {
    let order: Vec<u64> = (0..values.len() as u64).collect();
    correlation(&as_floats(&order), &ranks(values)) * (values.len() as f64).sqrt()
}

/// The correlation between a code and the one issued `lag` later, in standard deviations.
fn serial_correlation(values: &[u64], lag: usize) -> f64 {
    let values = as_floats(values);
    let count = values.len() - lag;
    correlation(&values[..count], &values[lag..]) * (count as f64).sqrt()
}

/// The excess of ascents over half of the codes, in standard deviations. An ascent is a code larger
/// than the one before.
fn ascents(values: &[u64]) -> f64 {
    let ascents = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let count = values.len() as f64;
    (ascents as f64 - (count - 1.0) / 2.0) / ((count + 1.0) / 12.0).sqrt()
}

/// The deviation of the distance in issue order between neighbours in sorted order from that of
/// random codes, in standard deviations.
fn sorted_distance(values: &[u64]) -> f64 {
    let places = sorted_places(values);
    let distances = places.windows(2).map(|pair| pair[0].abs_diff(pair[1]));
    let count = values.len() as f64;
    let mean = distances.sum::<usize>() as f64 / (count - 1.0);
    // The mean distance of two random places is a third of the count, with a standard deviation of
    // 1 / √18 of it.
    (mean - count / 3.0) / (count / 18.0_f64.sqrt() / count.sqrt())
}

/// Differences between successive codes.
fn differences(values: &[u64]) -> Vec<u64> {
    let pairs = values.windows(2);
    pairs
        .map(|pair| (pair[1] + SIZE - pair[0]) % SIZE)
        .collect()
}

/// Returns true when the values are uniform and unique: among so few values of so large a range, a
/// duplicate would reveal a pattern.
fn are_spread(values: &[u64]) -> bool {
    let mut counts = vec![0; 256];
    for &value in values {
        counts[(value * 256 / SIZE) as usize] += 1;
    }
    let different: HashSet<&u64> = values.iter().collect();
    chi_squared(&counts) < chi_squared_limit(counts.len()) && different.len() == values.len()
}

#[test]
fn the_order_of_codes_tells_nothing_of_the_order_of_issue() {
    let found = rank_correlation(&issued());
    assert!(found.abs() < FAR, "{found}");
    let found = sorted_distance(&issued());
    assert!(found.abs() < FAR, "{found}");
    assert!(rank_correlation(&counted()) > 100.0);
    assert!(sorted_distance(&counted()) < -100.0);
    assert!(sorted_distance(&stepped()).abs() > FAR);
}

#[test]
fn a_code_tells_nothing_of_the_next() {
    let issued = issued();
    for lag in 1..=100 {
        let found = serial_correlation(&issued, lag);
        assert!(found.abs() < FAR, "{lag}: {found}");
    }
    let found = ascents(&issued);
    assert!(found.abs() < FAR, "{found}");
    for weak in [counted(), stepped()] {
        assert!(serial_correlation(&weak, 1).abs() > FAR);
        assert!(ascents(&weak).abs() > FAR);
    }
}

#[test]
fn differences_tell_nothing() {
    let issued = issued();
    assert!(are_spread(&issued));
    let first = differences(&issued);
    assert!(are_spread(&first));
    assert!(are_spread(&differences(&first)));
    assert!(!are_spread(&differences(&counted())));
    assert!(!are_spread(&differences(&stepped())));
    // The XOR of successive codes does not repeat either.
    let mixed: Vec<u64> = issued.windows(2).map(|pair| pair[0] ^ pair[1]).collect();
    let different: HashSet<&u64> = mixed.iter().collect();
    assert_eq!(different.len(), mixed.len());
}
