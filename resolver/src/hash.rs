//! Hashes codes.
//!
//! Codes come from strangers, so the hash depends on a secret seed: without it an attacker could
//! request codes that all collide in one place of a table. It need not be more than that, and most
//! codes have at most 16 bytes, so that a few multiplications are enough.

use std::hash::{BuildHasher, Hasher};

use vocabulary::{CampaignId, Code};

/// The fractional part of the golden ratio, and another odd number without pattern.
const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xd1b5_4a32_d192_ed03;

/// A hash function of codes, one of 2^64.
#[derive(Clone, Copy, Debug)]
pub struct CodeHashing {
    seed: u64,
}

impl CodeHashing {
    /// Chooses a hash function.
    pub fn new(seed: u64) -> Self {
        Self {
            seed: fold(seed ^ FIRST, SECOND),
        }
    }

    /// Hashes a code.
    #[inline]
    pub fn hash(self, code: &Code) -> u64 {
        self.hash_one(code)
    }

    /// Hashes a campaign's id.
    #[inline]
    pub fn hash_campaign(self, id: CampaignId) -> u64 {
        self.hash_one(id.get())
    }
}

impl BuildHasher for CodeHashing {
    type Hasher = CodeHasher;

    #[inline]
    fn build_hasher(&self) -> CodeHasher {
        CodeHasher { state: self.seed }
    }
}

/// Hashes what a code says of itself.
#[derive(Debug)]
pub struct CodeHasher {
    state: u64,
}

impl Hasher for CodeHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.state = fold(self.state ^ number, FIRST);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, SECOND)
    }
}

/// Multiplies to twice the width and folds the halves together, so that every bit of either side
/// reaches every bit of the result.
#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_spread_over_all_bits_and_differently_for_each_seed() {
        let codes = (0..20_000).map(|number: u32| format!("c{number}"));
        let codes: Vec<Code> = codes.map(|text| text.parse().expect("a code")).collect();
        for seed in [0, 1, u64::MAX] {
            let hashing = CodeHashing::new(seed);
            // 20,000 hashes over 65,536 places: 17,200 or so places are expected to be hit.
            for shift in [0, 16, 32, 48] {
                let places: HashSet<u64> = codes
                    .iter()
                    .map(|code| (hashing.hash(code) >> shift) & 0xffff)
                    .collect();
                assert!((16_800..17_600).contains(&places.len()), "{}", places.len());
            }
        }
        let one = codes[0];
        assert_ne!(
            CodeHashing::new(1).hash(&one),
            CodeHashing::new(2).hash(&one)
        );
    }
}
