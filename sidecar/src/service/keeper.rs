//! Keeps Redis true in the background.
//!
//! All links are walked through slowly, over and over, and what does not stand in Redis as it
//! should is put right: so a Redis that has lost some keys heals by itself. One that has lost most
//! of them, since it was emptied or has started with nothing, is filled by a whole rebuild. Of
//! several sidecars one does either: whoever has claimed it in SQL.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::drift::{InspectError, Inspector};
use super::rebuild::{Outcome, Rebuild, RebuildError};
use crate::clock::Clock;
use crate::core::ports::{Place, PublishError, RecordIndex, StoreError};
use crate::core::records::Drift;
use crate::store::Store;

/// How often some links are looked at.
const TICK: Duration = Duration::from_secs(1);

/// How often Redis is asked how many keys it has.
const COUNT_EVERY: Duration = Duration::from_secs(2);

/// How often the walk is claimed and its position noted.
const CLAIM_EVERY: Duration = Duration::from_secs(10);

/// How long a claim is good that is not renewed.
const CLAIM: SignedDuration = SignedDuration::from_secs(30);

/// The most links that are looked at together.
const PAGE: u32 = 2048;

/// The name of the walk and of what is noted of it.
const TASK: &str = "reconcile";

/// Keeps Redis true.
pub struct Keeper {
    /// Where links are.
    pub store: Arc<Store>,
    /// Where their records are.
    pub index: Arc<dyn RecordIndex>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What nobody else is called.
    pub holder: String,
    /// How many links are looked at each second; 0 for none.
    pub links_per_s: u32,
    /// Whether an empty Redis is filled.
    pub rebuilds: bool,
}

/// What Redis was like after it was filled.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settled {
    incarnation: String,
    keys: u64,
}

