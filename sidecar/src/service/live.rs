//! The live feed of visits: what somebody who looks on is told while it happens.
//!
//! Each sidecar reads the streams itself for those who listen to it, beside whoever stores visits:
//! so it does not matter to which of several sidecars a batch is given to be stored. Nothing is
//! read while nobody listens, and nothing is ever written. What the feed costs is bounded: the
//! number of listeners, what waits for each of them, and how many visits are looked at closely.

mod filter;
mod id;
mod listener;
mod reader;
mod sieve;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::core::ports::VisitTail;
use crate::core::visit::visitor::DayKeys;
use crate::core::visit::{Enrichment, Visit};
pub use filter::LiveFilter;
pub use id::LiveId;
use listener::Queue;
pub use listener::{Listener, Told};

/// A visit that listeners are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveVisit {
    /// Where it stands, so that a listener can go on behind it.
    pub id: LiveId,
    /// The visit.
    pub visit: Visit,
}

/// How much the feed may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveLimits {
    /// How many may listen at a time.
    pub listeners: usize,
    /// How many visits a listener is told of in a second, and at once after a pause.
    pub visits_per_s: u32,
}

/// What the feed works with.
pub struct LiveParts {
    /// Where visits are read.
    pub tail: Arc<dyn VisitTail>,
    /// The keys of the days, which visitors' ids come from. None is made.
    pub keys: Arc<dyn DayKeys>,
    /// What makes visits of events.
    pub enrichment: Arc<Enrichment>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// How much it may cost.
    pub limits: LiveLimits,
    /// Ends all listening.
    pub stop: CancellationToken,
}

/// The feed.
pub struct LiveVisits {
    parts: LiveParts,
    queues: Mutex<Vec<Arc<Queue>>>,
    /// Told when somebody begins to listen.
    came: Notify,
}

impl LiveVisits {
    /// A feed that nobody listens to yet. It tells nothing unless [`LiveVisits::run`] is running.
    pub fn new(parts: LiveParts) -> Self {
        Self {
            parts,
            queues: Mutex::default(),
            came: Notify::new(),
        }
    }

    /// Begins to listen to what fulfils a filter: from now on, or from behind a visit that was
    /// told of earlier. `None` when as many listen as may.
    pub fn listen(self: &Arc<Self>, filter: LiveFilter, after: Option<LiveId>) -> Option<Listener> {
        let queue = Arc::new(Queue::new(filter, after, self.parts.limits.visits_per_s));
        {
            let mut queues = self.queues();
            if queues.len() >= self.parts.limits.listeners {
                return None;
            }
            queues.push(Arc::clone(&queue));
        }
        self.came.notify_one();
        Some(Listener::new(Arc::clone(self), queue))
    }

    /// How many listen.
    pub fn listeners(&self) -> usize {
        self.queues().len()
    }

    /// Reads for those who listen, until all listening is ended.
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
        self.queues().retain(|other| !Arc::ptr_eq(other, queue));
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Arc<Queue>>> {
        // The list is in order between any two steps.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests;
