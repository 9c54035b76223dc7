//! Writing the records of all links from SQL into Redis, while everything serves. Those of
//! campaigns come first.
//!
//! Links are read in the order of their numbers, some thousand at a time, and several such pages
//! are on their way to Redis at once. How far it has come is noted in SQL every second, so that
//! whoever does it next goes on there. A claim in SQL sees to it that one process does it.
//!
//! Links that are made or changed meanwhile are published by whoever changes them, and no record
//! takes the place of a newer one; so nothing has to stand still.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::core::ports::{Filled, Page, Place, PublishError, RecordIndex, StoreError};
use crate::store::Store;

/// How many links a page has.
const PAGE: u32 = 2048;

/// How many campaigns are written together.
const CAMPAIGNS: u32 = 1000;

/// How often the position is noted, the claim renewed and Redis looked at.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// How long a claim is good that is not renewed.
const CLAIM: SignedDuration = SignedDuration::from_secs(10);

/// How long Redis is waited for when it is lost on the way.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long is waited before Redis is tried again.
const PAUSE: Duration = Duration::from_millis(250);

/// How far back is gone when Redis has started again: it may have lost its last seconds.
const BACK: Duration = Duration::from_secs(60);

/// How often what Redis has lost on the way is written again before that is called hopeless.
const MAX_RETURNS: u32 = 5;

/// The name of the task and of what is noted of it.
const TASK: &str = "rebuild";

/// Writes the records of all links.
pub struct Rebuild {
    /// Where links are.
    pub store: Arc<Store>,
    /// Where their records go.
    pub index: Arc<dyn RecordIndex>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What nobody else is called.
    pub holder: String,
    /// How many pages are on their way at once.
    pub lanes: usize,
}

/// How far a rebuild has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Links that were dealt with, by interrupted runs before this one too.
    pub done: u64,
    /// How many links there are, roughly.
    pub total: u64,
    /// What became of those that this run has dealt with.
    pub filled: Filled,
    /// How many links runs before this one had dealt with.
    pub resumed: u64,
}

/// The position as it is noted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// The number of the last link that is done.
    after: i64,
    /// How many links are done.
    done: u64,
    /// The same, as of [`BACK`] ago.
    safe_after: i64,
    safe_done: u64,
    /// Which Redis that was.
    incarnation: String,
}

impl Note {
    fn start(incarnation: String) -> Self {
        Self {
            after: Place::START.0,
            done: 0,
            safe_after: Place::START.0,
            safe_done: 0,
            incarnation,
        }
    }
}

/// How a run ends that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All links are done.
    Done,
    /// It was asked to stop; the next run goes on.
    Stopped,
}

impl Rebuild {
    /// Writes all records, from the position of the run before unless `restart`; tells `report`
    /// now and then how far it is.
    ///
    /// # Errors
    /// When SQL fails, Redis does not come back, or somebody else does the same.
    pub async fn run(
        &self,
        restart: bool,
        shutdown: &CancellationToken,
        report: &(dyn Fn(Progress) + Sync),
    ) -> Result<(Outcome, Progress), RebuildError> {
        if !self.claim().await? {
            return Err(RebuildError::Claimed);
        }
        let done = self.run_claimed(restart, shutdown, report).await;
        if let Err(error) = self.store.release(TASK, &self.holder).await {
            tracing::debug!(error = &error as &dyn Error, "the claim ends by itself");
        }
        done
    }

    async fn run_claimed(
        &self,
        restart: bool,
        shutdown: &CancellationToken,
        report: &(dyn Fn(Progress) + Sync),
    ) -> Result<(Outcome, Progress), RebuildError> {
        let usage = self.store.code_usage(0).await?;
        let mut progress = Progress {
            total: usage.iter().map(|usage| usage.links).sum(),
            ..Progress::default()
        };
        let mut note = self.find_start(restart).await?;
        progress.resumed = note.done;
        let mut returns = 0;
        loop {
            progress.done = note.done;
            report(progress);
            // There are few, and no link of one redirects without its campaign.
            self.fill_campaigns().await?;
            let end = self.walk(&mut note, &mut progress, shutdown, report).await;
            match end {
                Ok(End::Done) => {
                    self.store.take_note(TASK, None).await?;
                    progress.total = progress.done;
                    report(progress);
                    return Ok((Outcome::Done, progress));
                }
                Ok(End::Stopped) => {
                    self.keep(&note).await?;
                    return Ok((Outcome::Stopped, progress));
                }
                Ok(End::Lost(from)) => {
                    returns += 1;
                    if returns > MAX_RETURNS {
                        return Err(RebuildError::Losing);
                    }
                    tracing::warn!(
                        done = note.done,
                        from = from.done,
                        "Redis has lost what was written; going back"
                    );
                    note = from;
                }
                Err(error) => {
                    // The position first: whoever goes on needs it more than an exact error.
                    let _ = self.keep(&note).await;
                    return Err(error);
                }
            }
        }
    }

