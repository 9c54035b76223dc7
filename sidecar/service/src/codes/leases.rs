//! Leases of this process for new links: of numbers, of codes out of the pool, and of capacity.
//!
//! Leases are in SQL, each with its holder and how far the holder is. This process reports its own regularly and gives
//! back what it has not used when it stops. A lease whose holder has not reported for [`EXPIRY`], by the monotonic
//! clock of the process that looks, is taken back: no two clocks are compared. A process that was stopped for half of
//! that time asks before it uses its leases again. Between that answer and the commit of a link it could be stopped once more. Then
//! numbers and codes are used twice, which the primary key of links detects: those links get other codes.

use std::collections::HashMap;
use std::error::Error;
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::ports::{CodeLease, StoreError};
use shortlink_store::{NumbersWanted, Store};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use vocabulary::{Code, CodeRules};

use super::permuted::PermutedCodes;
use super::sequence;
use crate::jobs::{Job, Next};

/// The interval of the job, after which capacity that is nearly used up is given back.
pub const EVERY: Duration = Duration::from_secs(1);

/// The interval at which leases are reported and those of others examined.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// The time after which a lease is taken back that is not reported any more.
const EXPIRY: Duration = Duration::from_secs(120);

/// The longest time from the beginning of a draw, which is the creation time of its links, to its last number.
const LONGEST_DRAW: SignedDuration = SignedDuration::from_secs(60);

/// A lease of any process: its name, its holder and its `until`.
type LeaseKey = (String, String, u64);

/// The leases of this process.
pub struct Leases {
    pub(super) store: Arc<Store>,
    pub(super) clock: Arc<dyn Clock>,
    rules: CodeRules,
    /// The name of this process, which no other process has.
    pub(super) holder: String,
    expiry: Duration,
    held: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Holding>>>>,
    /// The beats of the leases of others, and when each was seen first.
    seen: Mutex<HashMap<LeaseKey, (i64, Instant)>>,
    examined: Mutex<Option<Instant>>,
}

/// A lease of this process.
#[derive(Default)]
pub(super) struct Holding {
    /// The first unused number; of capacity, the links that may still be stored.
    pub(super) next: u64,
    /// The number after the last one; 0 for what is no range.
    pub(super) until: u64,
    /// Codes out of the pool.
    pub(super) codes: Vec<Code>,
    /// Number of the requests for codes out of the pool that were answered.
    pub(super) answered: u64,
    /// Links that are being stored, for which capacity is used.
    pub(super) in_flight: Arc<AtomicU64>,
    /// Others wait for the rest of this capacity.
    pub(super) is_scarce: bool,
    /// The time at which there was no capacity, and whether others had some that they may give back.
    pub(super) full: Option<(Instant, bool)>,
    /// The time of the last report; `None` without a row in SQL.
    reported: Option<(Instant, Timestamp)>,
}

impl Holding {
    /// The next number.
    pub(super) fn number(&mut self) -> Option<u64> {
        let number = self.next;
        (number < self.until).then(|| {
            self.next += 1;
            number
        })
    }

    /// Notes that SQL has the lease since the beginning of a statement.
    pub(super) fn confirm(&mut self, at: (Instant, Timestamp)) {
        self.reported = Some(at);
    }

    /// Forgets what was taken back.
    fn lose(&mut self) {
        *self = Self {
            in_flight: Arc::clone(&self.in_flight),
            answered: self.answered,
            ..Self::default()
        };
    }

    /// The `next` of the row in SQL.
    fn standing(&self) -> u64 {
        self.next + self.in_flight.load(Ordering::Acquire)
    }
}

impl Leases {
    /// The leases of a process, whose name no other process has.
    pub fn new(store: Arc<Store>, rules: CodeRules, clock: Arc<dyn Clock>, holder: String) -> Self {
        Self {
            store,
            clock,
            rules,
            holder,
            expiry: EXPIRY,
            held: Mutex::default(),
            seen: Mutex::default(),
            examined: Mutex::default(),
        }
    }

