//! The worker of the outbox: keeps the data set of Redis up to date, and proves that it is.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use shortlink_core::boxed;
use shortlink_core::ports::{
    self, Adopted, MAX_TOGETHER, Mark, PublishError, Session, Settled, Waiting,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vocabulary::generation::BEAT_MS;

use super::{Confirmed, GRACE, Parts, What, confirmation, recent};
use crate::drift::InspectError;

/// Interval at which the worker settles, checks the data set and gives it a beat.
const TICK: Duration = Duration::from_millis(BEAT_MS);

/// Pauses of the worker after a failure: the first and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Time that the log keeps changes that were applied: a data set that lags by less gets what it lacks from the
/// log.
const KEPT: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Interval at which old changes are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// The most confirmations that are settled together.
const BATCH: usize = 256;

/// Publishes what could not be published at once.
pub struct Worker {
    parts: Arc<Parts>,
    confirmations: mpsc::Receiver<Confirmed>,
    data_set: Option<DataSet>,
    /// The last place at some past rounds, and the time: changes up to one of [`GRACE`] ago are overdue.
    seen: VecDeque<(Instant, u64)>,
    has_turn: bool,
    /// The generation and the watermark of the last mark: a data set that shows less has gone back.
    marked: (u64, u64),
}

/// The data set that was inspected last.
#[derive(Debug)]
struct DataSet {
    session: Session,
    incarnation: String,
    adopted: Adopted,
    /// The place up to which it has the changes that restrict.
    restricted_to: u64,
}

impl DataSet {
    /// Reports whether what is seen over a connection is this data set, and was adopted for good.
    fn is_still(&self, session: Session, seen: &ports::DataSet) -> bool {
        let generation = seen.standing.map(|(generation, _)| generation);
        !self.adopted.is_incomplete
            && seen.is_whole
            && session == self.session
            && generation == Some(self.adopted.generation)
            && seen.incarnation == self.incarnation
    }
}

impl Worker {
    pub(super) fn new(parts: Arc<Parts>, confirmations: mpsc::Receiver<Confirmed>) -> Self {
        Self {
            parts,
            confirmations,
            data_set: None,
            seen: VecDeque::new(),
            has_turn: false,
            marked: (0, 0),
        }
    }

    /// Runs until `shutdown`, then settles the last confirmations.
    #[boxed]
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut pause = FIRST_PAUSE;
        let mut is_failing = false;
        let mut forget_at = Instant::now();
        // No request publishes the rows of an earlier process.
        let mut urgent = true;
        while !shutdown.is_cancelled() {
            let begun = Instant::now();
            let wait = match self.round(urgent, &shutdown).await {
                Ok(published) => {
                    if is_failing {
                        tracing::info!("links can be published again");
                        is_failing = false;
                    }
                    if published > 0 {
                        tracing::info!(links = published, "pending links were published");
                    }
                    urgent = false;
                    pause = FIRST_PAUSE;
                    TICK.saturating_sub(begun.elapsed())
                }
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(
                            error = &error as &dyn Error,
                            "links can't be published; trying again until they can"
                        );
                        is_failing = true;
                    }
                    self.parts.store.end_turn().await;
                    // Pending rows have waited for Redis, not for a request.
                    urgent = true;
                    let wait = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait
                }
            };
            if !is_failing && Instant::now() >= forget_at && !self.forget().await {
                forget_at = Instant::now() + FORGET_EVERY;
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
                () = self.parts.failed.notified(), if !is_failing => {
                    // Other requests are about to fail too: one short wait for all of them.
                    tokio::time::sleep(FIRST_PAUSE).await;
                    urgent = true;
                }
            }
        }
        if let Err(error) = self.settle_confirmations().await {
            tracing::warn!(
                error = &error as &dyn Error,
                "the last publications were not recorded and will be repeated"
            );
        }
    }

    /// Inspects the data set, settles, publishes pending changes and those that the data set lacks, and marks it.
    /// Returns the number of links published. `urgent` publishes without the grace period for requests.
    async fn round(
        &mut self,
        mut urgent: bool,
        shutdown: &CancellationToken,
    ) -> Result<usize, InspectError> {
        urgent |= self.inspect().await?;
        self.settle_confirmations().await?;
        let store = Arc::clone(&self.parts.store);
        let had_turn = std::mem::replace(&mut self.has_turn, store.take_turn().await?);
        if !self.has_turn {
            return Ok(0);
        }
        // The process before has left changes whose age is not known here.
        urgent |= !had_turn;
        let places = store.places().await?;
        let overdue = self.overdue(places.last);
        let up_to = if urgent { places.last } else { overdue };
        let mut total = 0;
        // Restricting changes of another data set's time go before all others.
        total += self.replay(true, shutdown).await?;
        total += self.publish_changes(up_to, shutdown).await?;
        total += self.replay(false, shutdown).await?;
        total += self.publish_new(urgent, shutdown).await?;
        // All that was overdue at the beginning is there.
        self.mark(!shutdown.is_cancelled()).await?;
        Ok(total)
    }

    /// Inspects the data set and adopts it; returns true if a new generation begins or the connection is new.
    async fn inspect(&mut self) -> Result<bool, InspectError> {
        let Parts {
            store, publisher, ..
        } = &*self.parts;
        let (session, mut seen) = publisher.inspect().await?;
        // A cluster of which some masters show nothing gets all changes, so nothing needs to stand there.
        let stands = seen.standing.filter(|_| seen.is_whole);
        if let Some((generation, watermark)) = seen.standing {
            seen.is_whole &= generation != self.marked.0 || watermark >= self.marked.1;
        }
        if let Some(known) = &self.data_set
            && known.is_still(session, &seen)
        {
            return Ok(false);
        }
        let incarnation = seen.incarnation.clone();
        let mut adopted = store.adopt(seen).await?;
        let Adopted {
            generation,
            watermark,
            is_new,
            ..
        } = adopted;
        let known = self.data_set.take();
        let known = known.filter(|it| it.session == session && it.adopted.generation == generation);
        let known = known.map(|it| (it.adopted.watermark, it.restricted_to));
        let (known_watermark, restricted_to) = known.unwrap_or_default();
        let is_known = known.is_some() && !is_new;
        if is_new {
            tracing::info!(
                generation,
                changes = adopted.replay_to - watermark,
                is_incomplete = adopted.is_incomplete,
                "Redis has another data set, or an older one; it gets the changes that it lacks"
            );
        }
        adopted.watermark = watermark.max(known_watermark);
        self.data_set = Some(DataSet {
            session,
            incarnation: incarnation.clone(),
            adopted,
            restricted_to: watermark.max(restricted_to),
        });
        let mark = Mark {
            session,
            incarnation,
            generation,
            stands,
            watermark,
            beat: false,
        };
        if !is_known && !publisher.mark(&mark).await? {
            return Err(self.another());
        }
        self.marked = (generation, watermark);
        Ok(!is_known)
    }

    /// Returns the place up to which changes are overdue: their requests had time to publish them.
    fn overdue(&mut self, last: u64) -> u64 {
        let now = Instant::now();
        self.seen.push_back((now, last));
        let mut overdue = 0;
        while let Some((at, place)) = self.seen.front().copied()
            && now - at >= GRACE
        {
            overdue = place;
            if self.seen.get(1).is_none_or(|(at, _)| now - *at < GRACE) {
                break;
            }
            self.seen.pop_front();
        }
        overdue
    }

    /// Publishes changes that wait up to a place, restricting ones first. Each is read once, so that one that no
    /// confirmation settles keeps no other one waiting.
    async fn publish_changes(
        &mut self,
        up_to: u64,
        shutdown: &CancellationToken,
    ) -> Result<usize, InspectError> {
        let mut total = 0;
        let store = Arc::clone(&self.parts.store);
        for is_restricting in [true, false] {
            let mut after = 0;
            while !shutdown.is_cancelled() {
                let waiting = store.waiting_changes(after, up_to, is_restricting).await?;
                let Some(last) = waiting.last else {
                    break;
                };
                after = last;
                total += waiting.links.len();
                self.publish(waiting).await?;
            }
        }
        Ok(total)
    }

    /// Publishes the changes that wait now, in the middle of a long round.
    async fn publish_present(
        &mut self,
        shutdown: &CancellationToken,
    ) -> Result<usize, InspectError> {
        let last = self.parts.store.places().await?.last;
        self.publish_changes(last, shutdown).await
    }

    /// Publishes new links that wait.
    async fn publish_new(
        &mut self,
        urgent: bool,
        shutdown: &CancellationToken,
    ) -> Result<usize, InspectError> {
        let mut total = 0;
        // Rows that are stored from now on belong to requests.
        let (overdue, _) = recent(&*self.parts.clock);
        let since = if urgent {
            self.parts.clock.now()
        } else {
            overdue
        };
        let mut interrupted_at = Instant::now();
        while !shutdown.is_cancelled() {
            // A change does not wait for all new links.
            if interrupted_at.elapsed() >= TICK {
                total += self.publish_present(shutdown).await?;
                interrupted_at = Instant::now();
            }
            let (_, until) = recent(&*self.parts.clock);
            let waiting = self.parts.store.waiting_links(since, until).await?;
            if waiting.is_empty() {
                break;
            }
            total += waiting.links.len();
            self.publish(waiting).await?;
        }
        Ok(total)
    }

    /// Publishes changes that were applied to another data set, and may be missing in this one.
    async fn replay(
        &mut self,
        is_restricting: bool,
        shutdown: &CancellationToken,
    ) -> Result<usize, InspectError> {
        let Some(data_set) = &self.data_set else {
            return Ok(0);
        };
        let to = data_set.adopted.replay_to;
        let mut from = if is_restricting {
            data_set.restricted_to
        } else {
            data_set.adopted.watermark
        };
        let store = Arc::clone(&self.parts.store);
        let read = |from| store.replayed_changes(from, to, is_restricting);
        let mut total = 0;
        let mut interrupted_at = Instant::now();
        let mut next = None;
        while from < to && !shutdown.is_cancelled() {
            let changes = match next.take() {
                Some(changes) => changes,
                None => read(from).await?,
            };
            from = changes.last.unwrap_or(to);
            total += changes.links.len();
            // The next are read while these are sent.
            if from < to {
                let (sent, read) = tokio::join!(self.send(&changes), read(from));
                sent?;
                next = Some(read?);
            } else {
                self.send(&changes).await?;
            }
            if let Some(data_set) = &mut self.data_set {
                data_set.restricted_to = data_set.restricted_to.max(from);
                if !is_restricting {
                    data_set.adopted.watermark = from;
                }
            }
            // The next process goes on from here.
            if interrupted_at.elapsed() >= TICK {
                self.mark(false).await?;
                total += self.publish_present(shutdown).await?;
                interrupted_at = Instant::now();
            }
        }
        Ok(total)
    }

    /// Publishes pending links and campaigns, and settles them.
    async fn publish(&mut self, waiting: Waiting) -> Result<(), InspectError> {
        self.parts.store.note_delivery(&waiting.receipt).await;
        let generation = self.send(&waiting).await?;
        let settled = Settled {
            generation,
            receipts: vec![waiting.receipt],
            campaigns: waiting.campaigns.iter().map(confirmation).collect(),
        };
        self.settle(settled).await
    }

    /// Publishes to the data set; returns its generation. Fails if anything went over another connection.
    async fn send(&mut self, waiting: &Waiting) -> Result<u64, InspectError> {
        let Some((own, generation)) = self
            .data_set
            .as_ref()
            .map(|it| (it.session, it.adopted.generation))
        else {
            return Err(self.another());
        };
        let mut is_own = true;
        // A campaign's change affects all its links.
        if !waiting.campaigns.is_empty() {
            let sent = self.parts.publish_campaigns(&waiting.campaigns).await?;
            is_own &= sent.session == own;
        }
        for links in waiting.links.chunks(MAX_TOGETHER) {
            is_own &= self.parts.publish_links(links).await?.session == own;
        }
        if is_own {
            return Ok(generation);
        }
        Err(self.another())
    }

    /// Marks how far the data set is, with a beat if it is complete and nothing is overdue.
    async fn mark(&mut self, is_current: bool) -> Result<(), InspectError> {
        let places = self.parts.store.places().await?;
        let Some(data_set) = &mut self.data_set else {
            return Ok(());
        };
        let DataSet {
            session,
            incarnation,
            adopted,
            ..
        } = data_set;
        let is_replayed = adopted.watermark >= adopted.replay_to;
        if is_replayed {
            adopted.watermark = adopted.watermark.max(places.applied());
        }
        // The database is an older one than before, or another process knows another data set.
        if places.last < adopted.watermark || places.generation != adopted.generation {
            return Err(self.another());
        }
        // While records may be missing of which no change exists, the watermark would hide it.
        let reached = adopted.watermark.min(places.applied());
        let mark = Mark {
            session: *session,
            incarnation: incarnation.clone(),
            generation: adopted.generation,
            stands: Some((adopted.generation, self.marked.1)),
            watermark: if adopted.is_incomplete { 0 } else { reached },
            beat: is_current && is_replayed && !adopted.is_incomplete,
        };
        if !self.parts.publisher.mark(&mark).await? {
            return Err(self.another());
        }
        self.marked.1 = self.marked.1.max(mark.watermark);
        Ok(())
    }

    async fn settle_confirmations(&mut self) -> Result<(), InspectError> {
        loop {
            let Some(data_set) = &self.data_set else {
                return Ok(());
            };
            let mut settled = Settled {
                generation: data_set.adopted.generation,
                ..Settled::default()
            };
            let mut taken = 0;
            while taken < BATCH
                && let Ok(confirmed) = self.confirmations.try_recv()
            {
                taken += 1;
                // Another connection may lead to another data set: the links are published again.
                if confirmed.session != data_set.session {
                    continue;
                }
                match confirmed.what {
                    What::Links(receipt) => settled.receipts.push(receipt),
                    What::Campaign(campaign) => settled.campaigns.push(campaign),
                }
            }
            if taken == 0 {
                return Ok(());
            }
            if !settled.receipts.is_empty() || !settled.campaigns.is_empty() {
                self.settle(settled).await?;
            }
        }
    }

    async fn settle(&mut self, settled: Settled) -> Result<(), InspectError> {
        let now = self.parts.clock.now();
        if self.parts.store.settle(settled, now).await? {
            return Ok(());
        }
        Err(self.another())
    }

    /// Forgets the data set, which is another one by now.
    fn another(&mut self) -> InspectError {
        self.data_set = None;
        let operation = "identify the data set";
        PublishError::Away { operation }.into()
    }

    /// Forgets old changes; returns true if more may follow.
    async fn forget(&self) -> bool {
        let before = self.parts.clock.now() - KEPT;
        match self.parts.store.forget_changes(before).await {
            Ok(more) => more,
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::warn!(error, "old changes could not be deleted from the log");
                false
            }
        }
    }
}
