//! Refills a Redis that has lost most of its keys, because it was emptied or restarted without
//! data.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shortlink_core::ports::{PublishError, RecordIndex, StoreError};
use shortlink_store::Store;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::drift::InspectError;
use super::rebuild::{Rebuild, RebuildError};
use crate::jobs::{Claims, Job, Next, Outcome, Run};

/// The interval at which the keys of Redis are counted.
pub const EVERY: Duration = Duration::from_secs(2);

/// The note of the number of links that need no record any more.
const ENDED: &str = "ended";

/// Notes how many links a walk through all of them has found that need no record any more, and how many links there are.
pub(super) async fn note_ended(store: &Store, ended: u64) -> Result<(), StoreError> {
    let note = format!("{ended} {}", links(store).await?);
    store.take_note(ENDED, Some(note)).await
}

/// Counts the links.
async fn links(store: &Store) -> Result<u64, StoreError> {
    let usage = store.code_usage(0).await?;
    Ok(usage.iter().map(|usage| usage.links).sum())
}

/// Returns how many of some links need a record, by the share of those that did at the last walk: ended links are deleted
/// without another walk. One link at least does, so that a Redis without keys is always looked into.
fn expected(links: u64, note: Option<&str>) -> u64 {
    let note = note.and_then(|text| text.split_once(' '));
    let note = note.and_then(|(ended, of)| Some((ended.parse().ok()?, of.parse().ok()?)));
    let (ended, of): (u64, u64) = note.unwrap_or((0, 1));
    let live = u128::from(of.saturating_sub(ended)) * u128::from(links) / u128::from(of.max(1));
    u64::try_from(live).unwrap_or(links).clamp(1, links.max(1))
}

/// Rebuilds Redis whenever it is empty or nearly so.
pub struct Refill {
    /// The store of the links, and of the claim to the rebuild.
    pub claims: Claims,
    /// Redis.
    pub index: Arc<dyn RecordIndex>,
    /// The end of the process, which a rebuild must not delay.
    pub shutdown: CancellationToken,
    /// The state of Redis after the last rebuild; `None` before it.
    pub settled: Option<Settled>,
}

/// The state of Redis after a rebuild.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    incarnation: String,
    keys: u64,
}

impl Refill {
    /// Returns true when Redis has less than half of its keys, and has lost them since the last
    /// rebuild. A Redis that cannot hold more is not filled repeatedly. Links whose records have left Redis are counted
    /// by those who walk through all of them.
    pub(super) async fn is_empty(&self) -> Result<bool, InspectError> {
        let keys = self.index.count().await?;
        let links = links(&self.claims.store).await?;
        if keys >= links.div_ceil(2) {
            return Ok(false);
        }
        let note = self.claims.store.note(ENDED).await?;
        if keys >= expected(links, note.as_deref()).div_ceil(2) {
            return Ok(false);
        }
        let Some(settled) = &self.settled else {
            return Ok(true);
        };
        Ok(keys < settled.keys.div_ceil(2)
            || self.index.incarnation().await? != settled.incarnation)
    }

    async fn settled(&self) -> Result<Settled, PublishError> {
        Ok(Settled {
            incarnation: self.index.incarnation().await?,
            keys: self.index.count().await?,
        })
    }

    async fn rebuild(&mut self) -> Result<(), RebuildError> {
        tracing::warn!("Redis has lost most links; they are written again");
        let begun = Instant::now();
        let rebuild = Rebuild {
            store: Arc::clone(&self.claims.store),
            index: Arc::clone(&self.index),
            clock: Arc::clone(&self.claims.clock),
            // Redis has other clients to serve.
            lanes: 1,
            restart: false,
        };
        let mut run = Run::new(rebuild.job(), &self.claims);
        let patience = Duration::ZERO;
        match run.finish(patience, &self.shutdown, &mut |_| {}).await? {
            Outcome::Done => {
                tracing::info!(
                    links = run.job.progress.filled.total(),
                    seconds = begun.elapsed().as_secs(),
                    "Redis has all links again"
                );
                self.settled = self.settled().await.ok();
            }
            Outcome::Stopped => {}
            Outcome::Claimed => tracing::debug!("another process writes them"),
        }
        Ok(())
    }
}

#[async_trait]
impl Job for Refill {
    type Error = RebuildError;
    const NAME: &'static str = "refill";
    const FAILURE: &'static str = "the links were not written again; trying again";
    const LEVEL: Level = Level::ERROR;
    /// Longer than that of the rebuild, which notes its position at shutdown.
    const GRACE: Duration = Duration::from_secs(3);

    async fn step(&mut self) -> Result<Next, RebuildError> {
        match self.is_empty().await {
            Ok(true) => self.rebuild().await?,
            Ok(false) => {}
            // The outbox logs it.
            Err(error) => tracing::debug!(
                error = &error as &dyn Error,
                "it is unknown whether Redis is empty"
            ),
        }
        Ok(Next::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::expected;

    #[test]
    fn links_that_ended_are_expected_by_their_share() {
        for (links, note, live) in [
            (100, None, 100),
            (100, Some("0 100"), 100),
            (100, Some("90 100"), 10),
            // Most of those were deleted since.
            (20, Some("90 100"), 2),
            (5, Some("90 100"), 1),
            (100, Some("200 100"), 1),
            (100, Some("0 0"), 1),
            (100, Some("90"), 100),
            (0, Some("90 100"), 1),
        ] {
            assert_eq!(expected(links, note), live, "{links} {note:?}");
        }
    }
}
