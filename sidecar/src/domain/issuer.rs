//! Where the codes of new links come from.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use rand::CryptoRng;
use vocabulary::{Code, CodeError, CodeRules};

use crate::domain::target::Target;

/// What a strategy may know of the link that it draws a code for.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    /// Where the link will lead: a strategy may derive the code from it.
    pub target: &'a Target,
    /// How many codes were drawn for this link before and found taken or reserved.
    pub attempt: u32,
}

/// A way to come up with codes.
///
/// A strategy proposes; the store decides, since only there a code is known to be free. So a
/// strategy may propose codes that are taken, as long as it proposes others when asked again. It
/// may keep state of its own, here or elsewhere, which is why drawing is asynchronous and can
/// fail.
#[async_trait]
pub trait CodeStrategy: Send + Sync {
    /// Proposes a code.
    ///
    /// # Errors
    /// When there is none to be had.
    async fn draw(&self, draw: &Draw<'_>) -> Result<Code, DrawError>;
}

/// Why a strategy has no code to propose.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// The body that was drawn does not fit the rules for codes.
    #[error("a code of {length} characters could not be completed")]
    Rules {
        /// The body's length.
        length: usize,
        /// What is wrong with it.
        #[source]
        source: CodeError,
    },
}

/// Codes whose bodies are drawn at random, every one as likely as any other.
pub struct RandomCodes<R> {
    rules: CodeRules,
    rng: Mutex<R>,
}

impl<R: CryptoRng> RandomCodes<R> {
    /// Draws bodies of the shortest length that the rules know from `rng`.
    pub fn new(rules: CodeRules, rng: R) -> Self {
        Self {
            rules,
            rng: Mutex::new(rng),
        }
    }
}

#[async_trait]
impl<R: CryptoRng + Send> CodeStrategy for RandomCodes<R> {
    async fn draw(&self, _draw: &Draw<'_>) -> Result<Code, DrawError> {
        let length = usize::from(self.rules.bodies.shortest());
        let body = {
            // A generator is in order whatever happened to its last user.
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            random_characters(self.rules.alphabet.characters(), length, &mut *rng)
        };
        self.rules
            .complete(&body)
            .map_err(|source| DrawError::Rules { length, source })
    }
}

/// Draws characters, each of the alphabet as likely as any other; the alphabet has at most 256.
pub(crate) fn random_characters(
    alphabet: &[u8],
    length: usize,
    rng: &mut (impl CryptoRng + ?Sized),
) -> Vec<u8> {
    // A byte modulo the alphabet's size would favour the first characters. Bytes from the last
    // whole multiple of the size on are drawn again.
    let fair = 256 - 256 % alphabet.len();
    let mut characters = Vec::with_capacity(length);
    let mut bytes = [0; 32];
    while characters.len() < length {
        rng.fill_bytes(&mut bytes);
        let drawn = bytes.iter().map(|&byte| usize::from(byte));
        let drawn = drawn.filter(|&byte| byte < fair);
        let missing = length - characters.len();
        characters.extend(
            drawn
                .take(missing)
                .map(|byte| alphabet[byte % alphabet.len()]),
        );
    }
    characters
}

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

    /// Whether a code is one of the words.
    pub fn contain(&self, code: &Code) -> bool {
        self.0.contains(&code.as_str().to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use vocabulary::{Alphabet, BodyLengths, Check, CheckKey, CheckKeys, Verdict};

    use super::*;

    fn rules(alphabet: Alphabet, check: Check, length: u8) -> CodeRules {
        CodeRules {
            alphabet,
            check,
            bodies: BodyLengths::new(length, length).expect("a length in bounds"),
        }
    }

    #[tokio::test]
    async fn random_codes_follow_the_rules() {
        let keyed = Check::Keyed(CheckKeys::new(&[CheckKey::new([7; 16])]).expect("one key"));
        let target = Target::from_stored("https://example.com/".to_owned());
        for check in [Check::None, Check::Luhn, keyed] {
            for alphabet in [Alphabet::Base62, Alphabet::Unambiguous] {
                for length in [1, 7, BodyLengths::LONGEST] {
                    let rules = rules(alphabet, check.clone(), length);
                    let strategy = RandomCodes::new(rules.clone(), StdRng::seed_from_u64(1));
                    for attempt in 0..100 {
                        let target = &target;
                        let code = strategy
                            .draw(&Draw { target, attempt })
                            .await
                            .expect("a code");
                        assert_eq!(rules.judge(&code), Verdict::Issued, "{code}");
                        let length = usize::from(length) + rules.check.length();
                        assert_eq!(code.as_bytes().len(), length);
                    }
                }
            }
        }
    }

    #[test]
    fn every_character_is_as_likely_as_any_other() {
        const EACH: usize = 2000;
        for alphabet in [Alphabet::Base62, Alphabet::Unambiguous] {
            let characters = alphabet.characters();
            let mut rng = StdRng::seed_from_u64(42);
            let drawn = random_characters(characters, EACH * characters.len(), &mut rng);
            let chi_squared: f64 = characters
                .iter()
                .map(|member| {
                    let count = drawn.iter().filter(|&drawn| drawn == member).count();
                    (count as f64 - EACH as f64).powi(2) / EACH as f64
                })
                .sum();
            // With 61 degrees of freedom a fair draw stays below 108 in 9,998 of 10,000 cases;
            // the bias of a plain remainder (a quarter more of some) gives over 2,000.
            assert!(chi_squared < 108.0, "{alphabet:?}: {chi_squared}");
        }
    }

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
