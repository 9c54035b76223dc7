//! Codes that are derived from targets.
//!
//! A digest of the secret and the target gives four candidates; when all are taken, the digest of
//! the next round gives four others. The same target always has the same candidates, so a client
//! that repeats a request can find its earlier code.

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use shortlink_core::codes::numbering::CodeKey;
use vocabulary::{Code, CodeRules};

use super::strategy::{CodeStrategy, DrawError, DrawRequest, complete};

/// Candidates per digest.
const CANDIDATES: u32 = 4;

/// Derives codes from targets and a secret.
pub struct HashedCodes {
    secret: [u8; 32],
    rules: CodeRules,
}

impl HashedCodes {
    /// Derives codes with a secret of this database.
    pub fn new(key: &CodeKey, rules: CodeRules) -> Self {
        Self {
            secret: key.derive("hash"),
            rules,
        }
    }

    /// Returns the characters before the check character for a target and an attempt.
    fn body(&self, target: &str, attempt: u32, length: usize) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(self.secret);
        hash.update((attempt / CANDIDATES).to_be_bytes());
        hash.update(target.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let (numbers, _) = digest.as_chunks::<8>();
        let mut number = u64::from_be_bytes(numbers[(attempt % CANDIDATES) as usize]);
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
impl CodeStrategy for HashedCodes {
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

    use super::*;

    #[tokio::test]
    async fn a_target_is_offered_the_same_codes_again_and_always_others() {
        let codes = HashedCodes::new(&CodeKey::new([1; 32]), CodeRules::default());
        let other_key = HashedCodes::new(&CodeKey::new([2; 32]), CodeRules::default());
        let mut seen = HashSet::new();
        for attempt in 0..40 {
            let request = DrawRequest {
                length: 7,
                targets: &["https://example.com/a", "https://example.com/b"],
                attempt,
            };
            let drawn = codes.draw(&request).await.expect("codes");
            assert_eq!(drawn, codes.draw(&request).await.expect("codes"));
            assert_ne!(drawn, other_key.draw(&request).await.expect("codes"));
            seen.extend(drawn);
        }
        assert_eq!(seen.len(), 80);
    }
}
