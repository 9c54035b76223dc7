//! A keyed permutation of all texts of a length. Without the key its order looks random.
//!
//! This is FF1 of NIST SP 800-38G with AES-256 and an empty tweak, computed on the number that a
//! text of digits stands for, most significant digit first, instead of on the text. Where there
//! are too few texts for FF1 (revision 1 asks for a million) all of them are shuffled.

use std::sync::OnceLock;

use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};
use vocabulary::siphash::siphash24;

/// The fewest texts that FF1 is used for.
const LEAST_FOR_FF1: u128 = 1_000_000;

/// The number of rounds of FF1.
const ROUNDS: u8 = 10;

/// The longest half of a text such that its number and the function's remainder fit 64 bits.
const LONGEST_HALF: u32 = 8;

/// A permutation of the numbers below [`Permutation::size`].
pub struct Permutation {
    size: u128,
    method: Method,
}

enum Method {
    Cipher(Box<Ff1>),
    Shuffle {
        key: [u8; 16],
        /// Computed on first use, which for most lengths never happens.
        tables: OnceLock<Tables>,
    },
}

struct Tables {
    forward: Vec<u32>,
    back: Vec<u32>,
}

impl Permutation {
    /// Chooses a permutation of the texts of `length` digits, each below `radix`. Permutations of
    /// different lengths are independent.
    ///
    /// `radix` is at least 2 and `length` at most 16.
    pub fn new(key: &[u8; 32], radix: u32, length: u32) -> Self {
        let size = u128::from(radix).pow(length);
        let method = if size >= LEAST_FOR_FF1 {
            Method::Cipher(Box::new(Ff1::new(key, radix, length)))
        } else {
            let mut half = [0; 16];
            half.copy_from_slice(&key[..16]);
            half[0] ^= length as u8;
            Method::Shuffle {
                key: half,
                tables: OnceLock::new(),
            }
        };
        Self { size, method }
    }

    /// Returns the number of texts.
    pub fn size(&self) -> u128 {
        self.size
    }

    /// The number at a place; `place` must be below the size.
    pub fn at(&self, place: u128) -> u128 {
        match &self.method {
            Method::Cipher(ff1) => ff1.encrypt(place),
            Method::Shuffle { key, tables } => {
                let tables = tables.get_or_init(|| Tables::new(key, self.size));
                tables.forward[place as usize].into()
            }
        }
    }

    /// The place of a number; `number` must be below the size.
    pub fn place_of(&self, number: u128) -> u128 {
        match &self.method {
            Method::Cipher(ff1) => ff1.decrypt(number),
            Method::Shuffle { key, tables } => {
                let tables = tables.get_or_init(|| Tables::new(key, self.size));
                tables.back[number as usize].into()
            }
        }
    }
}

impl Tables {
    /// Fisher and Yates' shuffle, with SipHash for the dice: the order must be the same for ever.
    fn new(key: &[u8; 16], size: u128) -> Self {
        let mut forward: Vec<u32> = (0..size as u32).collect();
        for last in (1..forward.len()).rev() {
            let drawn = siphash24(key, &(last as u64).to_le_bytes());
            // The remainder's bias is below 2^-44.
            let other = (drawn % (last as u64 + 1)) as usize;
            forward.swap(last, other);
        }
        let mut back = vec![0; forward.len()];
        for (place, &number) in forward.iter().enumerate() {
            back[number as usize] = place as u32;
        }
        Self { forward, back }
    }
}

/// FF1 for one radix and length.
struct Ff1 {
    cipher: Aes256,
    /// The first block of every round's input, which is the same each time, already encrypted.
    first: u128,
    /// The numbers of values of the left and the right half of a text.
    left: u64,
    right: u64,
    /// The length in bytes of the longer half's number (`b`).
    number_bytes: u32,
    /// The number of bytes used of the round function's value (`d`).
    value_bytes: u32,
}

impl Ff1 {
    fn new(key: &[u8; 32], radix: u32, length: u32) -> Self {
        let cipher = Aes256::new(&Array::from(*key));
        let (u, v) = (length / 2, length - length / 2);
        assert!(v <= LONGEST_HALF, "a text of {length} digits is too long");
        let right = u64::from(radix).pow(v);
        let number_bytes = (u64::BITS - (right - 1).leading_zeros()).div_ceil(8);
        let mut p = [1, 2, 1, 0, 0, 0, 10, u as u8, 0, 0, 0, 0, 0, 0, 0, 0];
        p[3..6].copy_from_slice(&radix.to_be_bytes()[1..]);
        p[8..12].copy_from_slice(&length.to_be_bytes());
        Self {
            first: encrypt(&cipher, u128::from_be_bytes(p)),
            cipher,
            left: u64::from(radix).pow(u),
            right,
            number_bytes,
            value_bytes: 4 * number_bytes.div_ceil(4) + 4,
        }
    }

