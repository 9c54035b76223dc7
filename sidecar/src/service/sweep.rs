//! What becomes of links that are dead.
//!
//! The record of a link that has expired is replaced by the short one that revoked links have: it
//! answers the same and takes a fraction of the room. Links that have been dead for as long as the
//! quarantine lasts are deleted, in an order that leaves nothing wrong wherever it is cut off:
//!
//! 1. Redis answers 410 for the link, if it did not already.
//! 2. SQL deletes it and keeps its code taken, in one transaction.
//! 3. A while later, when nobody can be about to write what was read before, the record is removed
//!    from Redis.
//! 4. The code is free.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;
use vocabulary::Code;

use super::drift::InspectError;
use super::keeper::pause;
use crate::clock::Clock;
use crate::core::ports::{ExpiryPlace, Place, RecordIndex, Stood, StoreError};
use crate::core::records::first_fields;
use crate::store::Store;

/// How many links are dealt with together.
const BATCH: u32 = 500;

/// How far the sweep stays behind the clock: a link that is stored with an expiry just ahead is
/// then never behind it.
const LAG: SignedDuration = SignedDuration::from_secs(5);

/// How long a claim is good that is not renewed.
const CLAIM: SignedDuration = SignedDuration::from_secs(60);

/// The name of the task and of what is noted of it.
const TASK: &str = "sweep";

/// Shortens, deletes and frees.
pub struct Sweep {
    /// Where links are.
    pub store: Arc<Store>,
    /// Where their records are.
    pub index: Arc<dyn RecordIndex>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What nobody else is called.
    pub holder: String,
    /// How long dead links are kept; `None` for ever.
    pub quarantine: Option<SignedDuration>,
    /// How long somebody may take to write to Redis what was read from SQL before.
    pub straggle: SignedDuration,
    /// How long is waited between sweeps.
    pub every: Duration,
}

/// What a sweep has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records of expired links that were looked at.
    pub expired: u64,
    /// Links that were deleted.
    pub deleted: u64,
    /// Codes that are free again.
    pub freed: u64,
}

impl Sweep {
    /// Sweeps until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut is_failing = false;
        while !shutdown.is_cancelled() {
            match self.sweep(&shutdown).await {
                Ok(swept) => {
                    is_failing = false;
                    if swept != Swept::default() {
                        tracing::info!(
                            expired = swept.expired,
                            deleted = swept.deleted,
                            freed = swept.freed,
                            "dead links were swept"
                        );
                    }
                }
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(
                            error = &error as &dyn Error,
                            "dead links can't be swept; trying again until they can"
                        );
                    }
                    is_failing = true;
                }
            }
            pause(self.every, &shutdown).await;
        }
    }

    /// Sweeps once, unless another process does.
    ///
    /// # Errors
    /// When SQL or Redis fails. What was done stays done.
    pub async fn sweep(&self, shutdown: &CancellationToken) -> Result<Swept, InspectError> {
        let mut swept = Swept::default();
        if self.claim().await? {
            self.shorten(&mut swept, shutdown).await?;
            self.delete(&mut swept, shutdown).await?;
            self.free(&mut swept, shutdown).await?;
            self.store.release(TASK, &self.holder).await?;
        }
        Ok(swept)
    }

    async fn claim(&self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        self.store.claim(TASK, &self.holder, now, now + CLAIM).await
    }

    /// Whether to go on: nobody has asked to stop, and nobody else has begun.
    async fn goes_on(&self, shutdown: &CancellationToken) -> Result<bool, StoreError> {
        Ok(!shutdown.is_cancelled() && self.claim().await?)
    }

    /// Shortens the records of what has expired since the last sweep.
    async fn shorten(
        &self,
        swept: &mut Swept,
        shutdown: &CancellationToken,
    ) -> Result<(), InspectError> {
        let note = self.store.note(TASK).await?;
        let mut after = note.as_deref().and_then(read_place).unwrap_or(ExpiryPlace {
            second: 0,
            place: Place::START,
        });
        let until = self.clock.now() - LAG;
        while self.goes_on(shutdown).await? {
            let page = self.store.records_expired(after, until, BATCH).await?;
            let Some(next) = page.next else {
                break;
            };
            self.index.fill(&page.records).await?;
            swept.expired += page.records.len() as u64;
            after = next;
            let text = format!("{} {}", after.second, after.place.0);
            self.store.take_note(TASK, Some(text)).await?;
        }
        Ok(())
    }

    /// Deletes from SQL what has been dead for long enough.
    async fn delete(
        &self,
        swept: &mut Swept,
        shutdown: &CancellationToken,
    ) -> Result<(), InspectError> {
        let Some(quarantine) = self.quarantine else {
            return Ok(());
        };
        let now = self.clock.now();
        let before = now.checked_sub(quarantine).unwrap_or(Timestamp::MIN);
        while self.goes_on(shutdown).await? {
            let dead = self.store.records_dead_since(before, BATCH, now).await?;
            if dead.is_empty() {
                break;
            }
            self.index.fill(&dead).await?;
            // What stands otherwise after all might redirect once nobody knows better.
            let wrong = self.index.compare(&dead).await?;
            let links: Vec<(Code, u64)> = dead
                .iter()
                .enumerate()
                .filter(|(place, _)| !wrong.iter().any(|(at, _)| at == place))
                .map(|(_, wanted)| (wanted.code, wanted.revision))
                .collect();
            let deleted = self.store.delete_links(links, now).await?;
            swept.deleted += deleted;
            if deleted == 0 {
                tracing::warn!(
                    links = dead.len(),
                    "dead links are kept: Redis has other records of them"
                );
                break;
            }
        }
        Ok(())
    }

    /// Removes from Redis what is left of deleted links, and frees their codes.
    async fn free(
        &self,
        swept: &mut Swept,
        shutdown: &CancellationToken,
    ) -> Result<(), InspectError> {
        let before = self.clock.now() - self.straggle;
        while self.goes_on(shutdown).await? {
            let deleted = self.store.deleted_links(before, BATCH).await?;
            let names: Vec<Vec<u8>> = deleted
                .iter()
                .map(|(code, _)| code.as_bytes().to_vec())
                .collect();
            let stood = self.index.read(&names).await?;
            let left: Vec<(Vec<u8>, Stood)> = names.iter().cloned().zip(stood).collect();
            let left: Vec<(Vec<u8>, Stood)> = left
                .into_iter()
                .filter(|(_, stood)| !is_nothing(stood))
                .collect();
            self.index.remove(&left).await?;
            let stood = self.index.read(&names).await?;
            let free = deleted.iter().zip(&stood);
            let free = free.filter(|(_, stood)| is_nothing(stood));
            let free: Vec<Code> = free.map(|((code, _), _)| *code).collect();
            if free.is_empty() {
                break;
            }
            swept.freed += free.len() as u64;
            self.store.free_codes(free).await?;
        }
        Ok(())
    }
}

/// Whether a new link can be published there.
fn is_nothing(stood: &Stood) -> bool {
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
