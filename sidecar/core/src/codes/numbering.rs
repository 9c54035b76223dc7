//! The numbers by which links are stored.
//!
//! Links are stored in the order of a number that follows from the code by itself, so that codes
//! need no index: the database finds a link by its number, and new links are appended.
//!
//! ```text
//! code = body + last          body: all characters but the last
//! number = length | place of the body in the keyed permutation of its length | last
//! ```
//!
//! Codes are issued by counting places up, so links that were created in succession are neighbours
//! in the database, while their codes look random. The map is one to one over all possible codes
//! and does not depend on configuration: codes of another alphabet, with or without a check
//! character, custom or imported, have numbers too, in other ranges. So one primary key makes all
//! codes unique, whatever their origin.
//!
//! A body of nine characters or more can have a place beyond [`MAX_PLACE`]; such a code has no
//! number ([`Numbering::number`]), nor has one with a hyphen or underscore, or of more than 16 characters. None of them
//! is issued by counting. The store keeps a list of them.

use sha2::{Digest, Sha256};
use vocabulary::siphash::siphash24;
use vocabulary::{Alphabet, Check, Code};

use super::permutation::Permutation;

/// The first place that numbers do not reach.
pub const MAX_PLACE: u64 = 1 << 52;

/// The most characters of a code that has a number.
const MAX_NUMBERED: usize = 16;

/// The number of bits for the place and the last character.
const PLACE_BITS: u32 = 58;

/// The size of the alphabet that every code is of.
const RADIX: u32 = 62;

/// The secret that determines the order of codes. It is created and stored with the database;
/// with another one, the database's links could not be found.
#[derive(Clone, PartialEq, Eq)]
pub struct CodeKey([u8; 32]);

impl CodeKey {
    /// Takes the key's bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key's bytes, for storage.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Derives an independent key for another purpose.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(purpose.as_bytes());
        hash.update([0]);
        hash.update(self.0);
        hash.finalize().into()
    }
}

impl std::fmt::Debug for CodeKey {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CodeKey(…)")
    }
}

/// The number by which a link is stored, never negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkNumber(i64);

impl LinkNumber {
    /// The number as the database has it.
    pub fn get(self) -> i64 {
        self.0
    }
}

/// Converts codes to numbers, and numbers to codes.
pub struct Numbering {
    /// For bodies of 0 to 15 characters.
    permutations: [Permutation; MAX_NUMBERED],
    /// For the last characters of codes without a check character.
    last_key: [u8; 16],
}

impl Numbering {
    /// Chooses the order of codes by a key.
    pub fn new(key: &CodeKey) -> Self {
        let permutation_key = key.derive("permutation");
        let mut last_key = [0; 16];
        last_key.copy_from_slice(&key.derive("last character")[..16]);
        Self {
            permutations: std::array::from_fn(|length| {
                Permutation::new(&permutation_key, RADIX, length as u32)
            }),
            last_key,
        }
    }

    /// The number of a code; `None` for one that has none.
    pub fn number(&self, code: &Code) -> Option<LinkNumber> {
        let (&last, body) = code.as_bytes().split_last()?;
        let place = self.place_of(code, body)?;
        let last = Alphabet::Base62.digit(last)?;
        let low = place * u64::from(RADIX) + u64::from(last);
        Some(LinkNumber(((body.len() as u64) << PLACE_BITS | low) as i64))
    }

    /// The numbers of all codes of a length that have one: the first, and the last.
    pub fn range(length: usize) -> (LinkNumber, LinkNumber) {
        let first = (length.saturating_sub(1) as u64) << PLACE_BITS;
        let last = first | ((1 << PLACE_BITS) - 1);
        (LinkNumber(first as i64), LinkNumber(last as i64))
    }

    /// Returns the number of codes that can be issued by counting with `length` characters before
    /// the check character. Some may be invalid in an alphabet.
    pub fn capacity(&self, check: &Check, length: usize) -> u64 {
        let bodies = |body: usize| {
            self.permutations
                .get(body)
                .map_or(0, |it| it.size().min(u128::from(MAX_PLACE)) as u64)
        };
        match check {
            Check::None => match length.checked_sub(1) {
                Some(body) => bodies(body).saturating_mul(RADIX.into()),
                None => 0,
            },
            Check::Luhn | Check::Keyed(_) => bodies(length),
        }
    }

