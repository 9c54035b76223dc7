//! Remembers what was asked for lately.
//!
//! Each recipient has a code of their own, and most codes are asked for once: to keep them would
//! push out what is asked for often. So an answer is kept when its code is asked for again. What
//! was asked for is remembered by 32 bits of its hash, among a few others that belong in the same
//! place; the next code there takes the place of the one that has been there longest, which makes
//! the memory forget at the speed at which codes come.

/// How many codes are remembered in one place. With one alone, two codes that share a place and
/// are asked for in turn would never be kept.
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

    /// Whether the code with this hash was asked for lately; it was from now on.
    #[inline]
    pub(super) fn knows(&mut self, hash: u64) -> bool {
        // The upper half of the hash, scaled to the number of places; the lower half is kept.
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
