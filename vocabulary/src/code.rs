//! Codes: the part of a short URL after the domain.

use core::fmt;

use crate::alphabet::Alphabet;
use crate::check::Check;

/// The most characters that any code has, its check character included.
pub const MAX_CODE_LENGTH: usize = 64;

/// The most candidates that a text has ([`CodeRules::candidates`]), each in its own case and in lower case.
const MAX_CUTS: usize = 4;

/// A code of a right shape: 1 to [`MAX_CODE_LENGTH`] characters of [`Alphabet::Base62`], hyphens and underscores.
///
/// That a value is a `Code` says nothing of its check character ([`CodeRules::judge`]) or of
/// whether a link exists.
#[derive(Clone, Copy)]
pub struct Code {
    /// The characters; those behind `length` are zero.
    bytes: [u8; MAX_CODE_LENGTH],
    length: u8,
}

/// Codes are compared, ordered and hashed by their characters only: most are much shorter than the longest.
impl PartialEq for Code {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Code {}

impl core::hash::Hash for Code {
    #[inline]
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        // No code ends with a zero, so that its words imply its length.
        for word in self
            .bytes
            .chunks_exact(8)
            .take(self.as_bytes().len().div_ceil(8))
        {
            state.write_u64(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
    }
}

impl PartialOrd for Code {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Code {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// Reports whether a byte can stand in a code.
#[inline]
fn is_of_code(byte: u8) -> bool {
    Alphabet::Base62.digit(byte).is_some() || is_separator(byte)
}

/// Reports whether a byte is a character that no issued code has.
#[inline]
fn is_separator(byte: u8) -> bool {
    matches!(byte, b'-' | b'_')
}

impl Code {
    /// Reads a code.
    ///
    /// # Errors
    /// Fails if it is empty, too long, or has a character other than letters and digits of ASCII, `-` and `_`.
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
            if !is_of_code(from) {
                return Err(CodeError::Character);
            }
            *to = from;
        }
        Ok(Self {
            bytes,
            length: text.len() as u8,
        })
    }

    /// Reads the code that begins a text: its longest run of characters of codes; if that is too long for a code, its
    /// longest run of letters and digits.
    ///
    /// # Errors
    /// Fails if no character of a code begins the text, or both runs are too long.
    #[inline]
    pub fn leading(text: &[u8]) -> Result<Self, CodeError> {
        let mut bytes = [0; MAX_CODE_LENGTH];
        let mut length = 0;
        for (to, &from) in bytes.iter_mut().zip(text) {
            if !is_of_code(from) {
                break;
            }
            *to = from;
            length += 1;
        }
        if length == 0 {
            return Err(CodeError::Empty);
        }
        let code = Self { bytes, length };
        match text.get(MAX_CODE_LENGTH) {
            Some(&more) if usize::from(length) == MAX_CODE_LENGTH && is_of_code(more) => {
                code.first_part().ok_or(CodeError::TooLong)
            }
            _ => Ok(code),
        }
    }

    /// Reports whether the code has a character that no issued code has: a hyphen or an underscore.
    #[inline]
    pub fn has_separator(&self) -> bool {
        self.as_bytes().iter().any(|&byte| is_separator(byte))
    }

    /// The code in lower case.
    pub fn to_lower_case(&self) -> Self {
        Self {
            bytes: self.bytes.map(|byte| byte.to_ascii_lowercase()),
            length: self.length,
        }
    }

    /// The letters and digits before the first separator, if there are any and a separator.
    fn first_part(&self) -> Option<Self> {
        let bytes = self.as_bytes();
        self.cut(bytes.iter().position(|&byte| is_separator(byte))?)
    }

    /// The characters before the last separator, if there are any.
    fn without_last_part(&self) -> Option<Self> {
        let bytes = self.as_bytes();
        self.cut(bytes.iter().rposition(|&byte| is_separator(byte))?)
    }

    /// The first characters of the code; `None` if they are none.
    fn cut(&self, length: usize) -> Option<Self> {
        Self::parse(&self.as_bytes()[..length]).ok()
    }

    /// The code's characters.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The code's characters, followed by zeros.
    #[inline]
    pub fn padded(&self) -> &[u8; MAX_CODE_LENGTH] {
        &self.bytes
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
    /// A character is not a letter or digit of ASCII, a hyphen or an underscore.
    Character,
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a code has at least 1 character"),
            Self::TooLong => write!(f, "a code has at most {MAX_CODE_LENGTH} characters"),
            Self::Character => {
                f.write_str("a code consists of the characters 0-9, A-Z, a-z, - and _")
            }
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
/// The check character counts only for codes that can have been issued: of a length that is issued, without hyphens and
/// underscores. Any other is a custom or imported one and is taken as it is, so that a company can bring its old links,
/// and a campaign its own word, whatever check is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeRules {
    /// The characters of issued codes.
    pub alphabet: Alphabet,
    /// Their check character.
    pub check: Check,
    /// Lengths of their bodies, without the check character.
    pub bodies: BodyLengths,
    /// Finds custom codes in lower case, too, when a text in another case is no code.
    pub ignores_case: bool,
}

/// Result of the rules for a code, before its look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its length is one that is issued and its check character, if any, is right.
    Issued,
    /// It has a length that is not issued, a hyphen or an underscore: only a custom or an imported link can have it.
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
        let (body, check) = bytes.split_at(body_length);
        match check {
            [] if !code.has_separator() => Verdict::Issued,
            [check] if self.check.accepts(self.alphabet, body, *check) => Verdict::Issued,
            _ if code.has_separator() => Verdict::Foreign,
            _ => Verdict::WrongCheck,
        }
    }

    /// The codes that a text can stand for, which [`Code::leading`] has read, the text itself first. The first that has a
    /// link is the right one.
    ///
    /// Messengers link text that is glued behind a code, with a hyphen or underscore too (`/Ab3xK9q2-STOP`). So the text
    /// is followed by itself without its last part, and so on, and at last by its letters and digits before the first
    /// hyphen or underscore. With [`CodeRules::ignores_case`], each is followed by itself in lower case, unless it is
    /// one that was issued. Others with a wrong check character are left out, and there are eight at most.
    pub fn candidates(&self, text: &Code) -> impl Iterator<Item = Code> {
        let mut cuts = [None; MAX_CUTS];
        let mut last = Some(*text);
        for (number, cut) in cuts.iter_mut().enumerate() {
            *cut = last;
            last = last.and_then(|it| match number + 2 {
                MAX_CUTS => it.first_part(),
                _ => it.without_last_part(),
            });
        }
        let both = cuts.into_iter().flatten().flat_map(move |cut| {
            let folded = self.ignores_case && self.judge(&cut) == Verdict::Foreign;
            let folded = folded.then(|| cut.to_lower_case());
            [Some(cut), folded.filter(|folded| *folded != cut)]
        });
        let is_usable = move |it: &Code| it == text || self.judge(it) != Verdict::WrongCheck;
        both.flatten().filter(is_usable)
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
