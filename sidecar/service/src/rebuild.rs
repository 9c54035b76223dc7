//! Rebuilds Redis: writes the records of all campaigns and then of all links from SQL, during
//! normal operation.
//!
//! Links are read in the order of their numbers, some thousand per page, and several pages are
//! written concurrently. The position is stored in SQL every second, and the next run continues
//! there. A claim in SQL ensures that only one process rebuilds.
//!
//! Concurrent changes publish their links themselves, and an older record never replaces a newer
//! one, so nothing has to stop.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use shortlink_core::clock::Clock;
use shortlink_core::ports::{Filled, Page, Place, PublishError, RecordIndex, StoreError};
use shortlink_store::Store;
use tokio::time::Instant;

use crate::jobs::{Job, Next};
use crate::refill;

/// The number of links per page.
const PAGE: u32 = 2048;

/// The number of campaigns per write.
const CAMPAIGNS: u32 = 1000;

/// The interval at which the position is stored and Redis checked.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// The longest wait for an unreachable Redis.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause before a retry.
const PAUSE: Duration = Duration::from_millis(250);

/// The time to go back by after a restart of Redis, which may have lost its last seconds.
const BACK: Duration = Duration::from_secs(60);

/// The number of times that lost records are written again before the rebuild fails.
const MAX_RETURNS: u32 = 5;

/// Writes the records of all links.
pub struct Rebuild {
    /// The store of the links.
    pub store: Arc<Store>,
    /// Redis.
    pub index: Arc<dyn RecordIndex>,
    /// The clock that links expire by.
    pub clock: Arc<dyn Clock>,
    /// The number of pages that are written concurrently.
    pub lanes: usize,
    /// Starts from the beginning instead of the stored position.
    pub restart: bool,
}

/// A rebuild in progress; each step writes one page.
pub struct RebuildJob {
    rebuild: Rebuild,
    /// The progress so far.
    pub progress: Progress,
    walk: Option<Walk>,
}

/// A walk through the links, since the last loss of records by Redis.
struct Walk {
    note: Note,
    pages: BoxStream<'static, Result<Done, RebuildError>>,
    /// Positions of the last [`BACK`], with the counts of links, the oldest first.
    trail: VecDeque<(Instant, i64, [u64; 2])>,
    look_at: Instant,
    /// The number of losses of written records by Redis.
    returns: u32,
}

/// The progress of a rebuild.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Processed links, including those of earlier, interrupted runs.
    pub done: u64,
    /// The approximate number of links.
    pub total: u64,
    /// The results for the links of this run.
    pub filled: Filled,
    /// The number of links that earlier runs wrote.
    pub resumed: u64,
}

/// The stored position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// The number of the last processed link.
    after: i64,
    /// The count of processed links.
    done: u64,
    /// The number of those that need no record any more.
    #[serde(default)]
    ended: u64,
    /// The same, as of [`BACK`] ago.
    safe_after: i64,
    safe_done: u64,
    #[serde(default)]
    safe_ended: u64,
    /// The data set of Redis at that time.
    incarnation: String,
}

impl Note {
    fn start(incarnation: String) -> Self {
        Self {
            after: Place::START.0,
            done: 0,
            ended: 0,
            safe_after: Place::START.0,
            safe_done: 0,
            safe_ended: 0,
            incarnation,
        }
    }
}

#[async_trait]
impl Job for RebuildJob {
    type Error = RebuildError;
    const NAME: &'static str = "rebuild";
    const FAILURE: &'static str = "the records of all links can't be written";
    const LEASE: Option<Duration> = Some(Duration::from_secs(10));

    async fn begin(&mut self) -> Result<(), RebuildError> {
        let usage = self.rebuild.store.code_usage(0).await?;
        let note = self.rebuild.find_start().await?;
        self.progress = Progress {
            done: note.done,
            total: usage.iter().map(|usage| usage.links).sum(),
            resumed: note.done,
            ..Progress::default()
        };
        self.walk = Some(self.rebuild.walk_from(note, 0).await?);
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, RebuildError> {
        let Some(walk) = &mut self.walk else {
            return Ok(Next::Idle);
        };
        let Some(page) = walk.pages.next().await else {
            let ended = walk.note.ended;
            self.walk = None;
            self.rebuild.store.take_note(Self::NAME, None).await?;
            refill::note_ended(&self.rebuild.store, ended).await?;
            self.progress.total = self.progress.done;
            return Ok(Next::Idle);
        };
        let Done {
            filled,
            links,
            ended,
            next,
        } = page?;
        self.progress.filled += filled;
        walk.note.done += links;
        walk.note.ended += ended;
        self.progress.done = walk.note.done;
        if let Some(Place(after)) = next {
            walk.note.after = after;
        }
        if Instant::now() < walk.look_at {
            return Ok(Next::Now);
        }
        walk.mark();
        let Some(earlier) = self.rebuild.look(&walk.note).await? else {
            self.rebuild.keep(&walk.note).await?;
            walk.look_at = Instant::now() + NOTE_EVERY;
            return Ok(Next::Now);
        };
        let returns = walk.returns + 1;
        if returns > MAX_RETURNS {
            return Err(RebuildError::Losing);
        }
        tracing::warn!(
            done = walk.note.done,
            from = earlier.done,
            "Redis has lost records that were written; writing them again"
        );
        self.progress.done = earlier.done;
        self.walk = Some(self.rebuild.walk_from(earlier, returns).await?);
        Ok(Next::Now)
    }

    async fn end(&mut self) -> Result<(), RebuildError> {
        match self.walk.take() {
            Some(walk) => Ok(self.rebuild.keep(&walk.note).await?),
            None => Ok(()),
        }
    }
}

impl Walk {
    /// Adds the position to the trail.
    fn mark(&mut self) {
        let Self { note, trail, .. } = self;
        trail.push_back((Instant::now(), note.after, [note.done, note.ended]));
        while trail.len() > 1 && trail[1].0.elapsed() > BACK {
            trail.pop_front();
        }
        (note.safe_after, [note.safe_done, note.safe_ended]) = (trail[0].1, trail[0].2);
    }
}

impl Rebuild {
    /// Prepares the job, which starts at the stored position.
    pub fn job(self) -> RebuildJob {
        RebuildJob {
            rebuild: self,
            progress: Progress::default(),
            walk: None,
        }
    }