    /// The code that is issued with a count, which is below the capacity; `None` when it is not one
    /// of the alphabet, so that this count is left out.
    ///
    /// A check character ends the code. Without one, its last character is a secret function of
    /// those before it: neighbours differ in all characters then too. Once all bodies are used they
    /// are used again with other last characters, in an order of each body's own.
    pub fn issued(
        &self,
        alphabet: Alphabet,
        check: &Check,
        length: usize,
        count: u64,
    ) -> Option<Code> {
        let body_length = match check {
            Check::None => length.checked_sub(1)?,
            Check::Luhn | Check::Keyed(_) => length,
        };
        let permutation = self.permutations.get(body_length)?;
        let bodies = permutation.size().min(u128::from(MAX_PLACE)) as u64;
        let (pass, place) = (count / bodies, count % bodies);
        let mut text = [0; MAX_NUMBERED];
        let body = &mut text[..body_length];
        write_value(permutation.at(place.into()), body);
        if alphabet != Alphabet::Base62 && body.iter().any(|&byte| alphabet.digit(byte).is_none()) {
            return None;
        }
        let last = match check.character(alphabet, body) {
            Some(character) => {
                // With a check character there is one code for each body.
                if pass > 0 {
                    return None;
                }
                character
            }
            None => {
                let size = u64::from(alphabet.size());
                if pass >= size {
                    return None;
                }
                alphabet.character(self.last_of(alphabet, body, pass))
            }
        };
        text[body_length] = last;
        Code::parse(&text[..=body_length]).ok()
    }

    /// The count with which [`Numbering::issued`] makes a code; `None` for one that it does not make.
    pub fn count_of(&self, alphabet: Alphabet, check: &Check, code: &Code) -> Option<u64> {
        let (&last, body) = code.as_bytes().split_last()?;
        let place = self.place_of(code, body)?;
        let count = match check {
            Check::Luhn | Check::Keyed(_) => place,
            Check::None => {
                let bodies = self.capacity(check, body.len() + 1) / u64::from(RADIX);
                let pass = self.pass_of(alphabet, body, alphabet.digit(last)?);
                place + bodies * pass
            }
        };
        let length = code.as_bytes().len() - check.length();
        let issued = self.issued(alphabet, check, length, count);
        issued.filter(|issued| issued == code).map(|_| count)
    }

    /// The place of a code's body, unless the code has no number.
    fn place_of(&self, code: &Code, body: &[u8]) -> Option<u64> {
        let permutation = self.permutations.get(body.len())?;
        let value = (!code.has_separator()).then(|| value_of(body))?;
        let place = u64::try_from(permutation.place_of(value)).ok()?;
        (place < MAX_PLACE).then_some(place)
    }

    /// The last character of a body that was used `pass` times before, as a digit.
    fn last_of(&self, alphabet: Alphabet, body: &[u8], pass: u64) -> u8 {
        match usize::try_from(pass) {
            Ok(0) | Err(_) => self.first_last(alphabet, body),
            Ok(pass) => self.lasts(alphabet, body)[pass],
        }
    }

    /// The last character that a body has first, as a digit.
    fn first_last(&self, alphabet: Alphabet, body: &[u8]) -> u8 {
        (siphash24(&self.last_key, body) % u64::from(alphabet.size())) as u8
    }

    /// The last characters of a body in the order in which they are used, as digits. The first is that of
    /// [`Self::first_last`], and the others are shuffled: a code does not lead to those of the same body.
    fn lasts(&self, alphabet: Alphabet, body: &[u8]) -> [u8; RADIX as usize] {
        let mut lasts = std::array::from_fn(|digit| digit as u8);
        lasts.swap(0, self.first_last(alphabet, body).into());
        let mut text = [0; MAX_NUMBERED + 1];
        text[..body.len()].copy_from_slice(body);
        for place in (2..alphabet.size()).rev() {
            // No character of a code has the highest bit.
            text[body.len()] = 0x80 | place;
            let drawn = siphash24(&self.last_key, &text[..=body.len()]) % u64::from(place);
            lasts.swap(place.into(), drawn as usize + 1);
        }
        lasts
    }

    /// The number of times that a body is used before it gets a last character.
    fn pass_of(&self, alphabet: Alphabet, body: &[u8], last: u8) -> u64 {
        if last == self.first_last(alphabet, body) {
            return 0;
        }
        let lasts = self.lasts(alphabet, body);
        lasts.iter().position(|&it| it == last).unwrap_or_default() as u64
    }
}

/// The number that a text of base62 digits stands for, the most significant first.
fn value_of(body: &[u8]) -> u128 {
    body.iter().fold(0, |value, &character| {
        let digit = Alphabet::Base62.digit(character).unwrap_or_default();
        value * u128::from(RADIX) + u128::from(digit)
    })
}

