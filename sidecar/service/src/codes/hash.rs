//! Codes that are derived from targets.
//!
//! A digest of the secret and the target gives four candidates, always the same ones for a target. When all are taken,
//! a salt is drawn and digested too, so a target can have as many codes as any other strategy gives it.

use async_trait::async_trait;
use parking_lot::Mutex;
use rand::CryptoRng;
use sha2::{Digest, Sha256};
use shortlink_core::codes::numbering::CodeKey;
use vocabulary::{Code, CodeRules};

use super::strategy::{CodeStrategy, DrawError, DrawRequest, complete};

/// Candidates without a salt, as many as a digest has numbers.
const CANDIDATES: usize = 4;

/// Derives codes from targets and a secret.
pub struct HashedCodes<R> {
    secret: [u8; 32],
    rules: CodeRules,
    rng: Mutex<R>,
}

impl<R: CryptoRng> HashedCodes<R> {
    /// Derives codes with a secret of this database, and draws salts from `rng`.
    pub fn new(key: &CodeKey, rules: CodeRules, rng: R) -> Self {
        Self {
            secret: key.derive("hash"),
            rules,
            rng: Mutex::new(rng),
        }
    }

    /// Returns the characters before the check character for a target and an attempt.
    fn body(&self, target: &str, attempt: u32, length: usize) -> Vec<u8> {
        let candidate = Some(attempt as usize).filter(|&attempt| attempt < CANDIDATES);
        let mut hash = Sha256::new();
        hash.update(self.secret);
        hash.update(u32::from(candidate.is_none()).to_be_bytes());
        if candidate.is_none() {
            let mut salt = [0; 16];
            self.rng.lock().fill_bytes(&mut salt);
            hash.update(salt);
        }
        hash.update(target.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let (numbers, _) = digest.as_chunks::<8>();
        let mut number = u64::from_be_bytes(numbers[candidate.unwrap_or_default()]);
        // The whole number modulo the size of the alphabet, digit by digit: eight digits are less
        // than 2^48, so the bias is below 2^-16. Masked bits would omit characters.
        let alphabet = self.rules.alphabet;
        let size = u64::from(alphabet.size());
        let mut body = vec![0; length];
        for character in &mut body {
            *character = alphabet.character((number % size) as u8);
            number /= size;
        }
        body
    }
}

#[async_trait]
impl<R: CryptoRng + Send> CodeStrategy for HashedCodes<R> {
    async fn draw(&self, request: &DrawRequest<'_>) -> Result<Vec<Code>, DrawError> {
        let codes = request.targets.iter().map(|target| {
            let body = self.body(target, request.attempt, request.length);
            complete(&self.rules, &body)
        });
        codes.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[tokio::test]
    async fn a_target_is_offered_the_same_codes_again_before_any_others() {
        let codes = |key, seed| {
            let rng = StdRng::seed_from_u64(seed);
            HashedCodes::new(&CodeKey::new([key; 32]), CodeRules::default(), rng)
        };
        let (codes, again, other_key) = (codes(1, 1), codes(1, 2), codes(2, 1));
        let mut seen = HashSet::new();
        for attempt in 0..40 {
            let request = DrawRequest {
                length: 7,
                targets: &["https://example.com/a", "https://example.com/b"],
                attempt,
            };
            let drawn = codes.draw(&request).await.expect("codes");
            let drawn_again = again.draw(&request).await.expect("codes");
            assert_eq!(drawn == drawn_again, attempt < 4, "{attempt}");
            assert_ne!(drawn, other_key.draw(&request).await.expect("codes"));
            seen.extend(drawn);
        }
        assert_eq!(seen.len(), 80);
    }
}
