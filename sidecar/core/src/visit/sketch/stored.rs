//! The form in which sketches are stored.
//!
//! A sketch has a head, and a large one also parts, so that few bytes are written when few registers change:
//!
//! | Head | Sketch |
//! |---|---|
//! | 4,096 bytes | 2^12 registers of an earlier version, a byte each |
//! | `01`, then 4 bytes for each register, big-endian | a list: the number among 2^25 in 26 bits, the rank in 6 |
//! | `02` | 2^15 registers in 32 parts |
//!
//! A part has 2^10 registers. With at most 383 of them in use, it lists these: 2 bytes each, big-endian, the number in
//! 10 bits and the rank in 6. Otherwise it has 768 bytes: 6 bits for each register.

use super::{BITS, BITS_BEFORE, BITS_OF_FEW, MAX_RANK, Registers, Sketch};

/// The number of bits that select a register of a part, and the number of parts.
const BITS_OF_PART: u32 = 10;
const PARTS: usize = 1 << (BITS - BITS_OF_PART);

/// Bytes of a part that lists nothing.
const PACKED: usize = (1 << BITS_OF_PART) * RANK_BITS / 8;
const RANK_BITS: usize = 6;

/// The first byte of a head.
const LISTED: u8 = 1;
const IN_PARTS: u8 = 2;

/// A sketch as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The head.
    pub head: Vec<u8>,
    /// The registers of a large set; else empty.
    pub parts: Vec<Vec<u8>>,
}

impl Default for Stored {
    /// Returns the empty set.
    fn default() -> Self {
        Self::from(&Sketch::default())
    }
}

impl Stored {
    /// Bytes of a head that an earlier version has stored.
    pub const LENGTH_BEFORE: u32 = 1 << BITS_BEFORE;

    /// Begins to restore a sketch from its head.
    pub fn with_head(head: &[u8]) -> Self {
        let has_parts = head == [IN_PARTS];
        Self {
            head: head.to_vec(),
            parts: vec![Vec::new(); if has_parts { PARTS } else { 0 }],
        }
    }

    /// Restores the sketch; `None` for bytes that no version has stored.
    pub fn sketch(&self) -> Option<Sketch> {
        if self.head.len() == Self::LENGTH_BEFORE as usize {
            let ranks = self.head.iter().map(|rank| *rank.min(&MAX_RANK)).collect();
            return Some(Sketch::of(BITS_BEFORE, ranks));
        }
        match self.head.split_first()? {
            (&LISTED, list) => listed(list),
            (&IN_PARTS, []) if self.parts.len() == PARTS => {
                let mut ranks = vec![0; 1 << BITS];
                for (ranks, part) in ranks.chunks_mut(1 << BITS_OF_PART).zip(&self.parts) {
                    read_part(ranks, part)?;
                }
                Some(Sketch::of(BITS, ranks.into()))
            }
            _ => None,
        }
    }
}

impl From<&Sketch> for Stored {
    fn from(sketch: &Sketch) -> Self {
        match &sketch.0 {
            Registers::Listed(list) => {
                let words = list.iter().map(|&(register, rank)| {
                    ((register << RANK_BITS) | u32::from(rank)).to_be_bytes()
                });
                Self {
                    head: std::iter::once(LISTED).chain(words.flatten()).collect(),
                    parts: Vec::new(),
                }
            }
            Registers::All { bits: BITS, ranks } => Self {
                head: vec![IN_PARTS],
                parts: ranks.chunks(1 << BITS_OF_PART).map(part).collect(),
            },
            Registers::All { ranks, .. } => Self {
                head: ranks.to_vec(),
                parts: Vec::new(),
            },
        }
    }
}

impl Sketch {
    /// The estimate that is stored beside the sketch. One that an earlier version has begun has none: that version
    /// would change the sketch only.
    pub fn stored_estimate(&self) -> Option<u64> {
        (self.bits() != BITS_BEFORE).then(|| self.estimate())
    }
}

fn listed(list: &[u8]) -> Option<Sketch> {
    let mut sketch = Sketch::default();
    let (words, []) = list.as_chunks::<4>() else {
        return None;
    };
    for word in words {
        let word = u32::from_be_bytes(*word);
        let (register, rank) = (word >> RANK_BITS, word as u8 & MAX_RANK);
        if register >> BITS_OF_FEW != 0 || rank == 0 {
            return None;
        }
        sketch.raise(register, rank, BITS_OF_FEW);
    }
    Some(sketch)
}

/// The bytes of a part.
fn part(ranks: &[u8]) -> Vec<u8> {
    let listed = ranks.iter().filter(|rank| **rank > 0).count() * 2;
    let mut bytes = Vec::with_capacity(listed.min(PACKED));
    if listed < PACKED {
        for (register, rank) in (0_u16..).zip(ranks) {
            if *rank > 0 {
                let word = (register << RANK_BITS) | u16::from(*rank);
                bytes.extend_from_slice(&word.to_be_bytes());
            }
        }
        return bytes;
    }
    for four in ranks.as_chunks::<4>().0 {
        let [a, b, c, d] = four.map(u32::from);
        let packed = (a << 18) | (b << 12) | (c << 6) | d;
        bytes.extend_from_slice(&packed.to_be_bytes()[1..]);
    }
    bytes
}

fn read_part(ranks: &mut [u8], part: &[u8]) -> Option<()> {
    if part.len() == PACKED {
        let (fours, _) = ranks.as_chunks_mut::<4>();
        for (four, &[a, b, c]) in fours.iter_mut().zip(part.as_chunks::<3>().0) {
            let packed = u32::from_be_bytes([0, a, b, c]);
            *four = [18, 12, 6, 0].map(|shift| (packed >> shift) as u8 & MAX_RANK);
        }
        return Some(());
    }
    let (words, []) = part.as_chunks::<2>() else {
        return None;
    };
    for word in words {
        let word = u16::from_be_bytes(*word);
        let kept = ranks.get_mut(usize::from(word >> RANK_BITS))?;
        *kept = word as u8 & MAX_RANK;
    }
    Some(())
}
