//! Usage of the code space.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use shortlink_core::clock::Clock;
use shortlink_core::codes::capacity::capacity;
use shortlink_core::codes::strategy::{CodePolicy, StrategyName};
use shortlink_core::ports::{PoolCounts, StoreError};
use shortlink_store::Store;
use vocabulary::{Check, CodeRules};

use super::codes::pool::Watermarks;
use super::codes::sequence::{codes_up_to, counter, guesses, largest};

/// Days of history from which the rate of new links is calculated.
const DAYS: i64 = 7;

/// Seconds per day.
const DAY_S: i64 = 24 * 60 * 60;

/// Reports the usage of the code space.
pub struct Codespace {
    /// Store, which counts the used codes.
    pub store: Arc<Store>,
    /// Rules for codes.
    pub rules: CodeRules,
    /// Policy for new codes.
    pub policy: CodePolicy,
    /// At most one of so many codes of a length has a link.
    pub one_in: u64,
    /// The least mean number of guesses for a link, by a guesser who knows a code of `sequence`.
    pub sequence_one_in: u64,
    /// Watermarks of the pool.
    pub pool: Watermarks,
    /// Clock.
    pub clock: Arc<dyn Clock>,
}

/// Usage of the codes of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthUsage {
    /// Number of characters, including the check character.
    pub length: usize,
    /// Codes of this length are issued, and end with a check character if one is configured.
    pub is_issued: bool,
    /// Number of possible codes.
    pub codes: u128,
    /// Number of links with such a code.
    pub links: u64,
    /// Number of these links created today and on the six days before.
    pub lately: u64,
    /// Number of links after which the next length is used; for issued lengths.
    pub capacity: Option<u64>,
    /// Probability that a guessed code with a correct check character has a link.
    pub chance: f64,
    /// Probability for a guesser who cannot calculate the check character. The edge rejects a wrong
    /// one without a look-up.
    pub blind_chance: f64,
    /// Greatest probability that a guess finds a link, for a guesser who knows a code of `sequence`: that for the largest
    /// number that was leased. `None` if the length has no such codes.
    pub neighbour_chance: Option<f64>,
    /// Time at which the length is full at the recent rate of new links; `None` when it never is or
    /// the time is unknown.
    pub full_at: Option<Timestamp>,
    /// Codes in the pool.
    pub pool: PoolCounts,
}

impl Codespace {
    /// Returns every length that is used or allowed, the shortest first.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn usage(&self) -> Result<Vec<LengthUsage>, StoreError> {
        let now = self.clock.now();
        let today = now.as_second().div_euclid(DAY_S);
        let usage = self.store.code_usage(today - (DAYS - 1)).await?;
        let check = self.rules.check.length();
        let (shortest, longest) = self.policy.lengths;
        let issued = (shortest..=longest).map(|length| usize::from(length) + check);
        let issued: BTreeSet<usize> = issued.collect();
        let mut lengths = issued.clone();
        lengths.extend(usage.iter().filter(|it| it.links > 0).map(|it| it.length));
        let mut all = Vec::with_capacity(lengths.len());
        let size = u128::from(self.rules.alphabet.size());
        for length in lengths {
            let counts = usage.iter().find(|it| it.length == length);
            let (links, lately) = counts.map_or((0, 0), |it| (it.links, it.lately));
            let is_issued = issued.contains(&length);
            let body = if is_issued { length - check } else { length };
            let codes = size.pow(body as u32);
            // Codes of a sequence have a check character, whatever lengths are issued by default.
            let numbered = length.saturating_sub(check);
            let sequence = self.store.lease(&counter(numbered), 0, 0).await?;
            let guesses = guesses(sequence, numbered, self.rules.alphabet);
            let neighbour_chance = guesses.filter(|_| sequence > 0);
            let capacity = is_issued.then(|| self.capacity(codes, body));
            let chance = (links as f64 / codes as f64).min(1.0);
            let is_checked = is_issued && !matches!(self.rules.check, Check::None);
            all.push(LengthUsage {
                length,
                is_issued,
                codes,
                links,
                lately,
                capacity,
                chance,
                blind_chance: if is_checked {
                    chance / size as f64
                } else {
                    chance
                },
                neighbour_chance: neighbour_chance.map(|guesses| 1.0 / guesses as f64),
                full_at: capacity.and_then(|capacity| full_at(capacity, links, lately, now)),
                pool: self.store.count_pooled(length).await?,
            });
        }
        Ok(all)
    }
}

impl Codespace {
    /// The most links with codes of a length.
    fn capacity(&self, codes: u128, body: usize) -> u64 {
        let most = capacity(codes, self.one_in);
        if self.policy.strategy != StrategyName::Sequence {
            return most;
        }
        let largest = largest(body, self.rules.alphabet, self.sequence_one_in);
        most.min(largest.map_or(0, codes_up_to))
    }
}

/// Estimates when so many links are reached at the recent rate.
fn full_at(capacity: u64, links: u64, lately: u64, now: Timestamp) -> Option<Timestamp> {
    let left = capacity.saturating_sub(links);
    if left == 0 {
        return Some(now);
    }
    if lately == 0 {
        return None;
    }
    let seconds = u128::from(left) * (DAYS * DAY_S) as u128 / u128::from(lately);
    let second = now.as_second().checked_add(i64::try_from(seconds).ok()?)?;
    // Times beyond the year 9999 cannot be represented.
    Timestamp::from_second(second).ok()
}

#[cfg(test)]
mod tests {
    use shortlink_core::testing::moment;

    use super::*;

    #[test]
    fn the_day_when_a_length_is_full_follows_from_the_last_days() {
        let now = moment("2026-06-01T00:00:00Z");
        let full = |capacity, links, lately| full_at(capacity, links, lately, now);
        assert_eq!(full(1000, 1000, 5), Some(now));
        assert_eq!(full(1000, 1200, 0), Some(now));
        assert_eq!(full(1000, 300, 0), None);
        assert_eq!(full(1000, 300, 70), Some(moment("2026-08-10T00:00:00Z")));
        assert_eq!(full(u64::MAX, 1, 1), None);
    }
}
