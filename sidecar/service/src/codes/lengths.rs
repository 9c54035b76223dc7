//! The lengths of new codes.
//!
//! Codes are as short as possible without being guessable: when too many codes of a length have
//! links, the next length is used. Capacity is reserved before codes are drawn, so that no batch exceeds
//! it. Other processes are counted only once their links are stored: together, the processes exceed it
//! by no more than they draw while a count stays fresh.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shortlink_core::codes::capacity::capacity;
use shortlink_core::ports::{CodeUsage, StoreError};
use shortlink_store::Store;
use tokio::time::Instant;
use vocabulary::{BodyLengths, CodeRules};

/// Time that the known usage stays fresh, and that of a length that is nearly full.
const BELIEVED_FOR: Duration = Duration::from_secs(2);
const BELIEVED_WHEN_NEARLY_FULL: Duration = Duration::from_millis(100);

/// The most counts before a length is full because of codes that may not get links, and the pause before each.
const RECOUNTS: u32 = 10;
const RECOUNT_AFTER: Duration = Duration::from_millis(50);

/// Chooses lengths.
pub struct Lengths {
    store: Arc<Store>,
    rules: CodeRules,
    /// At most one of so many codes of a length has a link.
    one_in: u64,
    counted: Mutex<Counted>,
    counting: tokio::sync::Mutex<()>,
    /// Notices already logged, for deduplication.
    said: Mutex<HashSet<(usize, Notice)>>,
}

/// The use of lengths, as far as this process knows. Maps are by the length without the check character.
#[derive(Default)]
struct Counted {
    /// The last count of stored links, and when it began.
    usage: Option<(Instant, Vec<CodeUsage>)>,
    /// Codes that are reserved.
    reserved: HashMap<usize, u64>,
    /// Codes whose reservations have ended since the last count began: their links may be stored, and not counted.
    since_count: HashMap<usize, u64>,
    /// The same since the count in progress began.
    during_count: HashMap<usize, u64>,
}

impl Counted {
    /// The stored links with codes of a length, check character included.
    fn links(&self, whole_length: usize) -> u64 {
        let usage = self.usage.iter().flat_map(|(_, usage)| usage);
        let mut of_length = usage.filter(|it| it.length == whole_length);
        of_length.next().map_or(0, |usage| usage.links)
    }
}

/// Reserved capacity of a length, until the links are stored, or are not.
pub struct Reservation {
    lengths: Arc<Lengths>,
    /// Length of the codes, without the check character.
    pub length: usize,
    /// The number of codes.
    pub codes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut counted = self.lengths.counted.lock();
        let counted = &mut *counted;
        if let Some(reserved) = counted.reserved.get_mut(&self.length) {
            *reserved = reserved.saturating_sub(self.codes);
        }
        for ended in [&mut counted.since_count, &mut counted.during_count] {
            *ended.entry(self.length).or_default() += self.codes;
        }
    }
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
            counted: Mutex::default(),
            counting: tokio::sync::Mutex::default(),
            said: Mutex::default(),
        }
    }

    /// Reserves `wanted` codes of the shortest length within bounds that is not full, or as many as it has left; `None` when
    /// all lengths are full.
    ///
    /// # Errors
    /// Fails if the store cannot return the number of used codes.
    pub async fn reserve(
        self: &Arc<Self>,
        bounds: BodyLengths,
        wanted: u64,
    ) -> Result<Option<Reservation>, StoreError> {
        self.count(BELIEVED_FOR).await?;
        if let Some(reserved) = self.find(bounds, wanted, true) {
            return Ok(reserved);
        }
        self.count(BELIEVED_WHEN_NEARLY_FULL).await?;
        for _ in 0..RECOUNTS {
            if let Some(reserved) = self.find(bounds, wanted, false).flatten() {
                return Ok(Some(reserved));
            }
            if !self.is_pending(bounds) {
                return Ok(None);
            }
            // Not all reserved codes get links, and what is pending may be counted already.
            tokio::time::sleep(RECOUNT_AFTER).await;
            self.count(Duration::ZERO).await?;
        }
        Ok(self.find(bounds, wanted, false).flatten())
    }

    /// Reports whether codes of some lengths count that may not have links.
    fn is_pending(&self, bounds: BodyLengths) -> bool {
        let counted = self.counted.lock();
        let lengths = usize::from(bounds.shortest())..=usize::from(bounds.longest());
        let mut codes = [&counted.reserved, &counted.since_count]
            .into_iter()
            .flatten();
        codes.any(|(length, codes)| lengths.contains(length) && *codes > 0)
    }

    /// Finds capacity. The outer `None` asks for a new count where a length is nearly full, if the count may be old.
    fn find(
        self: &Arc<Self>,
        bounds: BodyLengths,
        wanted: u64,
        may_be_old: bool,
    ) -> Option<Option<Reservation>> {
        let mut counted = self.counted.lock();
        for length in usize::from(bounds.shortest())..=usize::from(bounds.longest()) {
            let most = self.most(length);
            let stored = counted.links(length + self.rules.check.length());
            let pending = [&counted.reserved, &counted.since_count];
            let pending = pending.into_iter().filter_map(|codes| codes.get(&length));
            let links = stored.saturating_add(pending.sum());
            let is_nearly_full =
                |links: u64| u128::from(links) * 100 >= u128::from(most) * NEARLY_FULL;
            if may_be_old && stored < most && is_nearly_full(links.saturating_add(wanted)) {
                return None;
            }
            if links >= most {
                continue;
            }
            if length > usize::from(bounds.shortest()) && self.is_news(length, Notice::InUse) {
                tracing::warn!(
                    length,
                    "codes of all shorter lengths are used up; codes of this length are used now"
                );
            }
            if is_nearly_full(links) && self.is_news(length, Notice::NearlyFull) {
                tracing::warn!(
                    length,
                    links,
                    most,
                    "codes of this length are nearly used up; the next length follows"
                );
            }
            let codes = wanted.min(most - links);
            *counted.reserved.entry(length).or_default() += codes;
            return Some(Some(Reservation {
                lengths: Arc::clone(self),
                length,
                codes,
            }));
        }
        Some(None)
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

    /// Counts the stored links, unless a count is that young, or has begun since.
    async fn count(&self, believed_for: Duration) -> Result<(), StoreError> {
        let asked = Instant::now();
        let is_believed = || {
            let counted = self.counted.lock();
            let at = counted.usage.as_ref().map(|(at, _)| *at);
            at.is_some_and(|at| at >= asked || at.elapsed() < believed_for)
        };
        if is_believed() {
            return Ok(());
        }
        // One counts for all that wait.
        let _counting = self.counting.lock().await;
        if is_believed() {
            return Ok(());
        }
        let begun = Instant::now();
        self.counted.lock().during_count.clear();
        let usage = self.store.code_usage(0).await?;
        let mut counted = self.counted.lock();
        counted.since_count = std::mem::take(&mut counted.during_count);
        counted.usage = Some((begun, usage));
        Ok(())
    }
}