    fn encrypt(&self, number: u128) -> u128 {
        let right = u128::from(self.right);
        let (mut a, mut b) = ((number / right) as u64, (number % right) as u64);
        for round in 0..ROUNDS {
            let modulus = self.modulus(round);
            let sum = a + self.value(round, b, modulus);
            (a, b) = (b, sum % modulus);
        }
        u128::from(a) * right + u128::from(b)
    }

    fn decrypt(&self, number: u128) -> u128 {
        let right = u128::from(self.right);
        let (mut a, mut b) = ((number / right) as u64, (number % right) as u64);
        for round in (0..ROUNDS).rev() {
            let modulus = self.modulus(round);
            let difference = b + modulus - self.value(round, a, modulus);
            (a, b) = (difference % modulus, a);
        }
        u128::from(a) * right + u128::from(b)
    }

    fn modulus(&self, round: u8) -> u64 {
        if round.is_multiple_of(2) {
            self.left
        } else {
            self.right
        }
    }

    /// The round function, modulo the size of the half that it is added to. With an empty tweak
    /// its input is one more block: zeros, the round's number, and the other half's.
    fn value(&self, round: u8, half: u64, modulus: u64) -> u64 {
        let q = u128::from(round) << (8 * self.number_bytes) | u128::from(half);
        let r = encrypt(&self.cipher, self.first ^ q);
        let y = r >> (128 - 8 * self.value_bytes);
        (y % u128::from(modulus)) as u64
    }
}

fn encrypt(cipher: &Aes256, block: u128) -> u128 {
    let mut block = Block::from(block.to_be_bytes());
    cipher.encrypt_block(&mut block);
    u128::from_be_bytes(block.into())
}

#[cfg(test)]
mod tests {
    use fpe::ff1::{FF1, FlexibleNumeralString};
    use proptest::prelude::*;

    use super::*;

    /// Sample 7 of NIST's "FF1 samples": AES-256, radix 10, no tweak.
    #[test]
    fn agrees_with_the_standards_sample() {
        let key = 0x2B7E_1516_28AE_D2A6_ABF7_1588_09CF_4F3C_u128.to_be_bytes();
        let more = 0xEF43_59D8_D580_AA4F_7F03_6D6F_04FC_6A94_u128.to_be_bytes();
        let mut both = [0; 32];
        both[..16].copy_from_slice(&key);
        both[16..].copy_from_slice(&more);
        let permutation = Permutation::new(&both, 10, 10);
        assert_eq!(permutation.at(123_456_789), 6_657_667_009);
        assert_eq!(permutation.place_of(6_657_667_009), 123_456_789);
    }

    #[test]
    fn few_texts_are_shuffled_one_to_one() {
        for (radix, length) in [(62, 0), (62, 1), (62, 2), (62, 3), (57, 3)] {
            let permutation = Permutation::new(&[3; 32], radix, length);
            let mut seen = vec![false; permutation.size() as usize];
            let mut at_home = 0;
            for place in 0..permutation.size() {
                let number = permutation.at(place);
                assert!(!std::mem::replace(&mut seen[number as usize], true));
                assert_eq!(permutation.place_of(number), place);
                at_home += u32::from(number == place);
            }
            // A random permutation leaves one thing where it was, on average.
            assert!(length == 0 || at_home < 8, "{at_home}");
        }
    }

    proptest! {
        /// Another implementation of FF1 has the same results, for every length of codes.
        #[test]
        fn agrees_with_another_implementation(
            key: [u8; 32],
            number: u128,
            radix in prop_oneof![Just(57_u32), Just(62_u32)],
            length in 4_u32..=15,
        ) {
            let permutation = Permutation::new(&key, radix, length);
            let number = number % permutation.size();
            let digits = |mut number: u128| -> Vec<u16> {
                let mut digits = vec![0; length as usize];
                for digit in digits.iter_mut().rev() {
                    *digit = (number % u128::from(radix)) as u16;
                    number /= u128::from(radix);
                }
                digits
            };
            let other = FF1::<Aes256>::new(&key, radix).expect("a radix");
            let text = FlexibleNumeralString::from(digits(number));
            let expected: Vec<u16> = other.encrypt(&[], &text).expect("a text").into();
            prop_assert_eq!(digits(permutation.at(number)), expected);
            prop_assert_eq!(permutation.place_of(permutation.at(number)), number);
        }
    }
}
