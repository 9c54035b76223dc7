//! Check characters: the last character of an issued code.
//!
//! A check character lets the edge refuse a mistyped or guessed code without a look-up.

use core::fmt;

use crate::alphabet::Alphabet;
use crate::siphash::siphash24;

/// Check character of issued codes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Issued codes carry no check character.
    None,
    /// Luhn's method over the alphabet's size: every single wrong character is noticed, and
    /// nearly every swap of two neighbours. It stops typing errors, not guessing: anyone can
    /// compute it.
    #[default]
    Luhn,
    /// A keyed hash of the body: without the key one guess in as many as the alphabet has
    /// characters (57 or 62) is right.
    Keyed(CheckKeys),
}

impl Check {
    /// The name of each method in configuration, for messages that list what is allowed.
    pub const NAMES: &'static str = "none, luhn, keyed";

    /// Returns the number of characters that the check adds to a body: 0 or 1.
    pub fn length(&self) -> usize {
        usize::from(!matches!(self, Self::None))
    }

    /// The check character that a new code with this body gets, `None` when codes carry none or
    /// the body has a character outside the alphabet.
    pub fn character(&self, alphabet: Alphabet, body: &[u8]) -> Option<u8> {
        let digit = match self {
            Self::None => return None,
            Self::Luhn => luhn_digit(alphabet, body)?,
            Self::Keyed(keys) => keyed_digit(alphabet, keys.current(), body)?,
        };
        Some(alphabet.character(digit))
    }

    /// Reports whether `character` is a right check character for `body`. [`Check::Keyed`] tries
    /// all known keys, so that codes issued before a rotation stay valid.
    #[inline]
    pub fn accepts(&self, alphabet: Alphabet, body: &[u8], character: u8) -> bool {
        let Some(given) = alphabet.digit(character) else {
            return false;
        };
        match self {
            Self::None => true,
            Self::Luhn => luhn_digit(alphabet, body) == Some(given),
            Self::Keyed(keys) => keys
                .all()
                .iter()
                .any(|key| keyed_digit(alphabet, key, body) == Some(given)),
        }
    }
}

/// The digit that brings the weighted sum of all digits to a multiple of the alphabet's size.
///
/// From the right, beginning beside the check digit, every second digit is doubled. With an even
/// size doubling is Luhn's: the two digits of the product are added, which maps the digits onto
/// themselves one to one. With an odd size that map is not one to one, but doubling modulo the
/// size is, so that is used. Either way every single wrong digit changes the sum.
fn luhn_digit(alphabet: Alphabet, body: &[u8]) -> Option<u8> {
    let size = u32::from(alphabet.size());
    let mut sum = 0;
    for (place, &character) in body.iter().rev().enumerate() {
        let digit = u32::from(alphabet.digit(character)?);
        // A digit is less than the size, so its double has one carry at most: no division, which
        // would cost time for every character of every request.
        let carry = u32::from(2 * digit >= size);
        sum += match (place % 2, size % 2) {
            (1, _) => digit,
            (_, 0) => 2 * digit - carry * size + carry,
            _ => 2 * digit - carry * size,
        };
    }
    Some(((size - sum % size) % size) as u8)
}

fn keyed_digit(alphabet: Alphabet, key: &CheckKey, body: &[u8]) -> Option<u8> {
    if !body
        .iter()
        .all(|&character| alphabet.digit(character).is_some())
    {
        return None;
    }
    // 2^64 is so much larger than the size that the remainder's bias is below 2^-57.
    Some((siphash24(&key.0, body) % u64::from(alphabet.size())) as u8)
}

/// A secret key for check characters: 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CheckKey([u8; 16]);

impl CheckKey {
    /// Takes the key's bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Reads a key written as 32 hexadecimal digits.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        if hex.len() != 32 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Debug for CheckKey {
    /// Never shows the key: configuration is logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckKey(…)")
    }
}

fn nibble(hex: u8) -> Option<u8> {
    match hex {
        b'0'..=b'9' => Some(hex - b'0'),
        b'a'..=b'f' => Some(hex - b'a' + 10),
        b'A'..=b'F' => Some(hex - b'A' + 10),
        _ => None,
    }
}

/// The keys in force: new codes get their check character from the first, codes made with any of
/// them are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckKeys {
    keys: [CheckKey; Self::MOST],
    count: usize,
}

impl CheckKeys {
    /// The most keys in force at once. Each further one lets through as many more guesses, so the
    /// limit allows a rotation with a long overlap but no history.
    pub const MOST: usize = 4;

    /// Takes the keys, the current one first.
    ///
    /// # Errors
    /// Fails if there are none or more than [`CheckKeys::MOST`].
    pub fn new(keys: &[CheckKey]) -> Result<Self, CheckKeysError> {
        let Some(&current) = keys.first() else {
            return Err(CheckKeysError::Empty);
        };
        if keys.len() > Self::MOST {
            return Err(CheckKeysError::TooMany);
        }
        let mut all = [current; Self::MOST];
        all[..keys.len()].copy_from_slice(keys);
        Ok(Self {
            keys: all,
            count: keys.len(),
        })
    }

    /// Reads a key file, the same one for nginx and the sidecar: one key of 32 hexadecimal digits
    /// a line, the current one first; empty lines and lines that begin with `#` do not count.
    ///
    /// # Errors
    /// Fails if a line is not a key, or if there are no keys or more than [`CheckKeys::MOST`].
    pub fn parse(text: &[u8]) -> Result<Self, CheckKeysError> {
        let mut keys = [CheckKey([0; 16]); Self::MOST];
        let mut count = 0;
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let key =
                CheckKey::from_hex(line).ok_or(CheckKeysError::NotAKey { line: index + 1 })?;
            *keys.get_mut(count).ok_or(CheckKeysError::TooMany)? = key;
            count += 1;
        }
        Self::new(&keys[..count])
    }

    /// The key that makes new check characters.
    pub fn current(&self) -> &CheckKey {
        &self.keys[0]
    }

    /// Every key whose check characters are accepted, the current one first.
    pub fn all(&self) -> &[CheckKey] {
        &self.keys[..self.count]
    }
}

/// Reason for which a set of check keys can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKeysError {
    /// There is no key.
    Empty,
    /// There are more than [`CheckKeys::MOST`] keys.
    TooMany,
    /// A line is not 32 hexadecimal digits.
    NotAKey {
        /// Line of the file, from 1.
        line: usize,
    },
}

impl fmt::Display for CheckKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no check key"),
            Self::TooMany => write!(f, "there are more than {} check keys", CheckKeys::MOST),
            Self::NotAKey { line } => {
                write!(f, "line {line} is not a check key of 32 hexadecimal digits")
            }
        }
    }
}

impl core::error::Error for CheckKeysError {}
