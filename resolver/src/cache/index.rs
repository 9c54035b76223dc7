//! Finds entries by the hashes of their codes.
//!
//! A table with open addressing: an entry stands in the first free place from the one that its
//! hash names. When one is taken out, those behind it move up, so that nothing ever stands behind
//! a gap and no gap needs a mark.

/// A place holds 32 bits of the entry's hash and its number, plus one so that zero is empty.
#[derive(Debug)]
pub(super) struct Index {
    places: Box<[u64]>,
    mask: usize,
    length: usize,
}

impl Index {
    /// Makes a table with at least so many places.
    pub(super) fn new(places: usize) -> Self {
        let places = places.next_power_of_two();
        Self {
            places: vec![0; places].into_boxed_slice(),
            mask: places - 1,
            length: 0,
        }
    }

    /// Returns the size in bytes of a table with at least so many places.
    pub(super) fn bytes_for(places: usize) -> usize {
        places.next_power_of_two() * size_of::<u64>()
    }

    /// Returns the table's address and its size in bytes.
    pub(super) fn extent(&self) -> (usize, usize) {
        (self.places.as_ptr().addr(), size_of_val(&*self.places))
    }

    /// Returns the memory address at which the search for a hash begins.
    #[inline]
    pub(super) fn address(&self, hash: u32) -> usize {
        (&raw const self.places[hash as usize & self.mask]).addr()
    }

    /// The entry that the search for a hash meets first, if it has the same hash.
    #[inline]
    pub(super) fn first(&self, hash: u32) -> Option<u32> {
        let held = self.places[hash as usize & self.mask];
        (held != 0 && (held >> 32) as u32 == hash).then(|| (held as u32) - 1)
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Reports whether another entry would make look-ups slow.
    pub(super) fn is_full(&self) -> bool {
        self.length >= self.places.len() / 8 * 7
    }

    /// Finds the entry with this hash of which `is_it` says that it is the right one.
    #[inline]
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.place_of(hash, is_it).map(|(_, number)| number)
    }

    /// Adds an entry that is not there yet.
    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        let mut place = hash as usize & self.mask;
        while self.places[place] != 0 {
            place = (place + 1) & self.mask;
        }
        self.places[place] = u64::from(hash) << 32 | u64::from(number + 1);
        self.length += 1;
    }

    /// Removes an entry and returns its number.
    pub(super) fn remove(&mut self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut gap, number) = self.place_of(hash, is_it)?;
        let mut place = gap;
        loop {
            place = (place + 1) & self.mask;
            let held = self.places[place];
            if held == 0 {
                break;
            }
            let home = (held >> 32) as usize & self.mask;
            // It may move to the gap unless its own place lies behind the gap.
            if (place.wrapping_sub(home) & self.mask) >= (place.wrapping_sub(gap) & self.mask) {
                self.places[gap] = held;
                gap = place;
            }
        }
        self.places[gap] = 0;
        self.length -= 1;
        Some(number)
    }

    /// Takes everything out.
    pub(super) fn clear(&mut self) {
        self.places.fill(0);
        self.length = 0;
    }

    #[inline]
    fn place_of(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let mut place = hash as usize & self.mask;
        loop {
            let held = self.places[place];
            if held == 0 {
                return None;
            }
            let number = (held as u32) - 1;
            if (held >> 32) as u32 == hash && is_it(number) {
                return Some((place, number));
            }
            place = (place + 1) & self.mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Many entries of few hashes: every chain has entries of several homes.
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((0..24u32, any::<bool>()), 1..400)) {
            let mut index = Index::new(64);
            let mut model = HashMap::new();
            let mut next = 0;
            for (hash, adds) in steps {
                // Homes near the end of the table wrap around.
                let hash = hash.wrapping_mul(3).wrapping_add(50);
                if adds && !index.is_full() {
                    index.insert(hash, next);
                    model.insert(next, hash);
                    next += 1;
                } else if let Some((&number, _)) = model.iter().find(|(_, of)| **of == hash) {
                    prop_assert_eq!(index.remove(hash, |n| n == number), Some(number));
                    model.remove(&number);
                } else {
                    prop_assert_eq!(index.remove(hash, |_| true), None);
                }
                prop_assert_eq!(index.len(), model.len());
                for (&number, &hash) in &model {
                    prop_assert_eq!(index.find(hash, |n| n == number), Some(number));
                }
            }
        }
    }
}
