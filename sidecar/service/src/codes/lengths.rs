//! The lengths of new codes.
//!
//! Codes are as short as possible without being guessable: when too many codes of a length have
//! links, the next length is used.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shortlink_core::codes::capacity::capacity;
use shortlink_core::ports::{CodeUsage, StoreError};
use shortlink_store::Store;
use tokio::time::Instant;
use vocabulary::{BodyLengths, CodeRules};

/// Time that the known usage stays fresh.
const BELIEVED_FOR: Duration = Duration::from_secs(2);

/// Chooses lengths.
pub struct Lengths {
    store: Arc<Store>,
    rules: CodeRules,
    /// At most one of so many codes of a length has a link.
    one_in: u64,
    known: Mutex<Option<(Instant, Vec<CodeUsage>)>>,
    /// Notices already logged, for deduplication.
    said: Mutex<HashSet<(usize, Notice)>>,
}

/// A notice about a length for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Notice {
    /// The length is nearly full.
    NearlyFull,
    /// The length is in use because the one before it is full.
    InUse,
}

/// Percentage of a length's capacity from which it is nearly full.
const NEARLY_FULL: u128 = 80;

impl Lengths {
    /// Chooses lengths such that at most one of `one_in` codes of a length has a link.
    pub fn new(store: Arc<Store>, rules: CodeRules, one_in: u64) -> Self {
        Self {
            store,
            rules,
            one_in,
            known: Mutex::new(None),
            said: Mutex::default(),
        }
    }

    /// Returns the shortest length within bounds that is not full, without the check character;
    /// `None` when all are full.
    ///
    /// # Errors
    /// Fails if the store cannot return the number of used codes.
    pub async fn choose(&self, bounds: BodyLengths) -> Result<Option<usize>, StoreError> {
        let usage = self.usage().await?;
        let mut lengths = usize::from(bounds.shortest())..=usize::from(bounds.longest());
        let chosen = lengths.find(|&length| self.links(&usage, length) < self.most(length));
        if let Some(length) = chosen {
            let (links, most) = (self.links(&usage, length), self.most(length));
            if length > usize::from(bounds.shortest()) && self.is_news(length, Notice::InUse) {
                tracing::warn!(
                    length,
                    "codes of all shorter lengths are used up; codes of this length are used now"
                );
            }
            if u128::from(links) * 100 >= u128::from(most) * NEARLY_FULL
                && self.is_news(length, Notice::NearlyFull)
            {
                tracing::warn!(
                    length,
                    links,
                    most,
                    "codes of this length are nearly used up; the next length follows"
                );
            }
        }
        Ok(chosen)
    }

    fn is_news(&self, length: usize, notice: Notice) -> bool {
        let mut said = self.said.lock();
        said.insert((length, notice))
    }

    /// Returns the most links for codes of a length, without the check character.
    pub fn most(&self, length: usize) -> u64 {
        let all = u128::from(self.rules.alphabet.size()).pow(length as u32);
        capacity(all, self.one_in)
    }

    fn links(&self, usage: &[CodeUsage], length: usize) -> u64 {
        let whole_length = length + self.rules.check.length();
        let found = usage.iter().find(|it| it.length == whole_length);
        found.map_or(0, |usage| usage.links)
    }

    async fn usage(&self) -> Result<Vec<CodeUsage>, StoreError> {
        let known = self.known.lock().clone();
        if let Some((at, usage)) = known
            && at.elapsed() < BELIEVED_FOR
        {
            return Ok(usage);
        }
        let usage = self.store.code_usage(0).await?;
        *self.known.lock() = Some((Instant::now(), usage.clone()));
        Ok(usage)
    }
}
