//! Usage of the code space.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::codes::capacity::capacity;
use shortlink_core::codes::strategy::{CodePolicy, StrategyName};
use shortlink_core::ports::{CodeLease, PoolCounts, StoreError};
use shortlink_store::{Store, capacity_name};
use tokio::time::Instant;
use vocabulary::{Alphabet, Code, CodeRules, Verdict};

use super::codes::leases::Leases;
use super::codes::permuted::PermutedCodes;
use super::codes::pool::Watermarks;
use super::codes::sequence::{codes_up_to, counter, guesses, largest, number_of};

/// Days of history from which the rate of new links is calculated.
const DAYS: i64 = 7;

/// Seconds per day.
const DAY_S: i64 = 24 * 60 * 60;

/// The time for which a summary is not computed again.
const SUMMARY_FOR: Duration = Duration::from_secs(10);

/// Percentage of the numbers of all issued lengths from which it is worth a warning that they are burnt, or used.
const MANY_BURNT: u64 = 10;
const MANY_USED: u64 = 80;

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
    /// Leases of this process.
    pub leases: Arc<Leases>,
    /// The last summary.
    pub summary: Mutex<Option<(Instant, Summary)>>,
}

/// The use of the numbers that `permuted` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// All numbers.
    pub all: u64,
    /// Numbers that codes were drawn from.
    pub used: u64,
    /// Numbers that processes have leased and not used.
    pub leased: u64,
    /// Numbers that were given back and are leased next.
    pub returned: u64,
    /// Used numbers whose code has no link: the link was deleted or not stored, the code was taken or reserved, or the
    /// process was killed before leases were recorded. Too low by the links that have custom codes, or
    /// codes of other strategies, of that length.
    pub burnt: u64,
}

/// The use of the numbers of all issued lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The numbers of all issued lengths.
    pub numbers: Numbers,
    /// A warning for operators.
    pub warning: Option<&'static str>,
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
    /// Probability that a guessed code with a correct check character has a link: an upper bound for lengths that are not
    /// issued by default, since custom codes need no check character.
    pub chance: f64,
    /// Probability for a guesser who cannot calculate the check character. The edge rejects a wrong
    /// one without a look-up.
    pub blind_chance: f64,
    /// Greatest probability that a guess finds a link, for a guesser who knows a code of `sequence`: that for the largest
    /// number in use. `None` if the length has no such codes.
    pub neighbour_chance: Option<f64>,
    /// Time at which the length is full at the recent rate of new links; `None` when it never is or
    /// the time is unknown.
    pub full_at: Option<Timestamp>,
    /// Codes in the pool.
    pub pool: PoolCounts,
    /// Numbers of `permuted`; `None` if none was used.
    pub numbers: Option<Numbers>,
    /// Capacity that processes have leased and not used.
    pub leased: u64,
}

/// Facts that a code itself contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The result of the rules for codes.
    pub verdict: Verdict,
    /// The number that it contains if it is one of `sequence`; `None` if it cannot be one.
    pub sequence_number: Option<u64>,
}

impl Codespace {
    /// Returns every length that is used or allowed, the shortest first.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn usage(&self) -> Result<Vec<LengthUsage>, StoreError> {
        let now = self.clock.now();
        let today = now.as_second().div_euclid(DAY_S);
        let usage = self.store.code_usage(today - (DAYS - 1)).await?;
        let leases = self.leases.all().await?;
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
            // Codes that are issued have a check character, whatever lengths are issued by default.
            let numbered = length.saturating_sub(check);
            let guessed = size.pow(numbered as u32);
            let codes = if is_issued {
                guessed
            } else {
                size.pow(length as u32)
            };
            let sequence = self.next(&counter(numbered), &leases).await?;
            let guesses = guesses(sequence, numbered, self.rules.alphabet);
            let neighbour_chance = guesses.filter(|_| sequence > 0);
            let capacity = is_issued.then(|| self.capacity(codes, numbered));
            let chance = (links as f64 / guessed as f64).min(1.0);
            let blind = (links as f64 / size.pow(length as u32) as f64).min(1.0);
            all.push(LengthUsage {
                length,
                is_issued,
                codes,
                links,
                lately,
                capacity,
                chance,
                blind_chance: blind,
                neighbour_chance: neighbour_chance.map(|guesses| 1.0 / guesses as f64),
                full_at: capacity.and_then(|capacity| full_at(capacity, links, lately, now)),
                pool: self.store.count_pooled(length).await?,
                numbers: self.numbers(length, links, &leases).await?,
                leased: sum(&leases, &capacity_name(length), |it| it.next),
            });
        }
        Ok(all)
    }
}

