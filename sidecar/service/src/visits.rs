//! Ingestion of visits that the edge reports.
//!
//! Batches are taken from a queue, read, enriched, stored together, and then settled. After a crash
//! between the last two steps, the next process takes them again; ids of events deduplicate them.
//! Unreadable events go to quarantine and delay nothing.

mod counters;

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rand::rngs::StdRng;
use tokio::time::Instant;
use vocabulary::Code;
use vocabulary::visit::{VisitError, VisitFrames};

use crate::jobs::{Job, Next};
use crate::links;
pub use counters::VisitCounters;
use shortlink_core::audit::Action;
use shortlink_core::clock::Clock;
use shortlink_core::link::{Change, Edit, Link, Second};
use shortlink_core::ports::{
    Delivery, KeptVisits, Poison, PublishError, QueuedBatch, QueuedId, StoreError, VisitQueue,
};
use shortlink_core::visit::visitor::{KeyRing, LiveKeys};
use shortlink_core::visit::{Enrichment, Visit, arrive};
use shortlink_store::Store;

/// The number of batches per read. The edge writes at most 256 events per batch.
const TOGETHER: usize = 64;

/// The interval at which an empty queue is polled.
pub const EVERY: Duration = Duration::from_millis(100);

/// The interval at which a process renews the batches that it is storing.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// The time after which other processes take over batches that were not renewed: their process is
/// dead, or was restarted.
const ABANDONED: Duration = Duration::from_secs(3);

/// The longest time for which batches are renewed in a step. Storing takes some milliseconds; after
/// this time, the database of this process is dead, and that of another may work.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interval at which abandoned batches are taken over. With [`ABANDONED`], it bounds the time
/// for which the visits of a killed process wait for another one.
const TAKE_OVER_EVERY: Duration = Duration::from_secs(1);

/// The interval at which stored batches are trimmed. The live feed resumes from those that are left.
const TRIM_EVERY: Duration = Duration::from_secs(5);

/// The most bytes of an unreadable event in quarantine.
const MAX_POISON_BYTES: usize = 4096;

/// Stores visits.
pub struct VisitWriter {
    /// The queue that they come from.
    pub queue: Arc<dyn VisitQueue>,
    /// The store that they go to.
    pub store: Arc<Store>,
    /// Publishes links that reached their limit of visits.
    pub delivery: Arc<dyn Delivery>,
    /// Converts events to visits.
    pub enrichment: Arc<Enrichment>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The counters of results.
    pub counters: Arc<VisitCounters>,
}

/// Ingestion in progress.
pub struct VisitJob {
    writer: VisitWriter,
    keys: Arc<KeyRing>,
    rng: StdRng,
    /// Events that were read and are not stored yet.
    read: Read,
    /// The next time to take over abandoned batches.
    take_over_at: Instant,
    /// The next time to trim stored batches.
    trim_at: Instant,
}

/// Events that were read from batches.
#[derive(Debug, Default)]
struct Read {
    visits: Vec<Visit>,
    poison: Vec<Poison>,
    ids: Vec<QueuedId>,
    /// The number of events from the future.
    ahead: u64,
    /// There may be more abandoned batches.
    has_left_some: bool,
}

#[async_trait]
impl Job for VisitJob {
    type Error = WriteError;
    const NAME: &'static str = "visits";
    const FAILURE: &'static str = "visits can't be stored; they wait in Redis until they can";

    /// Stores the events of the last read, concurrently with the next read.
    async fn step(&mut self) -> Result<Next, WriteError> {
        let Self {
            writer,
            keys,
            rng,
            read,
            take_over_at,
            trim_at,
        } = self;
        let now = Instant::now();
        let is_trimmed = now >= *trim_at;
        if is_trimmed {
            *trim_at = now + TRIM_EVERY;
        }
        let is_taken_over = now >= *take_over_at;
        if is_taken_over {
            *take_over_at = now + TAKE_OVER_EVERY;
            // Visits of a process that was killed, or whose insertion has failed.
            let idle_ms = ABANDONED.as_millis() as i64;
            let now = writer.clock.now();
            writer.store.flush_abandoned_visits(now, idle_ms).await?;
        }
        let storing = std::mem::take(read);
        let own = is_taken_over.then(|| storing.ids.clone());
        let held = Mutex::new(storing.ids.clone());
        let next = async {
            if is_trimmed {
                writer.queue.trim().await?;
            }
            let next = writer.next(keys, rng, own.as_deref()).await?;
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            held.extend_from_slice(&next.ids);
            Ok::<_, WriteError>(next)
        };
        let work = async { tokio::join!(writer.store(storing), next) };
        let (stored, next) = tokio::select! {
            done = work => done,
            never = writer.renew(&held) => match never {},
        };
        // This or another process later takes over batches that could not be stored.
        let next = next.map(|next| *read = next);
        if read.has_left_some {
            *take_over_at = now;
        }
        stored.and(next)?;
        Ok(if read.ids.is_empty() {
            Next::Idle
        } else {
            Next::Now
        })
    }

    /// Stores the last events; otherwise another process would have to wait until it may take them
    /// over.
    async fn end(&mut self) -> Result<(), WriteError> {
        self.writer.store(std::mem::take(&mut self.read)).await
    }
}

impl VisitWriter {
    /// Prepares the job. New day keys are generated from `rng`.
    pub fn job(self, keys: Arc<KeyRing>, rng: StdRng) -> VisitJob {
        VisitJob {
            writer: self,
            keys,
            rng,
            read: Read::default(),
            take_over_at: Instant::now(),
            trim_at: Instant::now(),
        }
    }

