//! The lengths of new codes.
//!
//! Codes are as short as possible without being guessable: when too many codes of a length have
//! links, the next length is used. The capacity of a length is leased from SQL in portions before codes are drawn:
//! stored links and what all processes may still store never exceed it. Portions are large while much is free and as
//! large as a request at the end, when a process keeps no rest for longer than a second.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shortlink_core::boxed;
use shortlink_core::codes::capacity::capacity;
use shortlink_core::ports::{CapacityGrant, StoreError};
use shortlink_store::{CapacityWanted, capacity_name};
use tokio::time::Instant;
use vocabulary::{BodyLengths, CodeRules};

use super::leases::{Holding, Leases};

/// A process leases one of so many parts of the free capacity.
const PARTS: u64 = 64;

/// Time for which a length is full without another look, while there is a longer one.
const BELIEVED_FOR: Duration = Duration::from_secs(2);
const BELIEVED_WHEN_ALL_ARE_FULL: Duration = Duration::from_millis(100);

/// The most looks before a length is full because of codes that may not get links, and the pause before each. Meanwhile
/// all processes have given back what they do not use.
const LOOKS: u32 = 25;
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// Chooses lengths.
pub struct Lengths {
    leases: Arc<Leases>,
    rules: CodeRules,
    /// At most one of so many codes of a length has a link.
    one_in: u64,
    /// Notices already logged, for deduplication.
    said: Mutex<HashSet<(usize, Notice)>>,
}

/// Reserved capacity of a length, until the links are stored, or are not.
pub struct Reservation {
    in_flight: Arc<AtomicU64>,
    /// Length of the codes, without the check character.
    pub length: usize,
    /// The number of codes.
    pub codes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SQL counts the stored links; the next report frees the capacity of the others.
        self.in_flight.fetch_sub(self.codes, Ordering::AcqRel);
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
    pub fn new(leases: Arc<Leases>, rules: CodeRules, one_in: u64) -> Self {
        Self {
            leases,
            rules,
            one_in,
            said: Mutex::default(),
        }
    }

    /// Reserves `wanted` codes of the shortest length within bounds that is not full, or as many as it has left; `None` when
    /// all lengths are full.
    ///
    /// # Errors
    /// Fails if the store cannot lease capacity.
    #[boxed]
    pub async fn reserve(
        &self,
        bounds: BodyLengths,
        wanted: u64,
    ) -> Result<Option<Reservation>, StoreError> {
        let mut believed_for = BELIEVED_FOR;
        for look in 0..LOOKS {
            let mut is_pending = false;
            for length in usize::from(bounds.shortest())..=usize::from(bounds.longest()) {
                match self.of_length(length, wanted, believed_for).await? {
                    Ok(reserved) => {
                        if length > usize::from(bounds.shortest())
                            && self.is_news(length, Notice::InUse)
                        {
                            tracing::warn!(
                                length,
                                "codes of all shorter lengths are used up; codes of this length are used now"
                            );
                        }
                        return Ok(Some(reserved));
                    }
                    Err(Full { may_change }) => is_pending |= may_change,
                }
            }
            if look > 0 {
                if !is_pending {
                    break;
                }
                tokio::time::sleep(LOOK_AFTER).await;
                believed_for = Duration::ZERO;
            } else {
                believed_for = BELIEVED_WHEN_ALL_ARE_FULL;
            }
        }
        Ok(None)
    }

    /// Reserves codes of a length.
    async fn of_length(
        &self,
        length: usize,
        wanted: u64,
        believed_for: Duration,
    ) -> Result<Result<Reservation, Full>, StoreError> {
        let name = capacity_name(length + self.rules.check.length());
        let mut held = self.leases.hold(&name).await?;
        if held.next < wanted {
            let full = held.full.filter(|(at, _)| at.elapsed() < believed_for);
            if let Some((_, may_change)) = full.filter(|_| held.next == 0) {
                return Ok(Err(Full { may_change }));
            }
            self.lease(length, wanted, &mut held).await?;
        }
        let codes = wanted.min(held.next);
        if codes == 0 {
            let may_change = held.full.is_some_and(|(_, may_change)| may_change);
            return Ok(Err(Full { may_change }));
        }
        held.next -= codes;
        held.in_flight.fetch_add(codes, Ordering::AcqRel);
        Ok(Ok(Reservation {
            in_flight: Arc::clone(&held.in_flight),
            length,
            codes,
        }))
    }

    /// Leases capacity of a length.
    async fn lease(
        &self,
        length: usize,
        wanted: u64,
        held: &mut Holding,
    ) -> Result<(), StoreError> {
        let now = self.leases.now();
        let in_flight = held.in_flight.load(Ordering::Acquire);
        let most = self.most(length);
        let asked = CapacityWanted {
            length: length + self.rules.check.length(),
            wanted,
            unspent: held.next + in_flight,
            in_flight,
            most,
            parts: PARTS,
        };
        let store = &self.leases.store;
        let grant = store
            .lease_capacity(asked, &self.leases.holder, now.1)
            .await?;
        let CapacityGrant {
            granted,
            free,
            links,
            others,
            kept,
        } = grant;
        if !kept {
            held.next = 0;
        }
        held.next += granted;
        held.confirm(now);
        let used = u128::from(most - free.min(most)) * 100;
        held.is_scarce = used >= u128::from(most) * NEARLY_FULL;
        held.full = (granted == 0).then(|| (Instant::now(), others + in_flight > 0));
        if held.is_scarce && held.next > 0 && self.is_news(length, Notice::NearlyFull) {
            tracing::warn!(
                length,
                links,
                most,
                "codes of this length are nearly used up; the next length follows"
            );
        }
        Ok(())
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
}

/// A length has no capacity left.
struct Full {
    /// Processes have some that they may not use.
    may_change: bool,
}
