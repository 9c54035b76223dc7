//! Remembers what was asked for lately.
//!
//! Each recipient has a code of their own, and most codes are asked for once: to keep them would
//! push out what is asked for often. So an answer is kept when its code is asked for again. What
//! was asked for is remembered by 32 bits of its hash in one place; the next code that belongs in
//! the place takes it over, which makes the memory forget at the speed at which codes come.

#[derive(Debug)]
pub(super) struct Doorkeeper {
    /// Zero stands for nothing.
    places: Box<[u32]>,
}

impl Doorkeeper {
    /// Makes one of at most so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            places: vec![0; (bytes / size_of::<u32>()).max(1)].into_boxed_slice(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.len() * size_of::<u32>()
    }

    /// Whether the code with this hash was asked for lately; it was from now on.
    #[inline]
    pub(super) fn knows(&mut self, hash: u64) -> bool {
        // The upper half of the hash, scaled to the number of places; the lower half is kept.
        let index = ((hash >> 32) * self.places.len() as u64) >> 32;
        let print = (hash as u32).max(1);
        match self.places.get_mut(index as usize) {
            Some(place) => std::mem::replace(place, print) == print,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_lately_is_known() {
        let mut doorkeeper = Doorkeeper::new(4096);
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
}
