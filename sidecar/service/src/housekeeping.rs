//! Small jobs that every process runs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use rand::CryptoRng;
use shortlink_core::clock::Clock;
use shortlink_core::ports::{StoreError, VisitQueue};
use shortlink_core::visit::visitor::KeyRing;
use shortlink_store::{Admission, Store};

use crate::codes::pool::PooledCodes;
use crate::codes::strategy::DrawError;
use crate::jobs::{Job, Next};
use crate::visits::WriteError;

/// The interval at which old results, keys and readers are deleted.
pub const EVERY: Duration = Duration::from_secs(60);

/// The interval at which the pool of codes is filled.
pub const FILL_EVERY: Duration = Duration::from_secs(1);

/// The interval at which the searches by target and by words are checked for links that they lack.
pub const FIND_EVERY: Duration = Duration::from_secs(10);

/// The number of links that a step examines.
const FILLED_TOGETHER: u32 = 1000;

/// The time for which a request can be repeated with the same `Idempotency-Key`.
const REPEATABLE_FOR: SignedDuration = SignedDuration::from_hours(24);

/// The time after which a process that has not read visits is no reader any more.
const ABSENT: Duration = Duration::from_secs(86_400);

/// Deletes old results of idempotent requests.
pub struct OldResults {
    /// The store of the results.
    pub store: Arc<Store>,
    /// The clock that results expire by.
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl Job for OldResults {
    type Error = StoreError;
    const NAME: &'static str = "idempotency";
    const FAILURE: &'static str =
        "results of old idempotent requests can't be deleted; trying again";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let before = self.clock.now() - REPEATABLE_FOR;
        let chunks = self.store.forget_chunks(before).await?;
        if chunks > 0 {
            tracing::debug!(chunks, "results of old idempotent requests were deleted");
        }
        Ok(Next::Idle)
    }
}

/// Fills in what finds links by their targets, for links that lack it: older ones, and those of processes with
/// `links.find_by_target` off.
pub struct MissingTargets {
    /// The store of the links.
    pub store: Arc<Store>,
}

#[async_trait]
impl Job for MissingTargets {
    type Error = StoreError;
    const NAME: &'static str = "targets";
    const FAILURE: &'static str = "links can't be indexed by their targets; trying again";
    const LEASE: Option<Duration> = Some(Duration::from_secs(60));

    async fn step(&mut self) -> Result<Next, StoreError> {
        Ok(match self.store.fill_targets(FILLED_TOGETHER).await? {
            true => Next::Rest,
            false => Next::Idle,
        })
    }
}

/// Adds the words of links and campaigns from before the search, for [`Store::search_links`].
pub struct MissingWords {
    /// The store of the links.
    pub store: Arc<Store>,
    /// Chooses the links that get words.
    pub admission: Arc<Admission>,
}

#[async_trait]
impl Job for MissingWords {
    type Error = StoreError;
    const NAME: &'static str = "search";
    const FAILURE: &'static str = "links can't be indexed for the search; trying again";
    const LEASE: Option<Duration> = Some(Duration::from_secs(60));

    async fn step(&mut self) -> Result<Next, StoreError> {
        let admission = Arc::clone(&self.admission);
        Ok(
            match self.store.fill_search(FILLED_TOGETHER, admission).await? {
                true => Next::Rest,
                false => Next::Idle,
            },
        )
    }
}

/// Destroys the keys of days that are over, in memory and in SQL.
pub struct OldKeys {
    /// The keys.
    pub keys: Arc<KeyRing>,
    /// The clock that days end by.
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl Job for OldKeys {
    type Error = StoreError;
    const NAME: &'static str = "day_keys";
    const FAILURE: &'static str = "old keys of days can't be destroyed; trying again";

    async fn step(&mut self) -> Result<Next, StoreError> {
        self.keys.destroy_old(self.clock.now()).await?;
        Ok(Next::Idle)
    }
}

/// Forgets absent readers of visits.
pub struct AbsentReaders {
    /// The queue of visits.
    pub queue: Arc<dyn VisitQueue>,
}

#[async_trait]
impl Job for AbsentReaders {
    type Error = WriteError;
    const NAME: &'static str = "readers";
    const FAILURE: &'static str = "absent readers of visits can't be removed; trying again";

    async fn step(&mut self) -> Result<Next, WriteError> {
        self.queue.forget_readers(ABSENT).await?;
        Ok(Next::Idle)
    }
}

/// Fills the pool of codes of those lengths that codes were taken of.
#[async_trait]
impl<R: CryptoRng + Send> Job for Arc<PooledCodes<R>> {
    type Error = DrawError;
    const NAME: &'static str = "pool";
    const FAILURE: &'static str = "the pool of codes can't be filled";

    async fn step(&mut self) -> Result<Next, DrawError> {
        self.fill_where_low().await?;
        Ok(Next::Idle)
    }
}

#[cfg(test)]
mod tests {
    use shortlink_core::ports::{Chunk, ChunkKey, NewChunk, RowOutcome};
    use shortlink_core::testing::{ManualClock, link};
    use shortlink_store::testing::TemporaryStore;

    use super::*;

    #[tokio::test]
    async fn a_request_is_forgotten_after_a_day_and_no_sooner() {
        let kept = TemporaryStore::new().await;
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let key = |chunk| ChunkKey {
            key_id: "key".to_owned(),
            idempotency_key: "again".to_owned(),
            chunk,
        };
        for chunk in 0..2_u32 {
            let link = link(&format!("c{chunk}"));
            let new = NewChunk {
                key: key(chunk),
                chunk: Chunk {
                    digest: [1; 32],
                    rows: vec![RowOutcome::Link(link.code)],
                },
                before: None,
                links: vec![link],
                places: vec![0],
                now: clock.now(),
            };
            kept.store.create_chunk(new).await.expect("a store");
            clock.advance(SignedDuration::from_hours(12));
        }
        clock.advance(SignedDuration::from_secs(1));
        let mut job = OldResults {
            store: Arc::clone(&kept.store),
            clock,
        };
        assert_eq!(job.step().await.expect("a store"), Next::Idle);
        let found = kept.store.find_chunk(&key(0)).await;
        assert!(found.expect("a store").is_none());
        let found = kept.store.find_chunk(&key(1)).await;
        assert!(found.expect("a store").is_some());
    }
}
