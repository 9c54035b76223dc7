//! The characters of codes.

/// Value in a digit table of a byte that is not a character of the alphabet.
const NOT_A_DIGIT: u8 = 0xff;

const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const UNAMBIGUOUS: &[u8] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

static BASE62_DIGITS: [u8; 256] = digits_of(BASE62);
static UNAMBIGUOUS_DIGITS: [u8; 256] = digits_of(UNAMBIGUOUS);

/// A set of characters that codes are issued in, in the order of their digits.
///
/// Every alphabet is a subset of [`Alphabet::Base62`], which is also the set of characters that
/// any code, issued, custom or imported, may consist of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alphabet {
    /// `0-9A-Za-z`, 62 characters.
    #[default]
    Base62,
    /// [`Alphabet::Base62`] without `0`, `O`, `1`, `l` and `I`, which are misread when a code is
    /// typed from paper: 57 characters.
    Unambiguous,
}

impl Alphabet {
    /// The name of each alphabet in configuration, for messages that list what is allowed.
    pub const NAMES: &'static str = "base62, unambiguous";

    /// Finds an alphabet by its name in configuration.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        match name {
            b"base62" => Some(Self::Base62),
            b"unambiguous" => Some(Self::Unambiguous),
            _ => None,
        }
    }

    /// The alphabet's characters, the digit 0 first.
    pub fn characters(self) -> &'static [u8] {
        match self {
            Self::Base62 => BASE62,
            Self::Unambiguous => UNAMBIGUOUS,
        }
    }

    /// Returns the number of characters: 57 or 62.
    pub fn size(self) -> u8 {
        match self {
            Self::Base62 => BASE62.len() as u8,
            Self::Unambiguous => UNAMBIGUOUS.len() as u8,
        }
    }

    /// The digit that a character stands for, or `None` when it is not of this alphabet.
    #[inline]
    pub fn digit(self, character: u8) -> Option<u8> {
        let table = match self {
            Self::Base62 => &BASE62_DIGITS,
            Self::Unambiguous => &UNAMBIGUOUS_DIGITS,
        };
        let digit = table[usize::from(character)];
        (digit != NOT_A_DIGIT).then_some(digit)
    }

    /// The character that stands for a digit; digits are taken modulo [`Alphabet::size`].
    #[inline]
    pub fn character(self, digit: u8) -> u8 {
        self.characters()[usize::from(digit % self.size())]
    }
}

const fn digits_of(characters: &[u8]) -> [u8; 256] {
    let mut table = [NOT_A_DIGIT; 256];
    let mut digit = 0;
    while digit < characters.len() {
        table[characters[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digit_and_character_are_inverse_and_nothing_else_is_a_digit() {
        for alphabet in [Alphabet::Base62, Alphabet::Unambiguous] {
            let mut members = 0;
            for byte in 0..=255 {
                if let Some(digit) = alphabet.digit(byte) {
                    assert_eq!(alphabet.character(digit), byte);
                    members += 1;
                }
            }
            assert_eq!(members, alphabet.size());
        }
    }

    #[test]
    fn unambiguous_lacks_just_the_five_misread_characters() {
        let missing: Vec<u8> = Alphabet::Base62
            .characters()
            .iter()
            .copied()
            .filter(|&byte| Alphabet::Unambiguous.digit(byte).is_none())
            .collect();
        assert_eq!(missing, b"01IOl");
    }
}