fn write_value(mut value: u128, body: &mut [u8]) {
    for character in body.iter_mut().rev() {
        *character = Alphabet::Base62.character((value % u128::from(RADIX)) as u8);
        value /= u128::from(RADIX);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use vocabulary::{BodyLengths, CheckKey, CheckKeys, CodeRules, Verdict};

    use super::*;

    fn numbering() -> Numbering {
        Numbering::new(&CodeKey::new([5; 32]))
    }

    fn checks() -> [Check; 3] {
        let keys = CheckKeys::new(&[CheckKey::new([7; 16])]).expect("one key");
        [Check::None, Check::Luhn, Check::Keyed(keys)]
    }

    #[test]
    fn what_is_issued_follows_the_rules_and_is_kept_in_order() {
        let numbering = numbering();
        for check in checks() {
            for alphabet in [Alphabet::Base62, Alphabet::Unambiguous] {
                for length in [4, 6, 7, 8, 10, 12] {
                    let bodies = BodyLengths::new(length, length).expect("in bounds");
                    let rules = CodeRules {
                        alphabet,
                        check: check.clone(),
                        bodies,
                        ignores_case: false,
                    };
                    let mut before = None;
                    let mut issued = 0;
                    for count in 0..400 {
                        let length = usize::from(length);
                        let code = numbering.issued(alphabet, &check, length, count);
                        let Some(code) = code else {
                            assert_eq!(alphabet, Alphabet::Unambiguous);
                            continue;
                        };
                        issued += 1;
                        assert_eq!(rules.judge(&code), Verdict::Issued, "{code}");
                        assert_eq!(code.as_bytes().len(), length + check.length());
                        let alien = |&&byte: &&u8| alphabet.digit(byte).is_none();
                        assert!(!code.as_bytes().iter().any(|byte| alien(&byte)));
                        let number = numbering.number(&code);
                        assert!(number > before && number.is_some(), "{code}");
                        before = number;
                        let (first, last) = Numbering::range(code.as_bytes().len());
                        assert!(number >= Some(first) && number <= Some(last));
                    }
                    // (57/62)^12 of all texts are of the smaller alphabet.
                    assert!(issued > 400 / 4, "{issued}");
                }
            }
        }
    }

    #[test]
    fn every_short_code_is_issued_once() {
        let numbering = numbering();
        for (check, length, expected) in [
            (Check::None, 1, 62),
            (Check::None, 2, 62 * 62),
            (Check::Luhn, 1, 62),
            (Check::Luhn, 2, 62 * 62),
        ] {
            let capacity = numbering.capacity(&check, length);
            let codes: HashSet<Code> = (0..capacity)
                .filter_map(|count| numbering.issued(Alphabet::Base62, &check, length, count))
                .collect();
            assert_eq!(capacity, expected);
            assert_eq!(codes.len() as u64, capacity);
        }
    }

    /// The code with the next last character exists as often as chance has it, however often bodies were used.
    #[test]
    fn a_code_does_not_lead_to_the_next_one() {
        let numbering = numbering();
        let bodies = 62 * 62;
        for (count, chance) in [
            (bodies, 0.0),
            (bodies * 2, 1.0 / 61.0),
            // Half of the bodies have three codes, half two.
            (bodies * 5 / 2, (0.5 * 6.0 + 0.5 * 2.0) / 2.5 / 61.0),
            (bodies * 31, 30.0 / 61.0),
        ] {
            let issued = |count| numbering.issued(Alphabet::Base62, &Check::None, 3, count);
            let codes: HashSet<Code> = (0..count).filter_map(issued).collect();
            let has_next = |code: &&Code| {
                let mut text = code.as_bytes().to_vec();
                let last = Alphabet::Base62.digit(text[2]).expect("a digit");
                text[2] = Alphabet::Base62.character((last + 1) % 62);
                codes.contains(&Code::parse(&text).expect("a code"))
            };
            let share = codes.iter().filter(has_next).count() as f64 / codes.len() as f64;
            assert!(
                (share - chance).abs() < 0.01,
                "{count}: {share}, not {chance}"
            );
        }
    }

    #[test]
    fn a_code_tells_its_count() {
        let numbering = numbering();
        for check in checks() {
            for alphabet in [Alphabet::Base62, Alphabet::Unambiguous] {
                let capacity = numbering.capacity(&check, 3);
                for count in (0..capacity).step_by(997) {
                    let Some(code) = numbering.issued(alphabet, &check, 3, count) else {
                        continue;
                    };
                    assert_eq!(numbering.count_of(alphabet, &check, &code), Some(count));
                }
            }
        }
    }

    /// Codes that follow each other have as much in common as any two: one character in 62.
    #[test]
    fn neighbours_have_nothing_in_common() {
        let numbering = numbering();
        for check in checks() {
            let codes: Vec<Code> = (0..20_000)
                .filter_map(|count| numbering.issued(Alphabet::Base62, &check, 7, count))
                .collect();
            let same = codes
                .windows(2)
                .flat_map(|pair| pair[0].as_bytes().iter().zip(pair[1].as_bytes()))
                .filter(|(one, other)| one == other)
                .count();
            let pairs = (codes.len() - 1) * codes[0].as_bytes().len();
            let share = same as f64 / pairs as f64;
            assert!((share - 1.0 / 62.0).abs() < 0.002, "{share}");
        }
    }

    proptest! {
        /// No two codes have one number.
        #[test]
        fn a_number_tells_its_code(text in "[0-9A-Za-z]{1,16}", other in "[0-9A-Za-z]{1,16}") {
            let numbering = numbering();
            let [code, other]: [Code; 2] = [text, other].map(|text| text.parse().expect("a code"));
            let number = numbering.number(&code);
            if code.as_bytes().len() <= 9 {
                prop_assert!(number.is_some());
            }
            if let Some(number) = number {
                prop_assert!(number.get() >= 0);
                prop_assert_eq!(numbering.number(&other) == Some(number), code == other);
            }
        }
    }
}
