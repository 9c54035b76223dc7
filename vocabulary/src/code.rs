//! Codes: the part of a short link behind the domain.

use core::fmt;

use crate::alphabet::Alphabet;
use crate::check::Check;

/// The most characters that any code has, its check character included.
pub const MAX_CODE_LENGTH: usize = 16;

/// A code of a right shape: 1 to [`MAX_CODE_LENGTH`] characters of [`Alphabet::Base62`].
///
/// That a value is a `Code` says nothing of its check character ([`CodeRules::judge`]) or of
/// whether a link exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code {
    /// The characters; those behind `length` are zero.
    bytes: [u8; MAX_CODE_LENGTH],
    length: u8,
}

impl Code {
    /// Reads a code.
    ///
    /// # Errors
    /// Fails if it is empty, too long, or has a character outside [`Alphabet::Base62`].
    #[inline]
    pub fn parse(text: &[u8]) -> Result<Self, CodeError> {
        if text.is_empty() {
            return Err(CodeError::Empty);
        }
        if text.len() > MAX_CODE_LENGTH {
            return Err(CodeError::TooLong);
        }
        let mut bytes = [0; MAX_CODE_LENGTH];
        for (to, &from) in bytes.iter_mut().zip(text) {
            if Alphabet::Base62.digit(from).is_none() {
                return Err(CodeError::Character);
            }
            *to = from;
        }
        Ok(Self {
            bytes,
            length: text.len() as u8,
        })
    }

    /// Reads the code that begins a text: its longest run of letters and digits of ASCII.
    ///
    /// # Errors
    /// Fails if no letter or digit begins the text, or the run is too long for a code.
    #[inline]
    pub fn leading(text: &[u8]) -> Result<Self, CodeError> {
        let mut bytes = [0; MAX_CODE_LENGTH];
        let mut length = 0;
        for (to, &from) in bytes.iter_mut().zip(text) {
            if Alphabet::Base62.digit(from).is_none() {
                break;
            }
            *to = from;
            length += 1;
        }
        if length == 0 {
            return Err(CodeError::Empty);
        }
        match text.get(MAX_CODE_LENGTH) {
            Some(&more)
                if usize::from(length) == MAX_CODE_LENGTH
                    && Alphabet::Base62.digit(more).is_some() =>
            {
                Err(CodeError::TooLong)
            }
            _ => Ok(Self { bytes, length }),
        }
    }

    /// The code's characters.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        // Every character was checked to be ASCII when the value was made.
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({})", self.as_str())
    }
}

impl core::str::FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        Self::parse(text.as_bytes())
    }
}

/// Reason for which a text is not a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// There are no characters.
    Empty,
    /// There are more than [`MAX_CODE_LENGTH`] characters.
    TooLong,
    /// A character is not a letter or digit of ASCII.
    Character,
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a code has at least 1 character"),
            Self::TooLong => write!(f, "a code has at most {MAX_CODE_LENGTH} characters"),
            Self::Character => f.write_str("a code consists of the characters 0-9, A-Z and a-z"),
        }
    }
}

impl core::error::Error for CodeError {}

/// The lengths that bodies of issued codes may have, both bounds included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLengths {
    shortest: u8,
    longest: u8,
}

impl BodyLengths {
    /// The longest body that any policy may ask for.
    pub const LONGEST: u8 = 12;

    /// Takes the bounds; `None` unless 1 ≤ `shortest` ≤ `longest` ≤ [`BodyLengths::LONGEST`].
    pub const fn new(shortest: u8, longest: u8) -> Option<Self> {
        if 1 <= shortest && shortest <= longest && longest <= Self::LONGEST {
            Some(Self { shortest, longest })
        } else {
            None
        }
    }

    /// Reads `7` or `7-9`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let number = |digits: &[u8]| -> Option<u8> {
            crate::number::parse_decimal(digits).and_then(|value| u8::try_from(value).ok())
        };
        match text.iter().position(|&byte| byte == b'-') {
            Some(dash) => Self::new(number(&text[..dash])?, number(&text[dash + 1..])?),
            None => number(text).and_then(|length| Self::new(length, length)),
        }
    }

    /// The shortest length.
    pub fn shortest(self) -> u8 {
        self.shortest
    }

    /// The longest length.
    pub fn longest(self) -> u8 {
        self.longest
    }

    /// Reports whether a body of this length can have been issued.
    #[inline]
    pub fn contain(self, length: usize) -> bool {
        (usize::from(self.shortest)..=usize::from(self.longest)).contains(&length)
    }
}

impl Default for BodyLengths {
    /// Seven characters: with the check character, eight.
    fn default() -> Self {
        Self {
            shortest: 7,
            longest: 7,
        }
    }
}

/// Rules of issued codes: one setting that nginx and the sidecar share.
///
/// The check character counts only for codes of a length that is issued. Codes of any other
/// length are custom or imported ones and are taken as they are, so that a company can bring its
/// old links, and a campaign its own word, whatever check is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeRules {
    /// The characters of issued codes.
    pub alphabet: Alphabet,
    /// Their check character.
    pub check: Check,
    /// Lengths of their bodies, without the check character.
    pub bodies: BodyLengths,
}

/// Result of the rules for a code, before its look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its length is one that is issued and its check character, if any, is right.
    Issued,
    /// Its length is none that is issued: only a custom or an imported link can have it.
    Foreign,
    /// Its length is one that is issued, but its check character is wrong: no link has it.
    WrongCheck,
}

impl CodeRules {
    /// Judges a code by its length and check character.
    #[inline]
    pub fn judge(&self, code: &Code) -> Verdict {
        let bytes = code.as_bytes();
        let body_length = bytes.len().wrapping_sub(self.check.length());
        if !self.bodies.contain(body_length) {
            return Verdict::Foreign;
        }
        if matches!(self.check, Check::None) {
            return Verdict::Issued;
        }
        let (body, check) = bytes.split_at(body_length);
        if self.check.accepts(self.alphabet, body, check[0]) {
            Verdict::Issued
        } else {
            Verdict::WrongCheck
        }
    }

    /// Makes the code of a body: appends the check character.
    ///
    /// # Errors
    /// Fails if the body has a character outside the alphabet or is empty or too long for a code.
    pub fn complete(&self, body: &[u8]) -> Result<Code, CodeError> {
        let mut text = [0; MAX_CODE_LENGTH];
        if body.len() + self.check.length() > MAX_CODE_LENGTH {
            return Err(CodeError::TooLong);
        }
        if !body
            .iter()
            .all(|&character| self.alphabet.digit(character).is_some())
        {
            return Err(CodeError::Character);
        }
        if body.is_empty() {
            return Err(CodeError::Empty);
        }
        text[..body.len()].copy_from_slice(body);
        let mut length = body.len();
        if let Some(check) = self.check.character(self.alphabet, body) {
            text[length] = check;
            length += 1;
        }
        Code::parse(&text[..length])
    }
}
