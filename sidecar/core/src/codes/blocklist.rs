//! Words that issued codes do not contain.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use vocabulary::{Code, MAX_CODE_LENGTH};

/// The list that comes with the program.
const BUILT_IN: &str = include_str!("../../../data/blocklist.txt");

/// The fewest characters of a word. Shorter ones would be in too many codes.
const SHORTEST: usize = 3;

/// Words that are in no issued code, in any case of letters, and with digits in place of the letters that they look
/// like. By default there are none.
#[derive(Clone, Debug, Default)]
pub struct Blocklist(Option<AhoCorasick>);

impl Blocklist {
    /// Reads lists of words, each word on a line of its own. Ignores empty lines, and those that begin with `#`.
    ///
    /// # Errors
    /// Fails with the first line that no code can contain.
    pub fn parse<'a>(lists: impl IntoIterator<Item = &'a str>) -> Result<Self, BlocklistError> {
        let mut words = Vec::new();
        for list in lists {
            for (place, line) in list.lines().enumerate() {
                let word = line.trim();
                if word.is_empty() || word.starts_with('#') {
                    continue;
                }
                let lengths = SHORTEST..=MAX_CODE_LENGTH;
                let is_word = word.bytes().all(|byte| byte.is_ascii_alphanumeric());
                if !is_word || !lengths.contains(&word.len()) {
                    return Err(BlocklistError {
                        line: place + 1,
                        word: word.to_owned(),
                    });
                }
                words.push(word.bytes().map(fold).collect::<Vec<u8>>());
            }
        }
        if words.is_empty() {
            return Ok(Self::default());
        }
        let mut builder = AhoCorasick::builder();
        let automaton = builder.kind(Some(AhoCorasickKind::DFA)).build(words);
        // Fails only for more patterns than 32 bits number.
        Ok(Self(automaton.ok()))
    }

    /// The text of the list that comes with the program.
    pub fn built_in() -> &'static str {
        BUILT_IN
    }

    /// Reports whether a code contains one of the words.
    pub fn blocks(&self, code: &Code) -> bool {
        let Some(automaton) = &self.0 else {
            return false;
        };
        let mut folded = [0; MAX_CODE_LENGTH];
        let bytes = code.as_bytes();
        for (folded, byte) in folded.iter_mut().zip(bytes) {
            *folded = fold(*byte);
        }
        automaton.is_match(&folded[..bytes.len()])
    }
}

/// A character as all those that look like it.
fn fold(byte: u8) -> u8 {
    match byte.to_ascii_lowercase() {
        b'0' => b'o',
        b'1' | b'l' => b'i',
        b'3' => b'e',
        b'4' => b'a',
        b'5' => b's',
        b'7' => b't',
        other => other,
    }
}

/// A line of a list that no code can contain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line} has {word:?}, but must have one word of {SHORTEST} to {MAX_CODE_LENGTH} letters and digits"
)]
pub struct BlocklistError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The line.
    pub word: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_anywhere_in_any_case_and_with_digits_that_look_like_letters() {
        let list = Blocklist::parse(["# A comment\n\n bastille \r\n", "Zob"]).expect("words");
        for (code, is_blocked) in [
            ("bastille", true),
            ("xBASTILLEx", true),
            ("b4571lle", true),
            ("8a5t1113", false),
            ("ba5t1113", true),
            ("1zob", true),
            ("zOb", true),
            ("Z0Bxyz", true),
            ("zo", false),
            ("zxob", false),
            ("bastil", false),
        ] {
            let code: Code = code.parse().expect("a code");
            assert_eq!(list.blocks(&code), is_blocked, "{code}");
            assert!(!Blocklist::default().blocks(&code));
        }
    }

    #[test]
    fn a_line_that_no_code_contains_is_named() {
        for (list, line) in [
            ("ab", 1),
            ("abc\na b c", 2),
            ("abc\n\n\u{fc}ber", 3),
            (&*"a".repeat(65), 1),
        ] {
            let error = Blocklist::parse(["first", list]).map(drop);
            assert_eq!(error.expect_err("a fault").line, line, "{list}");
        }
    }

    #[test]
    fn the_built_in_list_has_words_and_takes_few_codes() {
        let list = Blocklist::parse([Blocklist::built_in()]).expect("a good list");
        assert!(list.blocks(&"xfuckx".parse().expect("a code")));
        let mut blocked = 0;
        let numbers = 0..200_000_u64;
        for number in numbers.clone() {
            // Splitmix: scattered over all codes of eight characters.
            let mut rest = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            rest = (rest ^ (rest >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            rest = (rest ^ (rest >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            rest ^= rest >> 31;
            let mut text = [0; 8];
            for byte in &mut text {
                *byte = vocabulary::Alphabet::Base62.characters()[(rest % 62) as usize];
                rest /= 62;
            }
            blocked += u64::from(list.blocks(&Code::parse(&text).expect("a code")));
        }
        assert!(blocked * 100 < numbers.end, "{blocked} of {}", numbers.end);
    }
}
