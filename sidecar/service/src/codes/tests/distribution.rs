//! Every character is equally likely at every position, whatever its neighbours.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use sha2::{Digest, Sha256};
use shortlink_core::codes::numbering::CodeKey;
use shortlink_store::testing::TemporaryStore;
use vocabulary::{Alphabet, Check, CheckKey, CheckKeys, Code, CodeRules};

use super::statistics::{chi_squared, chi_squared_limit};
use crate::codes::hash::HashedCodes;
use crate::codes::permuted::PermutedCodes;
use crate::codes::pool::{PooledCodes, Watermarks};
use crate::codes::strategy::{CodeStrategy, DrawRequest};
use crate::testing::leases;

const LENGTH: usize = 7;

/// Size of the sample: six codes for each pair of characters at two positions.
const COUNT: usize = 24_000;

/// Codes per draw.
const TOGETHER: usize = 4000;

fn rules() -> Vec<CodeRules> {
    let keys = CheckKeys::new(&[CheckKey::new([7; 16])]).expect("one key");
    let checks = [Check::Luhn, Check::Keyed(keys), Check::None];
    let alphabets = [Alphabet::Base62, Alphabet::Unambiguous];
    let all = checks.into_iter().flat_map(|check| {
        alphabets.map(|alphabet| CodeRules {
            alphabet,
            check: check.clone(),
            ..CodeRules::default()
        })
    });
    all.collect()
}

async fn drawn(strategy: &dyn CodeStrategy) -> Vec<Code> {
    let mut codes = Vec::with_capacity(COUNT);
    while codes.len() < COUNT {
        let target = |number| format!("https://example.com/?customer={number}");
        let targets: Vec<String> = (codes.len()..codes.len() + TOGETHER).map(target).collect();
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        let request = DrawRequest {
            length: LENGTH,
            targets: &targets,
            attempt: 0,
        };
        codes.extend(strategy.draw(&request).await.expect("codes"));
    }
    codes
}

/// Returns the positions with characters that are too frequent, and the neighbours with such pairs:
/// none when all is well. Panics on characters outside the alphabet.
fn uneven(texts: &[Vec<u8>], alphabet: Alphabet) -> Vec<String> {
    let size = usize::from(alphabet.size());
    let digits = |text: &Vec<u8>| -> Vec<usize> {
        let digits = text.iter().map(|&character| alphabet.digit(character));
        digits
            .map(|digit| usize::from(digit.expect("a character of the alphabet")))
            .collect()
    };
    let texts: Vec<Vec<usize>> = texts.iter().map(digits).collect();
    let length = texts[0].len();
    let mut found = Vec::new();
    let mut judge = |what: String, counts: &[u32]| {
        let (value, limit) = (chi_squared(counts), chi_squared_limit(counts.len()));
        if value >= limit {
            found.push(format!("{what}: {value:.0}, where {limit:.0} is too much"));
        }
    };
    for position in 0..length {
        let mut counts = vec![0; size];
        for text in &texts {
            counts[text[position]] += 1;
        }
        judge(format!("position {position}"), &counts);
    }
    for (one, other) in (1..length).map(|other| (other - 1, other)) {
        let mut counts = vec![0; size * size];
        for text in &texts {
            counts[text[one] * size + text[other]] += 1;
        }
        judge(format!("positions {one} and {other}"), &counts);
    }
    found
}

fn texts(codes: &[Code]) -> Vec<Vec<u8>> {
    codes.iter().map(|code| code.as_bytes().to_vec()).collect()
}

async fn assert_even<F: Fn(CodeRules) -> Arc<dyn CodeStrategy>>(make: F) {
    for rules in rules() {
        let (alphabet, check) = (rules.alphabet, rules.check.clone());
        let codes = drawn(&*make(rules)).await;
        let found = uneven(&texts(&codes), alphabet);
        assert_eq!(found, [""; 0], "{alphabet:?}, {check:?}");
    }
}

#[tokio::test]
async fn permuted_codes_have_every_character_equally_often_at_every_position() {
    let temporary = TemporaryStore::new().await;
    let store = &temporary.store;
    let leases = |rules: &CodeRules| leases(store, rules, "a");
    assert_even(|rules| Arc::new(PermutedCodes::new(leases(&rules), rules))).await;
}

#[tokio::test]
async fn pooled_codes_have_every_character_equally_often_at_every_position() {
    let watermarks = Watermarks { low: 1, high: 1 };
    for (seed, rules) in (1..).zip(rules()) {
        // A pool with codes of one alphabet would issue them for another.
        let temporary = TemporaryStore::new().await;
        let leases = leases(&temporary.store, &rules, "a");
        let alphabet = rules.alphabet;
        let rng = StdRng::seed_from_u64(seed);
        let codes = drawn(&PooledCodes::new(leases, rules, watermarks, rng)).await;
        assert_eq!(uneven(&texts(&codes), alphabet), [""; 0]);
    }
}

#[tokio::test]
async fn hashed_codes_have_every_character_equally_often_at_every_position() {
    let key = CodeKey::new([3; 32]);
    assert_even(|rules| Arc::new(HashedCodes::new(&key, rules, StdRng::seed_from_u64(1)))).await;
}

/// A known weakness: bits of a digest, masked, as an index into the alphabet. The mask has a hole,
/// so half of the characters never occur.
fn masked(target: &str, alphabet: Alphabet) -> Vec<u8> {
    let digest = Sha256::digest(target.as_bytes());
    let digits = digest.iter().take(LENGTH).map(|byte| byte & 0x3D);
    digits.map(|digit| alphabet.character(digit)).collect()
}

/// Another known weakness: the remainder of a byte, which favours the first characters.
fn remainder(target: &str, alphabet: Alphabet) -> Vec<u8> {
    let digest = Sha256::digest(target.as_bytes());
    let bytes = digest.iter().take(LENGTH);
    bytes.map(|byte| alphabet.character(*byte)).collect()
}

#[test]
fn codes_that_leave_characters_out_or_prefer_some_are_found_out() {
    type Derive = fn(&str, Alphabet) -> Vec<u8>;
    for derive in [masked as Derive, remainder] {
        for alphabet in [Alphabet::Base62, Alphabet::Unambiguous] {
            let target = |number| format!("https://example.com/?customer={number}");
            let texts: Vec<Vec<u8>> = (0..COUNT)
                .map(|number| derive(&target(number), alphabet))
                .collect();
            let found = uneven(&texts, alphabet);
            for position in 0..LENGTH {
                let what = format!("position {position}:");
                let is_found = found.iter().any(|found| found.starts_with(&what));
                assert!(is_found, "{alphabet:?}, {what} {found:?}");
            }
        }
    }
    let target = "https://example.com/";
    let used: std::collections::BTreeSet<u8> = (0..COUNT)
        .flat_map(|number| masked(&format!("{target}{number}"), Alphabet::Base62))
        .collect();
    assert_eq!(used.len(), 32);
}
