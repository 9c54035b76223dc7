//! Random codes that are generated in advance.
//!
//! The pool is a table in SQL. Each code has a status: unused, used once a process has leased it
//! ([`leases`](super::leases)), or void when a link turned out to have it. When the number of unused codes falls below the low
//! watermark, the pool is filled up to the high one: in the background or, when it is empty, by the
//! process that needs a code.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use rand::CryptoRng;
use shortlink_core::boxed;
use shortlink_core::codes::random::random_characters;
use shortlink_core::ports::PoolCounts;
use shortlink_store::{PooledWanted, Store, pool_name};
use vocabulary::{Code, CodeRules};

use super::leases::Leases;
use super::strategy::{CodeStrategy, DrawError, DrawRequest, complete};

/// The number of codes that a process leases at once, unless a request needs more: at most one of [`LEASES`] parts of a
/// length.
const USUAL_LEASE: u64 = 256;
const LEASES: u64 = 256;

/// Codes that one write adds to the pool.
const FILLED_TOGETHER: u64 = 1000;

/// Bounds on the number of unused codes of each length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this number the pool is filled.
    pub low: u64,
    /// Number up to which it is filled.
    pub high: u64,
}

/// Issues codes that were generated in advance.
pub struct PooledCodes<R> {
    leases: Arc<Leases>,
    store: Arc<Store>,
    rules: CodeRules,
    watermarks: Watermarks,
    rng: Mutex<R>,
    /// The lengths that this process has drawn codes of, without the check character.
    drawn: Mutex<BTreeSet<usize>>,
}

impl<R: CryptoRng + Send> PooledCodes<R> {
    /// Takes codes from the pool in the store of leases.
    pub fn new(leases: Arc<Leases>, rules: CodeRules, watermarks: Watermarks, rng: R) -> Self {
        Self {
            store: Arc::clone(&leases.store),
            leases,
            rules,
            watermarks,
            rng: Mutex::new(rng),
            drawn: Mutex::default(),
        }
    }

    /// Fills the pool where it is low, for the lengths in use.
    ///
    /// # Errors
    /// Fails with the first error, after all lengths were tried.
    #[boxed]
    pub async fn fill_where_low(&self) -> Result<(), DrawError> {
        let lengths = self.drawn.lock().clone();
        let mut filled = Ok(());
        for length in lengths {
            let this = self.fill_if_low(length).await;
            filled = filled.and(this.map_err(|source| DrawError::Fill {
                length,
                source: Box::new(source),
            }));
        }
        filled
    }

    async fn fill_if_low(&self, length: usize) -> Result<(), DrawError> {
        let whole_length = length + self.rules.check.length();
        let PoolCounts { unused, used, void } = self.store.count_pooled(whole_length).await?;
        if unused < self.watermarks.low {
            // A short length may have fewer codes than the pool should hold. Once half of them were
            // drawn, most further draws would be duplicates.
            let room = (self.all(length) / 2).saturating_sub(unused + used + void);
            let count = room.min(self.watermarks.high - unused);
            self.fill(length, count).await?;
        }
        Ok(())
    }

    /// Adds codes to the pool; returns the number of new ones, which is lower than `count` when
    /// many are taken.
    async fn fill(&self, length: usize, count: u64) -> Result<u64, DrawError> {
        let mut new = 0;
        let mut left = count;
        while left > 0 {
            let some = left.min(FILLED_TOGETHER);
            let codes = (0..some).map(|_| self.random_code(length));
            let codes = codes.collect::<Result<_, _>>()?;
            new += self.store.fill_pool(codes).await?;
            left -= some;
        }
        Ok(new)
    }

    fn random_code(&self, length: usize) -> Result<Code, DrawError> {
        let alphabet = self.rules.alphabet.characters();
        let body = random_characters(alphabet, length, &mut *self.rng.lock());
        complete(&self.rules, &body)
    }

    /// The number of codes of a length.
    fn all(&self, length: usize) -> u64 {
        u64::from(self.rules.alphabet.size()).saturating_pow(length as u32)
    }
}

#[async_trait]
impl<R: CryptoRng + Send> CodeStrategy for PooledCodes<R> {
    async fn draw(&self, request: &DrawRequest<'_>) -> Result<Vec<Code>, DrawError> {
        let (length, wanted) = (request.length, request.targets.len());
        self.drawn.lock().insert(length);
        let whole_length = length + self.rules.check.length();
        let usual = (self.all(length) / LEASES).clamp(1, USUAL_LEASE);
        let mut held = self.leases.hold(&pool_name(whole_length)).await?;
        while held.codes.len() < wanted {
            let missing = (wanted - held.codes.len()) as u64;
            let count = u32::try_from(missing.max(usual)).unwrap_or(u32::MAX);
            let now = self.leases.now();
            let asked = PooledWanted {
                length: whole_length,
                count,
                held: held.codes.clone(),
                request: held.answered + 1,
            };
            let holder = &self.leases.holder;
            let leased = self.store.lease_pooled(asked, holder, now.1).await?;
            held.codes.extend(leased);
            held.answered += 1;
            held.confirm(now);
            if held.codes.len() >= wanted {
                break;
            }
            // The pool was not filled in time, or other processes took the new codes. The length is
            // full only when no code can be added.
            let missing = (wanted - held.codes.len()) as u64;
            let count = missing + usual.min(self.watermarks.high);
            if self.fill(length, count).await? == 0 {
                break;
            }
        }
        let first = held.codes.len().saturating_sub(wanted);
        Ok(held.codes.split_off(first))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use shortlink_store::testing::TemporaryStore;

    use super::*;

    #[tokio::test]
    async fn a_length_that_can_t_be_filled_is_named_and_does_not_hold_up_the_others() {
        let kept = TemporaryStore::new().await;
        let watermarks = Watermarks { low: 1, high: 10 };
        let rules = CodeRules::default();
        let check = rules.check.length();
        let rng = StdRng::seed_from_u64(7);
        let leases = crate::testing::leases(&kept.store, &rules, "a");
        let pool = PooledCodes::new(leases, rules, watermarks, rng);
        let lengths = [5, 6, 7, 8, 9];
        for length in lengths.into_iter().chain([1000]) {
            pool.drawn.lock().insert(length);
        }
        let error = pool.fill_where_low().await.expect_err("a failure");
        assert!(error.to_string().contains("1000 characters"), "{error}");
        for length in lengths {
            let counts = kept.store.count_pooled(length + check).await;
            assert_eq!(counts.expect("a working store").unused, 10);
        }
    }
}
