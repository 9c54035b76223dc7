//! Chance, for tests that need random moments, and for those that replay them.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// Numbers that are others in every run, or the same ones for the same seed.
#[derive(Debug)]
pub struct Chance(u64);

impl Default for Chance {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0u8))
    }
}

impl Chance {
    /// The numbers of a seed.
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// One of several things, of which there is at least one.
    pub fn choose<'t, T>(&mut self, things: &'t [T]) -> &'t T {
        let place = self.below(things.len() as u64);
        &things[place as usize]
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (number ^ (number >> 31)) % end
    }

    /// A time that is shorter than `end`.
    pub fn time_below(&mut self, end: Duration) -> Duration {
        let end = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.below(end))
    }
}