impl Codespace {
    /// Reads the facts that a code itself contains, whether it has a link or not.
    pub fn decode(&self, code: &Code) -> Decoded {
        let Self { rules, .. } = self;
        Decoded {
            verdict: rules.judge(code),
            sequence_number: number_of(code, rules),
        }
    }

    /// Summarises the numbers of all issued lengths. A summary is up to ten seconds old.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn summary(&self) -> Result<Summary, StoreError> {
        let recent = *self.summary.lock();
        if let Some((_, summary)) = recent.filter(|(at, _)| at.elapsed() < SUMMARY_FOR) {
            return Ok(summary);
        }
        let mut numbers = Numbers::default();
        for of in self.usage().await?.iter().filter(|it| it.is_issued) {
            let of = of.numbers.unwrap_or_default();
            numbers.all = numbers.all.saturating_add(of.all);
            numbers.used += of.used;
            numbers.leased += of.leased;
            numbers.returned += of.returned;
            numbers.burnt += of.burnt;
        }
        let is_over = |count: u64, percent: u64| {
            numbers.all > 0
                && u128::from(count) * 100 >= u128::from(numbers.all) * u128::from(percent)
        };
        let warning = if is_over(numbers.used, MANY_USED) {
            Some("most numbers of permuted codes are used")
        } else if is_over(numbers.burnt, MANY_BURNT) {
            Some(
                "many numbers of permuted codes are burnt: they have no link and are not issued again",
            )
        } else {
            None
        };
        let summary = Summary { numbers, warning };
        *self.summary.lock() = Some((Instant::now(), summary));
        Ok(summary)
    }

    /// The number after the last one of a counter that may be used.
    async fn next(&self, counter: &str, leases: &[CodeLease]) -> Result<u64, StoreError> {
        let mut next = self.store.lease(counter, 0, 0).await?;
        // Leases that end where the used numbers would end, one before the other.
        let below = |until| {
            leases
                .iter()
                .find(|it| it.name == counter && it.until == until)
        };
        while let Some(lease) = below(next).filter(|it| it.next < next) {
            next = lease.next;
        }
        Ok(next)
    }

    /// The use of the numbers of `permuted` for a length.
    async fn numbers(
        &self,
        length: usize,
        links: u64,
        leases: &[CodeLease],
    ) -> Result<Option<Numbers>, StoreError> {
        let check = &self.rules.check;
        let Some(body) = length.checked_sub(check.length()) else {
            return Ok(None);
        };
        let counter = PermutedCodes::counter(length);
        let next = self.store.lease(&counter, 0, 0).await?;
        if next == 0 {
            return Ok(None);
        }
        let unused = |is_free: bool| {
            let of = leases.iter().filter(|it| it.holder.is_empty() == is_free);
            let of = of.filter(|it| it.name == counter);
            of.map(|it| it.until.saturating_sub(it.next)).sum()
        };
        let (leased, returned) = (unused(false), unused(true));
        let used = next.saturating_sub(leased).saturating_sub(returned);
        // Only so many numbers make codes of a smaller alphabet.
        let size = f64::from(self.rules.alphabet.size());
        let counted = if check.length() > 0 {
            body
        } else {
            body.saturating_sub(1)
        };
        let valid = (size / f64::from(Alphabet::Base62.size())).powi(counted as i32);
        let codes = (used as f64 * valid) as u64;
        Ok(Some(Numbers {
            all: self.store.numbering().capacity(check, body),
            used,
            leased,
            returned,
            burnt: codes.saturating_sub(links),
        }))
    }

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

fn sum(leases: &[CodeLease], name: &str, count: impl Fn(&CodeLease) -> u64) -> u64 {
    let of = leases.iter().filter(|it| it.name == name);
    of.map(count).fold(0, u64::saturating_add)
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
