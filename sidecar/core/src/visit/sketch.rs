//! Estimates the number of distinct visitors without storing their ids.
//!
//! HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007) with the improved raw estimator of O. Ertl, "New cardinality
//! estimation algorithms for HyperLogLog sketches" (2017, arXiv:1702.01284). It has no bias at any number of visitors,
//! without tables and without a change to another estimator. A visitor's id is a keyed hash already, so its bits are
//! used as they are. The standard error is 1.04 / √4096, which is 1.6 %.

use super::visitor::VisitorId;

/// The number of registers, and the number of bits that select one.
const REGISTERS: usize = 1 << BITS;
const BITS: u32 = 12;

/// The highest value of a register: all other bits are zero.
const MAX_RANK: usize = (u128::BITS - BITS + 1) as usize;

/// A set of visitors: a byte for each register.
#[derive(Clone, PartialEq, Eq)]
pub struct Sketch(Box<[u8]>);

impl Default for Sketch {
    /// Returns the sketch of the empty set.
    fn default() -> Self {
        Self(vec![0; REGISTERS].into_boxed_slice())
    }
}

impl Sketch {
    /// Adds a visitor, who may have been added before.
    pub fn add(&mut self, visitor: VisitorId) {
        let bits = u128::from_be_bytes(visitor.0);
        let register = (bits >> (u128::BITS - BITS)) as usize;
        // The place of the first one among the rest, from 1 on.
        let rest = bits << BITS;
        let rank = (rest.leading_zeros() + 1).min(MAX_RANK as u32) as u8;
        self.0[register] = self.0[register].max(rank);
    }

    /// Adds all visitors of another sketch.
    pub fn merge(&mut self, other: &Self) {
        for (rank, other) in self.0.iter_mut().zip(&other.0) {
            *rank = (*rank).max(*other);
        }
    }

    /// Estimates the number of visitors.
    pub fn estimate(&self) -> u64 {
        let mut registers = [0_u32; MAX_RANK + 1];
        for &rank in &self.0 {
            registers[usize::from(rank).min(MAX_RANK)] += 1;
        }
        let registers = registers.map(f64::from);
        let all = REGISTERS as f64;
        let mut sum = all * tau(1.0 - registers[MAX_RANK] / all);
        for count in registers[1..MAX_RANK].iter().rev() {
            sum = 0.5 * (sum + count);
        }
        sum += all * sigma(registers[0] / all);
        (all * all / (2.0 * std::f64::consts::LN_2 * sum)).round() as u64
    }

    /// The registers, to be stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Restores a sketch from [`Sketch::as_bytes`]; `None` for anything of another length.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() == REGISTERS).then(|| Self(bytes.into_boxed_slice()))
    }
}

/// The correction for registers without a visitor, by their share: x + Σ x^(2^k) 2^(k-1). Infinite if all are empty.
fn sigma(mut share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut sum, mut power) = (share, 1.0);
    loop {
        share *= share;
        let before = sum;
        sum += share * power;
        power *= 2.0;
        if sum == before {
            return sum;
        }
    }
}

/// The correction for registers with the highest rank, by the share of all others:
/// (1 - x - Σ (1 - x^(2^-k))² 2^-k) / 3.
fn tau(mut share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut sum, mut power) = (1.0 - share, 1.0);
    loop {
        share = share.sqrt();
        let before = sum;
        power *= 0.5;
        sum -= (1.0 - share).powi(2) * power;
        if sum == before {
            return sum / 3.0;
        }
    }
}

impl std::fmt::Debug for Sketch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sketch(about {})", self.estimate())
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn sketch(visitors: usize, seed: u64) -> Sketch {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut sketch = Sketch::default();
        for _ in 0..visitors {
            let mut id = [0; 16];
            rng.fill_bytes(&mut id);
            sketch.add(VisitorId(id));
            sketch.add(VisitorId(id));
        }
        sketch
    }

    /// Uniform ids, without the cost of a cryptographic generator in a debug build (SplitMix64).
    fn ids(mut state: u64) -> impl Iterator<Item = VisitorId> {
        let mut word = move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            u128::from(mixed ^ (mixed >> 31))
        };
        std::iter::repeat_with(move || VisitorId(((word() << 64) | word()).to_be_bytes()))
    }

    /// The estimator of 2007 has its largest error where it changes over from linear counting, at 10,500 visitors: bias
    /// 2 %, error 2.6 %. From 20 visitors per register on, the distribution of errors repeats with every doubling.
    #[test]
    fn the_estimate_has_no_bias_and_the_standard_error_at_every_size() {
        const SIZES: [usize; 12] = [
            10, 100, 1_000, 3_000, 6_000, 9_000, 10_500, 12_000, 16_000, 30_000, 80_000, 160_000,
        ];
        const STREAMS: u64 = 128;
        let standard_error = 1.04 / (REGISTERS as f64).sqrt();
        let mut errors = [const { Vec::new() }; SIZES.len()];
        for seed in 0..STREAMS {
            let (mut sketch, mut ids) = (Sketch::default(), ids(seed << 32));
            let mut added = 0;
            for (errors, size) in errors.iter_mut().zip(SIZES) {
                ids.by_ref()
                    .take(size - added)
                    .for_each(|id| sketch.add(id));
                added = size;
                errors.push(sketch.estimate() as f64 / size as f64 - 1.0);
            }
        }
        for (errors, size) in errors.iter().zip(SIZES) {
            let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / STREAMS as f64;
            let bias = mean(&mut errors.iter().copied());
            let error = mean(&mut errors.iter().map(|error| error * error)).sqrt();
            println!(
                "{size}: bias {:.2} %, error {:.2} %",
                bias * 100.0,
                error * 100.0
            );
            assert!(bias.abs() < 0.005, "{size}: bias {bias}");
            assert!(error < 1.15 * standard_error, "{size}: error {error}");
            // Small sets are counted more exactly.
            let is_large = size >= 4 * REGISTERS;
            assert!(
                !is_large || error > 0.85 * standard_error,
                "{size}: error {error}"
            );
        }
    }

    #[test]
    fn visitors_are_counted_once() {
        assert_eq!(Sketch::default().estimate(), 0);
        assert_eq!(sketch(1, 1).estimate(), 1);
        // Every register is full.
        let full = Sketch(vec![u8::MAX; REGISTERS].into_boxed_slice());
        assert_eq!(full.estimate(), u64::MAX);
    }

    #[test]
    fn two_sketches_make_one_of_all() {
        let (mut one, other) = (sketch(3000, 1), sketch(4000, 2));
        let before = one.clone();
        one.merge(&before);
        assert_eq!(one, before);
        one.merge(&other);
        let off = (one.estimate() as f64 / 7000.0 - 1.0).abs();
        assert!(off < 0.065, "{}", one.estimate());
    }

    #[test]
    fn a_sketch_is_read_as_it_was() {
        let sketch = sketch(1000, 7);
        let again = Sketch::from_bytes(sketch.as_bytes().to_vec());
        assert_eq!(again, Some(sketch));
        assert_eq!(Sketch::from_bytes(vec![0; 7]), None);
        let mut all_zero = Sketch::default();
        all_zero.add(VisitorId([0; 16]));
        assert_eq!(all_zero.estimate(), 1);
    }
}
