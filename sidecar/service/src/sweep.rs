//! Removal of dead links.
//!
//! The record of an expired link is replaced by the short one of revoked links, which gives the
//! same answer and takes a fraction of the memory. Links whose quarantine is over are deleted, in
//! an order that is correct wherever it is interrupted:
//!
//! 1. Redis answers 410 for the link, or has no record of it any more.
//! 2. SQL deletes the link and reserves its code, in one transaction.
//! 3. Once no process can still write an earlier state, the record is removed from Redis.
//! 4. The code is free.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use shortlink_core::clock::Clock;
use shortlink_core::ports::{ExpiryPlace, Place, RecordIndex, Stood};
use shortlink_core::records::{Drift, first_fields};
use shortlink_store::Store;
use vocabulary::Code;

use super::drift::InspectError;
use crate::jobs::{Job, Next};

/// The number of links per step.
const BATCH: u32 = 500;

/// The lag of the sweep behind the clock, so that a link stored with an expiry just ahead is never
/// missed.
const LAG: SignedDuration = SignedDuration::from_secs(5);

/// Shortens, deletes and frees.
pub struct Sweep {
    /// The store of the links.
    pub store: Arc<Store>,
    /// Redis, with their records.
    pub index: Arc<dyn RecordIndex>,
    /// The clock that links expire by.
    pub clock: Arc<dyn Clock>,
    /// The time for which dead links stay; `None` for ever.
    pub quarantine: Option<SignedDuration>,
    /// The longest time from a read in SQL to the write of that state to Redis.
    pub straggle: SignedDuration,
    /// The present stage.
    pub stage: Stage,
    /// The results so far.
    pub swept: Swept,
}

/// The stages of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Begins.
    #[default]
    Begin,
    /// Replaces the records of links that expired since the last sweep with short ones.
    Shorten,
    /// Deletes links whose quarantine is over.
    Delete,
    /// Frees the codes of deleted links.
    Free,
}

/// The results of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records of expired links that were examined.
    pub expired: u64,
    /// Links that were deleted.
    pub deleted: u64,
    /// Codes that are free again.
    pub freed: u64,
}

#[async_trait]
impl Job for Sweep {
    type Error = InspectError;
    const NAME: &'static str = "sweep";
    const FAILURE: &'static str = "dead links can't be swept; trying again until they can";
    const LEASE: Option<Duration> = Some(Duration::from_secs(60));

    async fn begin(&mut self) -> Result<(), InspectError> {
        self.stage = Stage::Begin;
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, InspectError> {
        let (has_more, next) = match self.stage {
            Stage::Begin => {
                self.swept = Swept::default();
                (false, Stage::Shorten)
            }
            Stage::Shorten => (self.shorten().await?, Stage::Delete),
            Stage::Delete => (self.delete().await?, Stage::Free),
            Stage::Free => (self.free().await?, Stage::Begin),
        };
        if has_more {
            return Ok(Next::Rest);
        }
        self.stage = next;
        if next != Stage::Begin {
            return Ok(Next::Now);
        }
        if self.swept != Swept::default() {
            tracing::info!(
                expired = self.swept.expired,
                deleted = self.swept.deleted,
                freed = self.swept.freed,
                "dead links were swept"
            );
        }
        Ok(Next::Idle)
    }
}

impl Sweep {
    /// Shortens the records of some expired links; returns true when there may be more.
    async fn shorten(&mut self) -> Result<bool, InspectError> {
        let note = self.store.note(Self::NAME).await?;
        let after = note.as_deref().and_then(read_place).unwrap_or(ExpiryPlace {
            second: 0,
            place: Place::START,
        });
        let until = self.clock.now() - LAG;
        let page = self.store.records_expired(after, until, BATCH).await?;
        let Some(next) = page.next else {
            return Ok(false);
        };
        self.index.fill(&page.records).await?;
        self.swept.expired += page.records.len() as u64;
        let text = format!("{} {}", next.second, next.place.0);
        self.store.take_note(Self::NAME, Some(text)).await?;
        Ok(true)
    }

    /// Deletes some links from SQL whose quarantine is over; returns true when there may be more.
    async fn delete(&mut self) -> Result<bool, InspectError> {
        let Some(quarantine) = self.quarantine else {
            return Ok(false);
        };
        let now = self.clock.now();
        let before = now.checked_sub(quarantine).unwrap_or(Timestamp::MIN);
        let dead = self.store.records_dead_since(before, BATCH, now).await?;
        if dead.is_empty() {
            return Ok(false);
        }
        self.index.fill(&dead).await?;
        // A record that still differs could redirect once SQL has deleted the link.
        let mut wrong = self.index.compare(&dead).await?;
        wrong.retain(|(_, drift)| *drift != Drift::Needless);
        let links: Vec<(Code, u64)> = dead
            .iter()
            .enumerate()
            .filter(|(place, _)| !wrong.iter().any(|(at, _)| at == place))
            .map(|(_, wanted)| (wanted.code, wanted.revision))
            .collect();
        let deleted = self.store.delete_links(links, now).await?;
        self.swept.deleted += deleted;
        if deleted == 0 {
            tracing::warn!(
                links = dead.len(),
                "dead links are not deleted: Redis has other records of them"
            );
        }
        Ok(deleted > 0)
    }

    /// Removes the remaining records of some deleted links from Redis, and frees their codes;
    /// returns true when there may be more.
    async fn free(&mut self) -> Result<bool, InspectError> {
        let before = self.clock.now() - self.straggle;
        let deleted = self.store.deleted_links(before, BATCH).await?;
        let names: Vec<Vec<u8>> = deleted
            .iter()
            .map(|(code, _)| code.as_bytes().to_vec())
            .collect();
        let stood = self.index.read(&names).await?;
        let left = names.iter().cloned().zip(stood);
        let left: Vec<(Vec<u8>, Stood)> = left.filter(|(_, stood)| !is_nothing(stood)).collect();
        self.index.remove(&left).await?;
        let stood = self.index.read(&names).await?;
        let free = deleted.iter().zip(&stood);
        let free = free.filter(|(_, stood)| is_nothing(stood));
        let free: Vec<Code> = free.map(|((code, _), _)| *code).collect();
        if free.is_empty() {
            return Ok(false);
        }
        self.swept.freed += free.len() as u64;
        self.store.free_codes(free).await?;
        Ok(true)
    }
}

/// Returns true when a new link can be published under this key.
pub(super) fn is_nothing(stood: &Stood) -> bool {
    match stood {
        Stood::Nothing => true,
        Stood::Text(text) => matches!(first_fields(text), Some((b"404", _))),
        Stood::OtherType => false,
    }
}

fn read_place(text: &str) -> Option<ExpiryPlace> {
    let (second, place) = text.split_once(' ')?;
    Some(ExpiryPlace {
        second: second.parse().ok()?,
        place: Place(place.parse().ok()?),
    })
}

#[cfg(test)]
mod tests;