    /// Writes the records of all campaigns.
    async fn fill_campaigns(&self) -> Result<(), RebuildError> {
        let mut after = None;
        loop {
            let campaigns = self.store.list_campaigns(after, CAMPAIGNS, None).await?;
            let Some(last) = campaigns.last() else {
                return Ok(());
            };
            after = Some(last.id);
            patiently(|| self.index.fill_campaigns(&campaigns)).await?;
        }
    }

    /// Returns the stored position if Redis still has the records written before it, otherwise an
    /// earlier one.
    async fn find_start(&self) -> Result<Note, RebuildError> {
        let incarnation = patiently(|| self.index.incarnation()).await?;
        let before = self.store.note(RebuildJob::NAME).await?;
        let before = before.filter(|_| !self.restart);
        let before: Option<Note> = before.and_then(|text| serde_json::from_str(&text).ok());
        match before {
            Some(note) => match self.look(&note).await? {
                None => Ok(note),
                Some(earlier) => Ok(earlier),
            },
            None => Ok(Note::start(incarnation)),
        }
    }

    /// Writes the pages after a position, several concurrently; yields the results in order.
    fn filled_pages(&self, after: Place) -> BoxStream<'static, Result<Done, RebuildError>> {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let pages = stream::try_unfold(Some(after), move |after| {
            let (store, clock) = (Arc::clone(&store), Arc::clone(&clock));
            async move {
                let Some(after) = after else {
                    return Ok::<_, RebuildError>(None);
                };
                let page = store.records_after(after, PAGE, clock.now()).await?;
                let next = page.next;
                Ok(Some((page, next)))
            }
        });
        let index = Arc::clone(&self.index);
        let filled = pages.map_ok(move |Page { records, next }| {
            let index = Arc::clone(&index);
            async move {
                Ok(Done {
                    filled: patiently(|| index.fill(&records)).await?,
                    links: records.len() as u64,
                    ended: records.count_over(index.ended_days()),
                    next,
                })
            }
        });
        filled.try_buffered(self.lanes).boxed()
    }

    /// Starts to write the records after a position. Campaigns come first: they are few, and their
    /// links do not redirect without them.
    async fn walk_from(&self, note: Note, returns: u32) -> Result<Walk, RebuildError> {
        self.fill_campaigns().await?;
        Ok(Walk {
            pages: self.filled_pages(Place(note.after)),
            trail: VecDeque::from([(
                Instant::now(),
                note.safe_after,
                [note.safe_done, note.safe_ended],
            )]),
            look_at: Instant::now() + NOTE_EVERY,
            note,
            returns,
        })
    }

    /// Stores the position.
    async fn keep(&self, note: &Note) -> Result<(), StoreError> {
        let text = serde_json::to_string(note).unwrap_or_default();
        self.store.take_note(RebuildJob::NAME, Some(text)).await
    }

    /// Returns the position to go back to when Redis has lost written records: the beginning when
    /// it was emptied, or that of a minute ago when it has restarted.
    async fn look(&self, note: &Note) -> Result<Option<Note>, RebuildError> {
        let incarnation = patiently(|| self.index.incarnation()).await?;
        let keys = patiently(|| self.index.count()).await?;
        // The count is inexact: other keys may hide lost ones, and keys may have been deleted. It
        // detects a Redis that was emptied.
        if keys < note.done.saturating_sub(note.ended) / 10 * 9 {
            return Ok(Some(Note::start(incarnation)));
        }
        if incarnation != note.incarnation {
            return Ok(Some(Note {
                after: note.safe_after,
                done: note.safe_done,
                ended: note.safe_ended,
                incarnation,
                ..note.clone()
            }));
        }
        Ok(None)
    }
}

/// Retries an operation on Redis until it succeeds or [`PATIENCE`] ends.
async fn patiently<'a, T>(
    ask: impl Fn() -> BoxFuture<'a, Result<T, PublishError>>,
) -> Result<T, PublishError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if Instant::now() < deadline => {
                tracing::debug!(
                    error = &error as &dyn Error,
                    "a request to Redis is repeated"
                );
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// The result of a page.
struct Done {
    filled: Filled,
    /// Its number of links.
    links: u64,
    /// The number of those that need no record any more.
    ended: u64,
    /// The beginning of the next page.
    next: Option<Place>,
}

/// A reason why a rebuild ended early.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// SQL failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis failed for too long.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// Redis loses records as fast as they are written.
    #[error("Redis repeatedly loses records that were written: is it full, with eviction?")]
    Losing,
}

#[cfg(test)]
mod tests;
