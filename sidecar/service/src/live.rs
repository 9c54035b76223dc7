//! The live feed of visits for listeners.
//!
//! Each sidecar reads the streams for its own listeners, independently of the consumers that store
//! visits. So it does not matter which of several sidecars stores a batch. Nothing is read without
//! listeners, and nothing is ever written. The cost of the feed is bounded: the number of
//! listeners, the queue of each, and the number of visits that are enriched.

mod filter;
mod id;
mod listener;
mod reader;
mod sieve;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use filter::LiveFilter;
pub use id::LiveId;
use listener::Queue;
pub use listener::{Listener, Told};
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::ports::VisitTail;
use shortlink_core::visit::visitor::DayKeys;
use shortlink_core::visit::{Enrichment, Visit};

/// A visit in the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveVisit {
    /// Its position, from which a listener can resume.
    pub id: LiveId,
    /// The visit.
    pub visit: Visit,
}

/// Limits on the cost of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveLimits {
    /// The most concurrent listeners.
    pub listeners: usize,
    /// The most of them with the same API key.
    pub per_key: usize,
    /// The most visits per second for a listener, and the burst after a pause.
    pub visits_per_s: u32,
}

impl LiveLimits {
    /// Checks whether one more place is left for an API key beside the keys of the places that are taken.
    pub(crate) fn check_place<'a>(
        &self,
        taken: impl Iterator<Item = &'a str>,
        key_id: &str,
    ) -> Result<(), Full> {
        let (mut all, mut of_key) = (0, 0);
        for key in taken {
            all += 1;
            of_key += usize::from(key == key_id);
        }
        match (all >= self.listeners, of_key >= self.per_key) {
            (true, _) => Err(Full::All),
            (_, true) => Err(Full::OfKey),
            _ => Ok(()),
        }
    }
}

/// Dependencies of the feed.
pub struct LiveParts {
    /// Source of visits.
    pub tail: Arc<dyn VisitTail>,
    /// Day keys, from which visitor ids are derived. The feed creates none.
    pub keys: Arc<dyn DayKeys>,
    /// Converts events to visits.
    pub enrichment: Arc<Enrichment>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Limits.
    pub limits: LiveLimits,
    /// Ends the feed for all listeners.
    pub stop: CancellationToken,
}

/// The limit that leaves no place for a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All places are taken.
    All,
    /// All places of its API key are taken.
    OfKey,
}

/// The live feed.
pub struct LiveVisits {
    parts: LiveParts,
    queues: Mutex<Vec<Arc<Queue>>>,
    /// Notified when a listener joins.
    came: Notify,
}

impl LiveVisits {
    /// Returns a feed without listeners. It delivers nothing until [`LiveVisits::run`] runs.
    pub fn new(parts: LiveParts) -> Self {
        Self {
            parts,
            queues: Mutex::default(),
            came: Notify::new(),
        }
    }

    /// Adds a listener with an API key for the visits that match a filter: from now on, or after an earlier visit.
    ///
    /// # Errors
    /// Fails when a limit on listeners is reached.
    pub fn listen(
        self: &Arc<Self>,
        key_id: &str,
        filter: LiveFilter,
        after: Option<LiveId>,
    ) -> Result<Listener, Full> {
        let limits = self.parts.limits;
        let queue = Queue::new(key_id, filter, after, limits.visits_per_s);
        let queue = Arc::new(queue);
        {
            let mut queues = self.queues.lock();
            limits.check_place(queues.iter().map(|queue| &*queue.key_id), key_id)?;
            queues.push(Arc::clone(&queue));
        }
        self.came.notify_one();
        Ok(Listener::new(Arc::clone(self), queue))
    }

    /// Returns the number of listeners.
    pub fn listeners(&self) -> usize {
        self.queues.lock().len()
    }

    /// Reads the streams while there are listeners, until the feed is stopped.
    #[boxed]
    pub async fn run(self: Arc<Self>) {
        let stop = &self.parts.stop;
        while !stop.is_cancelled() {
            if self.listeners() > 0 {
                reader::read_while_listened(&self).await;
                self.parts.tail.close();
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.came.notified() => {}
            }
        }
    }

    fn leave(&self, queue: &Arc<Queue>) {
        self.queues
            .lock()
            .retain(|other| !Arc::ptr_eq(other, queue));
    }
}

#[cfg(test)]
mod tests;