impl Keeper {
    /// Works until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let rebuilds = async {
            if self.rebuilds {
                self.watch(&shutdown).await;
            }
        };
        let walks = async {
            if self.links_per_s > 0 {
                self.walk(&shutdown).await;
            }
        };
        tokio::join!(rebuilds, walks);
    }

    /// Fills Redis whenever it turns out to be empty or nearly.
    async fn watch(&self, shutdown: &CancellationToken) {
        let mut settled = None;
        while !shutdown.is_cancelled() {
            match self.is_empty(&settled).await {
                Ok(true) => self.rebuild(&mut settled, shutdown).await,
                Ok(false) => {}
                // The outbox says so, loudly enough for all.
                Err(error) => tracing::debug!(
                    error = &error as &dyn Error,
                    "it is not known whether Redis is empty"
                ),
            }
            pause(COUNT_EVERY, shutdown).await;
        }
    }

    /// Whether Redis has less than half of what it should have, and has lost that since it was
    /// last filled: one that can't hold more is not filled again and again.
    async fn is_empty(&self, settled: &Option<Settled>) -> Result<bool, InspectError> {
        let keys = self.index.count().await?;
        let usage = self.store.code_usage(0).await?;
        let links: u64 = usage.iter().map(|usage| usage.links).sum();
        if keys >= links.div_ceil(2) {
            return Ok(false);
        }
        let Some(settled) = settled else {
            return Ok(true);
        };
        Ok(keys < settled.keys.div_ceil(2)
            || self.index.incarnation().await? != settled.incarnation)
    }

    async fn rebuild(&self, settled: &mut Option<Settled>, shutdown: &CancellationToken) {
        let rebuild = Rebuild {
            store: Arc::clone(&self.store),
            index: Arc::clone(&self.index),
            clock: Arc::clone(&self.clock),
            holder: self.holder.clone(),
            // Redis has others to serve.
            lanes: 1,
        };
        tracing::warn!("Redis has lost most links; they are written again");
        let begun = Instant::now();
        match rebuild.run(false, shutdown, &|_| {}).await {
            Ok((Outcome::Done, progress)) => {
                tracing::info!(
                    links = progress.filled.total(),
                    seconds = begun.elapsed().as_secs(),
                    "Redis has all links again"
                );
                *settled = self.settled().await.ok();
            }
            Ok((Outcome::Stopped, _)) => {}
            Err(RebuildError::Claimed) => tracing::debug!("another process writes them"),
            Err(error) => tracing::error!(
                error = &error as &dyn Error,
                "the links were not written again; trying again"
            ),
        }
    }

    async fn settled(&self) -> Result<Settled, PublishError> {
        Ok(Settled {
            incarnation: self.index.incarnation().await?,
            keys: self.index.count().await?,
        })
    }

    /// Walks through all links, over and over.
    async fn walk(&self, shutdown: &CancellationToken) {
        let inspector = Inspector {
            store: Arc::clone(&self.store),
            index: Arc::clone(&self.index),
            clock: Arc::clone(&self.clock),
        };
        let mut position: Option<Place> = None;
        let mut claim_at = Instant::now();
        let mut is_failing = false;
        while !shutdown.is_cancelled() {
            let begun = Instant::now();
            let is_due = begun >= claim_at;
            if is_due {
                claim_at = begun + CLAIM_EVERY;
            }
            match self.step(&inspector, &mut position, is_due).await {
                Ok(()) => is_failing = false,
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(
                            error = &error as &dyn Error,
                            "links can't be compared with Redis; trying again until they can"
                        );
                    }
                    is_failing = true;
                }
            }
            pause(TICK.saturating_sub(begun.elapsed()), shutdown).await;
        }
        if position.is_some()
            && let Err(error) = self.store.release(TASK, &self.holder).await
        {
            tracing::debug!(error = &error as &dyn Error, "the claim ends by itself");
        }
    }

    /// Looks at the next links, if the walk is this process'.
    async fn step(
        &self,
        inspector: &Inspector,
        position: &mut Option<Place>,
        is_due: bool,
    ) -> Result<(), InspectError> {
        if is_due {
            *position = self.claim(*position).await?;
        }
        let Some(mut place) = *position else {
            return Ok(());
        };
        let mut left = self.links_per_s;
        while left > 0 {
            let limit = left.min(PAGE);
            left -= limit;
            let page = self
                .store
                .records_after(place, limit, self.clock.now())
                .await?;
            let drifts = self.index.compare(&page.records).await?;
            let suspects = drifts.iter().map(|(at, _)| page.records.get(*at).code);
            let confirmed = inspector.confirm(suspects.collect()).await?;
            // Whatever is newer in Redis is for an operator to look at: SQL may be the one that
            // has lost something.
            let newer = confirmed.drifts.iter();
            let newer = newer
                .filter(|drift| matches!(drift, Drift::Newer(_)))
                .count();
            if newer > 0 {
                tracing::warn!(
                    links = newer,
                    "Redis has newer records than the database; `shortlink audit` shows them"
                );
            }
            let lost = confirmed.drifts.iter();
            let lost = lost.filter(|drift| !matches!(drift, Drift::Long | Drift::Newer(_)));
            let lost = lost.count();
            self.index.fill(&confirmed.records).await?;
            if lost > 0 {
                tracing::info!(links = lost, "records in Redis were put right");
            }
            match page.next {
                Some(next) => place = next,
                None => {
                    place = Place::START;
                    left = 0;
                    Self::keep_campaigns(inspector).await?;
                }
            }
            *position = Some(place);
        }
        Ok(())
    }

    /// Puts right what does not stand as it should of campaigns.
    async fn keep_campaigns(inspector: &Inspector) -> Result<(), InspectError> {
        let mut drifts = inspector.compare_campaigns().await?.drifts;
        let all = drifts.len();
        drifts.retain(|found| !matches!(found.drift, Drift::Newer(_)));
        if drifts.len() < all {
            tracing::warn!(
                campaigns = all - drifts.len(),
                "Redis has newer records than the database; `shortlink audit` shows them"
            );
        }
        if !drifts.is_empty() {
            tracing::info!(campaigns = drifts.len(), "records in Redis were put right");
            inspector.repair_campaigns(drifts).await?;
        }
        Ok(())
    }

    /// Claims the walk and notes how far it is; answers where it goes on, or `None` when it is
    /// another process'.
    async fn claim(&self, position: Option<Place>) -> Result<Option<Place>, StoreError> {
        let now = self.clock.now();
        let until = now + CLAIM;
        if !self.store.claim(TASK, &self.holder, now, until).await? {
            return Ok(None);
        }
        match position {
            Some(Place(place)) => {
                let text = Some(place.to_string());
                self.store.take_note(TASK, text).await?;
                Ok(position)
            }
            None => {
                let note = self.store.note(TASK).await?;
                let place = note.and_then(|text| text.parse().ok());
                Ok(Some(place.map_or(Place::START, Place)))
            }
        }
    }
}

/// Waits, but not beyond `shutdown`.
pub(super) async fn pause(time: Duration, shutdown: &CancellationToken) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(time) => {}
    }
}
