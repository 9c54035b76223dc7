//! Skips codes that may have been issued between a backup of the database and its restore.
//!
//! A restored database has lost the links created after its backup, the positions of its counters
//! and the used codes of the pool. Messages still contain the lost links: codes issued again would
//! redirect them to the targets of others. Codes are many and numbers are free, so all codes that
//! may have been used are skipped.

use std::sync::Arc;

use shortlink_core::boxed;
use shortlink_core::ports::StoreError;
use shortlink_store::Store;
use vocabulary::CodeRules;

use crate::codes::permuted::PermutedCodes;
use crate::codes::sequence;

/// Lengths of codes without the check character.
const LENGTHS: std::ops::RangeInclusive<usize> = 1..=12;

/// The most process starts assumed since the backup. Each start skips the rest of a block of
/// numbers.
const STARTS: u64 = 64;

/// Codes that are taken from the pool at once.
const TAKEN_TOGETHER: u32 = 1000;

/// Skips codes.
pub struct Skip {
    /// Store of the counters and the pool.
    pub store: Arc<Store>,
    /// Rules for codes.
    pub rules: CodeRules,
}

/// Number of skipped counters and codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Counters that were advanced.
    pub counters: u64,
    /// Pooled codes that will not be issued.
    pub pooled: u64,
}

impl Skip {
    /// Skips the codes that may have been issued if at most `links` links of every length were
    /// created since the backup. Every call skips as many again.
    ///
    /// # Errors
    /// Fails if the store does; codes skipped until then stay skipped.
    #[boxed]
    pub async fn run(&self, links: u64) -> Result<Skipped, StoreError> {
        let mut skipped = Skipped::default();
        let numbering = self.store.numbering();
        for length in LENGTHS {
            let capacity = numbering.capacity(&self.rules.check, length);
            let permuted = PermutedCodes::most_used(capacity, links, STARTS);
            let counter = PermutedCodes::counter(length + self.rules.check.length());
            self.store.skip_numbers(&counter, permuted).await?;
            let used = sequence::most_used(links, STARTS);
            let counter = sequence::counter(length);
            self.store.skip_numbers(&counter, used).await?;
            skipped.counters += 2;
            skipped.pooled += self.empty_pool(length + self.rules.check.length()).await?;
        }
        Ok(skipped)
    }

    /// Voids the unused codes of a length in the pool.
    async fn empty_pool(&self, length: usize) -> Result<u64, StoreError> {
        // Codes that were leased when the backup was taken stay used: they may have links since.
        self.store.forget_pooled(length).await?;
        let mut count = 0;
        loop {
            let codes = self.store.take_pooled(length, TAKEN_TOGETHER).await?;
            if codes.is_empty() {
                return Ok(count);
            }
            count += codes.len() as u64;
            self.store.void_pooled(codes).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use shortlink_core::codes::numbering::CodeKey;
    use shortlink_core::testing::MemoryPublisher;
    use shortlink_store::sqlite::SqliteStore;
    use tempfile::TempDir;
    use vocabulary::Code;

    use super::*;
    use crate::codes::pool::{PooledCodes, Watermarks};
    use crate::codes::sequence::SequenceCodes;
    use crate::codes::strategy::{CodeStrategy, DrawRequest};
    use crate::testing::leases;

    const LENGTH: usize = 7;

    /// A database in the state of the backup, always the same.
    async fn backup(directory: &TempDir, name: &str, pool: &[Code]) -> Arc<Store> {
        let url = format!("sqlite:{}/{name}.db", directory.path().display());
        let key = CodeKey::new([9; 32]);
        SqliteStore::migrate(&url, &key).await.expect("a place");
        let store = SqliteStore::open(&url, 1).await.expect("a good database");
        let store: Arc<Store> = Arc::new(store);
        store.fill_pool(pool.to_vec()).await.expect("a store");
        store
    }

    /// Codes that a process draws from every strategy with a counter or a pool.
    async fn draw(store: &Arc<Store>, seed: u64, count: usize) -> Vec<Code> {
        let rules = CodeRules::default();
        let watermarks = Watermarks { low: 0, high: 50 };
        let rng = || StdRng::seed_from_u64(seed);
        let redis = Arc::new(MemoryPublisher::default());
        let leases = || leases(store, &rules, &seed.to_string());
        let pool = PooledCodes::new(leases(), rules.clone(), watermarks, rng());
        let permuted = PermutedCodes::new(leases(), rules.clone());
        let sequence = SequenceCodes::new(leases(), redis, rules.clone(), 1, rng());
        let strategies: [&dyn CodeStrategy; 3] = [&pool, &permuted, &sequence];
        let targets = vec!["https://example.com/"; count];
        let request = DrawRequest {
            length: LENGTH,
            targets: &targets,
            attempt: 0,
        };
        let mut codes = Vec::new();
        for strategy in strategies {
            let drawn = strategy.draw(&request).await.expect("codes");
            assert_eq!(drawn.len(), count);
            codes.extend(drawn);
        }
        codes
    }

    #[tokio::test]
    async fn what_was_given_after_the_backup_is_not_given_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let rules = CodeRules::default();
        let ahead: Vec<Code> = (0..50)
            .map(|number| {
                let body = format!("ahead{number:02}");
                rules.complete(body.as_bytes()).expect("a code")
            })
            .collect();
        let lost = backup(&directory, "lost", &ahead).await;
        let mut given = HashSet::new();
        for seed in 0..3 {
            given.extend(draw(&lost, seed, 40).await);
        }
        let restored = backup(&directory, "restored", &ahead).await;
        let again = draw(&restored, 3, 40).await;
        // Without skipping, the test detects duplicates.
        assert!(again.iter().filter(|code| given.contains(*code)).count() >= 80);
        let restored = backup(&directory, "restored-well", &ahead).await;
        let skip = Skip {
            store: Arc::clone(&restored),
            rules,
        };
        let skipped = skip.run(3 * 40).await.expect("a store");
        assert_eq!(skipped.pooled, 50);
        for seed in 4..7 {
            for code in draw(&restored, seed, 40).await {
                assert!(given.insert(code), "a code was given again");
            }
        }
    }
}
