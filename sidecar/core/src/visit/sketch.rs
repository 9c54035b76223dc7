//! Estimates the number of distinct visitors without storing their ids.
//!
//! HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007) with the improved raw estimator of O. Ertl, "New cardinality
//! estimation algorithms for HyperLogLog sketches" (2017, arXiv:1702.01284). It has no bias at any number of visitors,
//! without tables and without a change to another estimator. A visitor's id is a keyed hash already, so its bits are
//! used as they are.
//!
//! The first bits of an id select a register, which holds the greatest rank of its visitors: the place of the first one
//! among the other bits. A small set lists the registers of 2^25 that have a visitor, so that its number is nearly
//! exact. A larger one has 2^15 registers, whose standard error is 1.04 / √2^15, which is 0.57 %: 99.9 of 100
//! estimates are within 2 %. Earlier versions had 2^12.
//!
//! A register of fewer bits stands for several of more bits, and its rank follows from theirs: the bits in between are
//! the first ones of the rest. So the result of folding is the same as if all visitors had been added to fewer
//! registers, and sketches of any size can be merged.

mod stored;

pub use stored::Stored;

use super::visitor::VisitorId;

/// The number of bits that select a register of a large set, of a small one, and of one that an earlier version stored.
const BITS: u32 = 15;
const BITS_OF_FEW: u32 = 25;
const BITS_BEFORE: u32 = 12;

/// The most registers that are listed one by one.
const MOST_LISTED: usize = 480;

/// The highest rank; ranks above it count as this one. No number of visitors reaches it.
const MAX_RANK: u8 = 63;

/// A set of visitors.
#[derive(Clone, PartialEq, Eq)]
pub struct Sketch(Registers);

#[derive(Clone, PartialEq, Eq)]
enum Registers {
    /// Those of 2^[`BITS_OF_FEW`] that have a visitor, by their numbers in ascending order, with their ranks.
    Listed(Vec<(u32, u8)>),
    /// The ranks of all 2^`bits`, which are 0 without a visitor.
    All { bits: u32, ranks: Box<[u8]> },
}

impl Default for Sketch {
    /// Returns the sketch of the empty set.
    fn default() -> Self {
        Self(Registers::Listed(Vec::new()))
    }
}

impl Sketch {
    /// Adds a visitor, who may have been added before.
    pub fn add(&mut self, visitor: VisitorId) {
        let bits = self.bits();
        let (register, rank) = place(visitor, bits);
        self.raise(register, rank, bits);
    }

    /// Adds all visitors of another sketch. The result has the registers of the one with fewer.
    pub fn merge(&mut self, other: &Self) {
        let bits = other.bits();
        if bits < self.bits() {
            self.fold(bits);
        }
        match &other.0 {
            Registers::Listed(list) => {
                for &(register, rank) in list {
                    self.raise(register, rank, bits);
                }
            }
            Registers::All { ranks, .. } => {
                for (register, &rank) in (0..).zip(ranks) {
                    if rank > 0 {
                        self.raise(register, rank, bits);
                    }
                }
            }
        }
    }

    /// Estimates the number of visitors.
    pub fn estimate(&self) -> u64 {
        let mut counts = [0_u32; MAX_RANK as usize + 1];
        match &self.0 {
            Registers::Listed(list) => {
                counts[0] = (1 << BITS_OF_FEW) - list.len() as u32;
                for (_, rank) in list {
                    counts[usize::from(*rank)] += 1;
                }
            }
            Registers::All { ranks, .. } => {
                for rank in ranks {
                    counts[usize::from(*rank)] += 1;
                }
            }
        }
        estimate(&counts)
    }

    /// The number of bits that select a register.
    fn bits(&self) -> u32 {
        match &self.0 {
            Registers::Listed(_) => BITS_OF_FEW,
            Registers::All { bits, .. } => *bits,
        }
    }

    /// Raises a register, of at least as many bits as this sketch has, to a rank.
    fn raise(&mut self, register: u32, rank: u8, bits: u32) {
        match &mut self.0 {
            Registers::Listed(list) => {
                match list.binary_search_by_key(&register, |(register, _)| *register) {
                    Ok(place) => list[place].1 = list[place].1.max(rank),
                    Err(place) => list.insert(place, (register, rank)),
                }
                if list.len() > MOST_LISTED {
                    self.fold(BITS);
                }
            }
            Registers::All { bits: to, ranks } => {
                let (register, rank) = folded(register, rank, bits, *to);
                let kept = &mut ranks[register as usize];
                *kept = rank.max(*kept);
            }
        }
    }

    /// Replaces the registers by fewer.
    fn fold(&mut self, bits: u32) {
        let mut fewer = Self::of(bits, vec![0; 1 << bits].into());
        fewer.merge(self);
        *self = fewer;
    }

    fn of(bits: u32, ranks: Box<[u8]>) -> Self {
        Self(Registers::All { bits, ranks })
    }
}

/// The register of a visitor among 2^`bits`, and the rank there.
fn place(visitor: VisitorId, bits: u32) -> (u32, u8) {
    let id = u128::from_be_bytes(visitor.0);
    let rank = (id << bits).leading_zeros() + 1;
    (
        (id >> (u128::BITS - bits)) as u32,
        rank.min(MAX_RANK.into()) as u8,
    )
}

/// The register, and its rank, of fewer bits that a visitor has whose register and rank are known.
fn folded(register: u32, rank: u8, from: u32, to: u32) -> (u32, u8) {
    let between = from - to;
    // The bits in between, at the top.
    let first = register.checked_shl(u32::BITS - between).unwrap_or(0);
    let rank = match first {
        0 => u32::from(rank) + between,
        _ => first.leading_zeros() + 1,
    };
    (register >> between, rank.min(MAX_RANK.into()) as u8)
}

/// Estimates the number of visitors from the numbers of registers by rank.
fn estimate(counts: &[u32; MAX_RANK as usize + 1]) -> u64 {
    let counts = counts.map(f64::from);
    let all: f64 = counts.iter().sum();
    let highest = usize::from(MAX_RANK);
    let mut sum = all * tau(1.0 - counts[highest] / all);
    for count in counts[1..highest].iter().rev() {
        sum = 0.5 * (sum + count);
    }
    sum += all * sigma(counts[0] / all);
    (all * all / (2.0 * std::f64::consts::LN_2 * sum)).round() as u64
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
mod tests;
