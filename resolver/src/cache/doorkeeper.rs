//! Remembers the codes that were requested recently.
//!
//! Each recipient has a code of their own, and most codes are requested once: caching these would
//! evict the frequently requested ones. So an answer is cached when its code is requested for the
//! second time. A code is remembered by 32 bits of its hash, among a few others that belong in the
//! same place; the next code there replaces the oldest, so the memory forgets at the speed at which
//! codes come.

/// The number of codes remembered in one place. With only one, two codes that share a place and are
/// requested alternately would never be cached.
const WAYS: usize = 4;

#[derive(Debug)]
pub(super) struct Doorkeeper {
    /// The newest first; zero stands for nothing.
    places: Box<[[u32; WAYS]]>,
}

impl Doorkeeper {
    /// Makes one of at most so many bytes, but for the least that there can be.
    pub(super) fn new(bytes: usize) -> Self {
        let count = (bytes / size_of::<[u32; WAYS]>()).max(1);
        Self {
            places: vec![[0; WAYS]; count].into_boxed_slice(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.len() * size_of::<[u32; WAYS]>()
    }

    /// Reports whether the code with this hash was requested lately, and remembers it.
    #[inline]
    pub(super) fn knows(&mut self, hash: u64) -> bool {
        // The upper half of the hash, scaled to the number of places; the lower half is stored.
        let index = ((hash >> 32) * self.places.len() as u64) >> 32;
        let print = (hash as u32).max(1);
        let Some(place) = self.places.get_mut(index as usize) else {
            return false;
        };
        if place.contains(&print) {
            return true;
        }
        place.rotate_right(1);
        place[0] = print;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn what_was_asked_for_lately_is_known() {
        let mut doorkeeper = Doorkeeper::new(4096);
        for number in 1..100 {
            assert!(!doorkeeper.knows(hash(number)));
            assert!(doorkeeper.knows(hash(number)));
        }
        assert!(!doorkeeper.knows(0));
        assert!(doorkeeper.knows(0));
        // After many others it is forgotten.
        for number in 100..100_000 {
            doorkeeper.knows(hash(number));
        }
        let known = (1..100).filter(|&number| doorkeeper.knows(hash(number)));
        assert!(known.count() < 2);
    }

    #[test]
    fn codes_that_come_in_turn_are_known_as_long_as_there_is_room() {
        let mut doorkeeper = Doorkeeper::new(4096);
        for number in 0..500 {
            doorkeeper.knows(hash(number));
        }
        let known = (0..500).filter(|&number| doorkeeper.knows(hash(number)));
        assert!(known.count() > 480, "of 500 in 1024");
    }
}