    /// Takes back leases of others sooner, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn expiring(self, expiry: Duration) -> Self {
        Self { expiry, ..self }
    }

    pub(super) fn now(&self) -> (Instant, Timestamp) {
        (Instant::now(), self.clock.now())
    }

    /// Waits for a lease of this process; it is empty if there is none.
    pub(super) async fn hold(&self, name: &str) -> Result<OwnedMutexGuard<Holding>, StoreError> {
        let held = Arc::clone(self.held.lock().entry(name.to_owned()).or_default());
        let mut holding = held.lock_owned().await;
        if let Some((at, moment)) = holding.reported {
            // By the clock that has advanced further: one of them stands still while the machine does.
            let by_clock = self.clock.now().duration_since(moment).try_into();
            let age = at.elapsed().max(by_clock.unwrap_or_default());
            if age >= self.expiry / 2 {
                self.report(&mut [(name.to_owned(), &mut *holding)]).await?;
            }
        }
        Ok(holding)
    }

    /// Leases numbers in place of those that are used up; returns whether there are any.
    pub(super) async fn extend(
        &self,
        holding: &mut Holding,
        wanted: NumbersWanted<'_>,
    ) -> Result<bool, StoreError> {
        let now = self.now();
        // Without an answer, SQL may have ended the lease or not. The next request names it again.
        holding.reported = None;
        let leased = self
            .store
            .lease_numbers(wanted, &self.holder, now.1)
            .await?;
        holding.lose();
        let Some((next, until)) = leased else {
            return Ok(false);
        };
        (holding.next, holding.until) = (next, until);
        holding.confirm(now);
        Ok(true)
    }

    /// Reports leases, and forgets those that were taken back.
    async fn report<H: DerefMut<Target = Holding>>(
        &self,
        holdings: &mut [(String, H)],
    ) -> Result<(), StoreError> {
        let now = self.now();
        let rows = holdings.iter().filter(|(_, it)| it.reported.is_some());
        let rows = rows.map(|(name, it)| (name.clone(), it.until, it.standing()));
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return Ok(());
        }
        let lost = self.store.report_leases(rows, &self.holder, now.1).await?;
        for (name, holding) in holdings {
            if holding.reported.is_none() {
                continue;
            }
            if lost.contains(name) {
                tracing::warn!(
                    lease = name,
                    "a lease of codes was taken back: this process did not report it in time"
                );
                holding.lose();
            } else if (holding.until, holding.standing()) == (0, 0) && holding.codes.is_empty() {
                holding.reported = None;
            } else {
                holding.confirm(now);
            }
        }
        Ok(())
    }

    /// Locks all leases of this process.
    async fn lock_all(&self) -> Vec<(String, OwnedMutexGuard<Holding>)> {
        let mut held: Vec<_> = {
            let held = self.held.lock();
            held.iter()
                .map(|(name, it)| (name.clone(), Arc::clone(it)))
                .collect()
        };
        // In one order, so that two callers do not wait for each other.
        held.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut locked = Vec::with_capacity(held.len());
        for (name, holding) in held {
            locked.push((name, holding.lock_owned().await));
        }
        locked
    }

    /// Reports all leases of this process.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn report_all(&self) -> Result<(), StoreError> {
        self.report(&mut self.lock_all().await).await
    }

    /// Gives back capacity that others may wait for.
    async fn return_scarce(&self) -> Result<(), StoreError> {
        let mut locked = self.lock_all().await;
        locked.retain(|(_, it)| it.is_scarce);
        for (_, holding) in &mut locked {
            holding.is_scarce = false;
            holding.next = 0;
        }
        self.report(&mut locked).await
    }

    /// Gives back all that is unused, when the process stops.
    #[boxed]
    pub async fn give_back(&self) {
        for (name, mut holding) in self.lock_all().await {
            // Links that are being stored may need the capacity.
            let is_used = holding.in_flight.load(Ordering::Acquire) > 0;
            if holding.reported.is_none() || is_used {
                continue;
            }
            let lease = CodeLease {
                name,
                holder: self.holder.clone(),
                until: holding.until,
                next: holding.next,
                beat: 0,
                reported_at: 0,
            };
            let next = lease.next;
            holding.lose();
            if let Err(error) = self.store.end_lease(lease, next, None).await {
                let error = &error as &dyn Error;
                tracing::debug!(
                    error,
                    "a lease of codes is not given back; it will be taken back"
                );
            }
        }
    }

    /// Takes back leases that are not reported any more; returns how many.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn take_back(&self) -> Result<usize, StoreError> {
        let mut leases = self.store.leases().await?;
        leases.retain(|it| !it.holder.is_empty() && it.holder != self.holder);
        let expired: Vec<CodeLease> = {
            let mut seen = self.seen.lock();
            let key =
                |it: &CodeLease| -> LeaseKey { (it.name.clone(), it.holder.clone(), it.until) };
            let before = std::mem::take(&mut *seen);
            for lease in &leases {
                let key = key(lease);
                let known = before.get(&key).filter(|(beat, _)| *beat == lease.beat);
                let known = known.copied().unwrap_or((lease.beat, Instant::now()));
                seen.insert(key, known);
            }
            let is_expired = |it: &CodeLease| seen[&key(it)].1.elapsed() >= self.expiry;
            leases.into_iter().filter(is_expired).collect()
        };
        let mut count = 0;
        for lease in expired {
            let next = self.unused_from(&lease).await?;
            let (name, holder, until) = (lease.name.clone(), lease.holder.clone(), lease.until);
            let beat = lease.beat;
            if self.store.end_lease(lease, next, Some(beat)).await? {
                tracing::info!(
                    lease = name,
                    holder,
                    numbers = until.saturating_sub(next),
                    "a lease of codes was taken back: its process no longer reports it"
                );
                count += 1;
            }
        }
        Ok(count)
    }

    /// The number after the last one that a link has, in a lease whose holder is gone. Its last report had `next`; the
    /// links created since then have the numbers that it used later.
    async fn unused_from(&self, lease: &CodeLease) -> Result<u64, StoreError> {
        let reported_at = Timestamp::from_millisecond(lease.reported_at).unwrap_or_default();
        let since = reported_at.saturating_sub(LONGEST_DRAW).unwrap_or_default();
        let CodeRules {
            alphabet, check, ..
        } = &self.rules;
        let numbering = self.store.numbering();
        let is_permuted;
        let whole_length = if let Some(length) = PermutedCodes::length_of(&lease.name) {
            is_permuted = true;
            length
        } else if let Some(length) = sequence::length_of(&lease.name) {
            is_permuted = false;
            length + check.length()
        } else {
            return Ok(lease.next);
        };
        let codes = self.store.codes_since(whole_length, since).await?;
        let number = |code: &Code| {
            if is_permuted {
                numbering.count_of(*alphabet, check, code)
            } else {
                sequence::number_of(code, &self.rules)
            }
        };
        let numbers = codes.iter().filter_map(number);
        let used = numbers.filter(|number| (lease.next..lease.until).contains(number));
        Ok(used.max().map_or(lease.next, |last| last + 1))
    }

    /// Returns all leases: those of this process as they are now, or as they were reported last if they are in use.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn all(&self) -> Result<Vec<CodeLease>, StoreError> {
        let mut leases = self.store.leases().await?;
        let ours = self.held.lock().clone();
        for lease in leases.iter_mut().filter(|it| it.holder == self.holder) {
            // A draw may hold one for as long as the database takes to extend it.
            let held = ours.get(&lease.name).and_then(|it| it.try_lock().ok());
            let held = held.filter(|it| it.until == lease.until);
            lease.next = held.map_or(lease.next, |it| it.standing());
        }
        Ok(leases)
    }
}

#[async_trait]
impl Job for Arc<Leases> {
    type Error = StoreError;
    const NAME: &'static str = "code_leases";
    const FAILURE: &'static str = "leases of codes are not reported; trying again";

    async fn step(&mut self) -> Result<Next, StoreError> {
        self.return_scarce().await?;
        let is_due = |at: Option<Instant>| at.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if is_due(*self.examined.lock()) {
            self.report_all().await?;
            self.take_back().await?;
            *self.examined.lock() = Some(Instant::now());
        }
        Ok(Next::Idle)
    }
}