    /// Renews the batches that this process holds. Others take over those that it cannot renew,
    /// which costs time, and stores no visit twice.
    async fn renew(&self, held: &Mutex<Vec<QueuedId>>) -> Infallible {
        let begun = Instant::now();
        let mut beats = tokio::time::interval_at(begun + RENEW_EVERY, RENEW_EVERY);
        loop {
            beats.tick().await;
            if begun.elapsed() < PATIENCE {
                let held = held.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Err(error) = self.queue.renew(&held).await {
                    tracing::debug!(%error, "the claim on visits that are being stored can't be renewed");
                }
            }
        }
    }

    /// Reads the batches in the queue; with `own`, the ids of the batches that this process is
    /// storing, also abandoned ones.
    async fn next(
        &self,
        keys: &KeyRing,
        rng: &mut StdRng,
        own: Option<&[QueuedId]>,
    ) -> Result<Read, WriteError> {
        let mut taken = Vec::new();
        if own.is_some() {
            taken = self.queue.take_over(ABANDONED, TOGETHER).await?;
        }
        let has_left_some = taken.len() >= TOGETHER;
        // After an error, they were not renewed.
        taken.retain(|batch| own.is_none_or(|own| !own.contains(&batch.id)));
        taken.extend(self.queue.take(TOGETHER).await?);
        if taken.is_empty() {
            return Ok(Read::default());
        }
        let now = self.clock.now();
        let live = keys.live(now, rng).await?;
        let enrichment = Arc::clone(&self.enrichment);
        // Each batch takes some hundred microseconds: off the async threads.
        let read = tokio::task::spawn_blocking(move || read(&taken, &enrichment, &live, now));
        let read = read.await.map_err(|_panic| WriteError::Panicked)?;
        let ahead = &self.counters.ahead;
        ahead.fetch_add(read.ahead, Ordering::Relaxed);
        Ok(Read {
            has_left_some,
            ..read
        })
    }

    async fn store(&self, read: Read) -> Result<(), WriteError> {
        if read.ids.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        if !read.poison.is_empty() {
            let count = read.poison.len() as u64;
            self.store.quarantine(read.poison, now).await?;
            self.counters
                .quarantined
                .fetch_add(count, Ordering::Relaxed);
            tracing::warn!(
                count,
                "an entry of the visit queue is not a visit: see visit_quarantine"
            );
        }
        let mut visits = read.visits;
        let together = self.store.visits_together();
        while !visits.is_empty() {
            let rest = visits.split_off(visits.len().min(together));
            let count = visits.len() as u64;
            let hosts: Vec<String> = visits.iter().map(|visit| visit.host.clone()).collect();
            let KeptVisits { new, erased, ended } = self.store.keep_visits(visits, now).await?;
            let kept = new.iter().filter_map(|&place| hosts.get(place));
            self.counters.count_domains(kept.map(String::as_str));
            let new = new.len() as u64;
            self.counters.stored.fetch_add(new, Ordering::Relaxed);
            self.counters
                .repeated
                .fetch_add(count - new - erased, Ordering::Relaxed);
            self.counters.erased.fetch_add(erased, Ordering::Relaxed);
            for code in ended {
                self.end(&code, now).await?;
            }
            visits = rest;
        }
        Ok(self.queue.settle(&read.ids).await?)
    }

    /// Ends a link that reached its limit of visits. Redirects do not wait for this, so a few more
    /// may have got through.
    async fn end(&self, code: &Code, now: Timestamp) -> Result<(), WriteError> {
        let editor = Box::new(move |link: Link| {
            let end = Second::at(now);
            let is_over = link.valid_until.is_some_and(|until| Some(until) <= end);
            if is_over || link.max_visits.is_none() {
                return Edit::Unchanged(link);
            }
            let change = Change {
                valid_until: Some(end),
                // Its validity may lie in the future; now it never starts.
                valid_since: Some(None),
                ..Change::default()
            };
            link.change(&change, now)
        });
        let action = Action::LinkEnd;
        let has_ended = links::end(&self.store, &*self.delivery, code, action, editor).await?;
        let count = u64::from(has_ended);
        self.counters.ended.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }
}

/// Converts batches that are read at `now` to visits.
fn read(batches: &[QueuedBatch], enrichment: &Enrichment, keys: &LiveKeys, now: Timestamp) -> Read {
    let mut read = Read::default();
    for QueuedBatch { id, frames } in batches {
        let poison = |place: usize, reason: String, bytes: &[u8]| Poison {
            id: id.clone(),
            place,
            reason,
            bytes: bytes[..bytes.len().min(MAX_POISON_BYTES)].to_vec(),
        };
        if frames.is_empty() {
            let reason = "the entry has no visits".to_owned();
            read.poison.push(poison(0, reason, &[]));
        }
        for (place, event) in VisitFrames::new(frames).enumerate() {
            match event {
                Ok(event) => {
                    let (event, is_ahead) = arrive(&event, now);
                    read.ahead += u64::from(is_ahead);
                    match enrichment.visit(&event, keys) {
                        Ok(visit) => read.visits.push(visit),
                        Err(fault) => {
                            let mut bytes = Vec::new();
                            event.write(&mut bytes);
                            read.poison.push(poison(place, fault.to_string(), &bytes));
                        }
                    }
                }
                Err(error) => {
                    let (VisitError::Cut(bytes)
                    | VisitError::Version(bytes)
                    | VisitError::Malformed(bytes)) = error;
                    read.poison.push(poison(place, error.to_string(), bytes));
                }
            }
        }
        read.ids.push(id.clone());
    }
    read
}

/// A reason why visits were not stored.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// SQL failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis failed.
    #[error(transparent)]
    Queue(#[from] PublishError),
    /// A bug: reading visits panicked.
    #[error("reading visits has panicked")]
    Panicked,
}

#[cfg(test)]
mod tests;
