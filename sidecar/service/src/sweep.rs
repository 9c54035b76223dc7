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
use shortlink_core::ports::{End, EndPlace, RecordIndex, Stood};
use shortlink_core::records::{Drift, first_fields};
use shortlink_store::Store;
use vocabulary::Code;

use super::drift::InspectError;
use crate::jobs::{JOBS, Job, Lane, Next};

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
    /// The lane: a part of all links.
    pub lane: Lane,
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
    /// Deletes links whose quarantine is over: those that ended in this way, behind this place.
    Delete(End, EndPlace),
    /// Frees the codes of deleted links, behind this place.
    Free(EndPlace),
}

impl Stage {
    /// The stage after this one, from its beginning.
    fn next(self) -> Self {
        match self {
            Self::Begin => Self::Shorten,
            Self::Shorten => Self::Delete(End::Revocation, EndPlace::START),
            Self::Delete(End::Revocation, _) => Self::Delete(End::Expiry, EndPlace::START),
            Self::Delete(End::Expiry, _) => Self::Free(EndPlace::START),
            Self::Free(_) => Self::Begin,
        }
    }
}

/// The results of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records of expired links that were examined.
    pub expired: u64,
    /// Links that were deleted.
    pub deleted: u64,
    /// Dead links that are not deleted, because Redis has other records of them.
    pub left: u64,
    /// Codes that are free again.
    pub freed: u64,
}

impl Swept {
    /// Those that something was done with.
    fn total(self) -> u64 {
        self.expired + self.deleted + self.freed
    }
}

#[async_trait]
impl Job for Sweep {
    type Error = InspectError;
    const NAME: &'static str = "sweep";
    const FAILURE: &'static str = "dead links can't be swept; trying again until they can";
    const LEASE: Option<Duration> = Some(Duration::from_secs(30));

    fn lane(&self) -> Lane {
        self.lane.clone()
    }

    async fn begin(&mut self) -> Result<(), InspectError> {
        self.stage = Stage::Begin;
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, InspectError> {
        let before = self.swept;
        let more = match self.stage {
            Stage::Begin => {
                self.swept = Swept::default();
                None
            }
            Stage::Shorten => self.shorten().await?.then_some(Stage::Shorten),
            Stage::Delete(end, after) => {
                let next = self.delete(end, after).await?;
                next.map(|next| Stage::Delete(end, next))
            }
            Stage::Free(after) => self.free(after).await?.map(Stage::Free),
        };
        if self.stage != Stage::Begin {
            JOBS.add_items(Self::NAME, self.swept.total() - before.total());
        }
        let has_more = more.is_some();
        self.stage = more.unwrap_or_else(|| self.stage.next());
        if has_more {
            return Ok(Next::Rest);
        }
        if self.stage != Stage::Begin {
            return Ok(Next::Now);
        }
        if self.swept.left > 0 {
            tracing::warn!(
                links = self.swept.left,
                "dead links are not deleted: Redis has other records of them"
            );
        }
        if self.swept.total() > 0 {
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
        let slice = self.lane.slice;
        let name = match slice.of {
            1 => Self::NAME.to_owned(),
            of => format!("{}/{of}", self.lane.task(Self::NAME)),
        };
        let mut note = self.store.note(&name).await?;
        if note.is_none() {
            // A new lane begins where a sweep without lanes was.
            note = self.store.note(Self::NAME).await?;
        }
        let after = note.as_deref().and_then(EndPlace::read);
        let after = after.unwrap_or(EndPlace::START);
        let until = self.clock.now() - LAG;
        let page = self
            .store
            .records_expired(after, until, BATCH, slice)
            .await?;
        let Some(next) = page.next else {
            return Ok(false);
        };
        self.index.fill(&page.records).await?;
        self.swept.expired += page.records.len() as u64;
        let text = next.to_string();
        self.store.take_note(&name, Some(text)).await?;
        Ok(true)
    }

    /// Deletes some links from SQL whose quarantine is over; returns the place to continue at when there may be more.
    /// Links that cannot be deleted now wait for the next sweep.
    async fn delete(
        &mut self,
        end: End,
        after: EndPlace,
    ) -> Result<Option<EndPlace>, InspectError> {
        let Some(quarantine) = self.quarantine else {
            return Ok(None);
        };
        let now = self.clock.now();
        let before = now.checked_sub(quarantine).unwrap_or(Timestamp::MIN);
        let found = self
            .store
            .records_dead_since(before, (end, after), BATCH, self.lane.slice, now)
            .await?;
        let dead = found.records;
        if dead.is_empty() {
            return Ok(found.next);
        }
        self.index.fill(&dead).await?;
        // A record that still differs could redirect once SQL has deleted the link.
        let mut wrong = self.index.compare(&dead).await?;
        wrong.retain(|(_, drift)| *drift != Drift::Needless);
        self.swept.left += wrong.len() as u64;
        let links: Vec<(Code, u64)> = dead
            .iter()
            .enumerate()
            .filter(|(place, _)| !wrong.iter().any(|(at, _)| at == place))
            .map(|(_, wanted)| (wanted.code, wanted.revision))
            .collect();
        self.swept.deleted += self.store.delete_links(links, now).await?;
        Ok(found.next)
    }

    /// Removes the remaining records of some deleted links from Redis, and frees their codes;
    /// returns the place to continue at when there may be more.
    async fn free(&mut self, after: EndPlace) -> Result<Option<EndPlace>, InspectError> {
        let before = self.clock.now() - self.straggle;
        let slice = self.lane.slice;
        let (deleted, next) = self
            .store
            .deleted_links(before, after, BATCH, slice)
            .await?;
        if deleted.is_empty() {
            return Ok(next);
        }
        let names: Vec<Vec<u8>> = deleted.iter().map(|it| it.as_bytes().to_vec()).collect();
        let stood = self.index.read(&names).await?;
        let left = names.iter().cloned().zip(stood);
        let left: Vec<(Vec<u8>, Stood)> = left.filter(|(_, stood)| !is_nothing(stood)).collect();
        self.index.remove(&left).await?;
        let stood = self.index.read(&names).await?;
        let free = deleted.iter().zip(&stood);
        let free = free.filter(|(_, stood)| is_nothing(stood));
        let free: Vec<Code> = free.map(|(code, _)| *code).collect();
        if !free.is_empty() {
            self.swept.freed += free.len() as u64;
            self.store.free_codes(free).await?;
        }
        Ok(next)
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

#[cfg(test)]
mod tests;
