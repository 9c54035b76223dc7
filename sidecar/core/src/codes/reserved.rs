//! Words that are no codes.

use std::collections::HashSet;

use vocabulary::Code;

/// Words that are no codes, in any case of letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedWords(HashSet<String>);

impl ReservedWords {
    /// Takes the words.
    pub fn new(words: impl IntoIterator<Item = String>) -> Self {
        Self(
            words
                .into_iter()
                .map(|word| word.to_ascii_lowercase())
                .collect(),
        )
    }

    /// Reports whether a code is one of the words.
    pub fn contain(&self, code: &Code) -> bool {
        self.0.contains(&code.as_str().to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_words_count_in_any_case() {
        let words = ReservedWords::new(["Api".to_owned(), "admin".to_owned()]);
        for (code, reserved) in [
            ("api", true),
            ("API", true),
            ("aPi", true),
            ("Admin", true),
            ("apis", false),
            ("pi", false),
        ] {
            assert_eq!(
                words.contain(&code.parse().expect("a code")),
                reserved,
                "{code}"
            );
        }
    }
}