    /// Writes the records of all campaigns.
    async fn fill_campaigns(&self) -> Result<(), RebuildError> {
        let mut after = None;
        loop {
            let campaigns = self.store.list_campaigns(after, CAMPAIGNS).await?;
            let Some(last) = campaigns.last() else {
                return Ok(());
            };
            after = Some(last.id);
            patiently(|| self.index.fill_campaigns(&campaigns)).await?;
        }
    }

    /// Where to begin: where the run before has ended, if Redis still has what that has written.
    async fn find_start(&self, restart: bool) -> Result<Note, RebuildError> {
        let incarnation = patiently(|| self.index.incarnation()).await?;
        let before = self.store.note(TASK).await?;
        let before = before.filter(|_| !restart);
        let before: Option<Note> = before.and_then(|text| serde_json::from_str(&text).ok());
        match before {
            Some(note) => match self.look(&note).await? {
                None => Ok(note),
                Some(earlier) => Ok(earlier),
            },
            None => Ok(Note::start(incarnation)),
        }
    }

    /// Writes page after page behind a position, several at once; answers for each, in order, what
    /// became of it, how many links it has, and where the next begins.
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
                let filled = patiently(|| index.fill(&records)).await?;
                Ok((filled, records.len() as u64, next))
            }
        });
        filled.try_buffered(self.lanes).boxed()
    }

    /// Writes page after page behind a position.
    async fn walk(
        &self,
        note: &mut Note,
        progress: &mut Progress,
        shutdown: &CancellationToken,
        report: &(dyn Fn(Progress) + Sync),
    ) -> Result<End, RebuildError> {
        let mut filled = self.filled_pages(Place(note.after));
        // Positions of the last [`BACK`], the oldest first.
        let mut trail = VecDeque::from([(Instant::now(), note.safe_after, note.safe_done)]);
        let mut look_at = Instant::now() + NOTE_EVERY;
        loop {
            let page = tokio::select! {
                () = shutdown.cancelled() => return Ok(End::Stopped),
                () = tokio::time::sleep_until(look_at) => None,
                page = filled.next() => Some(page),
            };
            let next = match page {
                Some(None) => return Ok(End::Done),
                Some(Some(page)) => {
                    let (filled, links, next) = page?;
                    progress.filled += filled;
                    note.done += links;
                    progress.done = note.done;
                    next
                }
                None => None,
            };
            if let Some(Place(after)) = next {
                note.after = after;
            }
            report(*progress);
            if Instant::now() < look_at {
                continue;
            }
            trail.push_back((Instant::now(), note.after, note.done));
            while trail.len() > 1 && trail[1].0.elapsed() > BACK {
                trail.pop_front();
            }
            (note.safe_after, note.safe_done) = (trail[0].1, trail[0].2);
            if let Some(earlier) = self.look(note).await? {
                return Ok(End::Lost(earlier));
            }
            self.keep(note).await?;
            look_at = Instant::now() + NOTE_EVERY;
        }
    }

    /// Notes the position and renews the claim.
    async fn keep(&self, note: &Note) -> Result<(), RebuildError> {
        if !self.claim().await? {
            return Err(RebuildError::Claimed);
        }
        let text = serde_json::to_string(note).unwrap_or_default();
        Ok(self.store.take_note(TASK, Some(text)).await?)
    }

    async fn claim(&self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        self.store.claim(TASK, &self.holder, now, now + CLAIM).await
    }

    /// Where to go back to when Redis has lost what was written: to the beginning when it is
    /// empty, or a minute when it has started again.
    async fn look(&self, note: &Note) -> Result<Option<Note>, RebuildError> {
        let incarnation = patiently(|| self.index.incarnation()).await?;
        let keys = patiently(|| self.index.count()).await?;
        // Other keys may make up for some that are lost, and some may have been deleted: what is
        // looked for is a Redis that was emptied.
        if keys < note.done / 10 * 9 {
            return Ok(Some(Note::start(incarnation)));
        }
        if incarnation != note.incarnation {
            return Ok(Some(Note {
                after: note.safe_after,
                done: note.safe_done,
                incarnation,
                ..note.clone()
            }));
        }
        Ok(None)
    }
}

/// Asks Redis until it answers or patience ends.
async fn patiently<'a, T>(
    ask: impl Fn() -> BoxFuture<'a, Result<T, PublishError>>,
) -> Result<T, PublishError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if Instant::now() < deadline => {
                tracing::debug!(error = &error as &dyn Error, "Redis is tried again");
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// What became of a page, how many links it had, and where the next begins.
type Done = (Filled, u64, Option<Place>);

enum End {
    Done,
    Stopped,
    /// Redis has lost what was written; where to go on.
    Lost(Note),
}

/// Why a rebuild has ended before all links were done.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// SQL failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis failed for too long.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// Somebody else does it.
    #[error("another process is writing the records of all links")]
    Claimed,
    /// Redis loses records as fast as they are written.
    #[error("Redis keeps losing what was written: is it full, with eviction?")]
    Losing,
}

#[cfg(test)]
mod tests;
