//! The feed: all visits in the order in which they were stored.
//!
//! Its order is that of exports ([`Store::visits_to_export`]): a visit is read only once no other can appear before it.
//! To find out, PostgreSQL waits for the transactions that store visits, and makes others wait. So this process asks
//! once for all readers, only after new numbers were taken, and for at most a tenth of the time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shortlink_core::boxed;
use shortlink_core::ports::{ExportedVisit, StoreError};
use shortlink_store::Store;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::live::{Full, LiveLimits};

/// The shortest time between two looks for new visits.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The pause after a look, in the time that the look took.
const PAUSES: u32 = 9;

/// The feed of stored visits.
pub struct VisitFeed {
    store: Arc<Store>,
    limits: LiveLimits,
    stop: CancellationToken,
    known: tokio::sync::Mutex<Known>,
    /// The keys of the requests that wait.
    waiting: Mutex<Vec<String>>,
}

/// The result of the last look.
struct Known {
    /// The number up to which all visits are stored.
    last: i64,
    /// The time of the next look.
    next_look: Instant,
}

/// A place among the requests that wait.
pub struct Place {
    feed: Arc<VisitFeed>,
    key_id: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.feed.waiting.lock();
        if let Some(place) = waiting.iter().position(|it| *it == self.key_id) {
            waiting.swap_remove(place);
        }
    }
}

/// The result of reading.
#[derive(Debug)]
pub enum Reading {
    /// Visits, of which erased ones are left out.
    Page(FeedPage),
    /// No visit was stored behind the position.
    End,
    /// No visit has the number of the position yet: the database is an older copy.
    Ahead,
}

/// Visits of the feed, and the position behind them.
#[derive(Debug, Default)]
pub struct FeedPage {
    /// The visits in their order.
    pub visits: Vec<ExportedVisit>,
    /// The number of the last visit that was examined.
    pub next: i64,
}

impl VisitFeed {
    /// A feed of visits; `stop` ends all waits. Of the limits, those of listeners hold for requests that wait.
    pub fn new(store: Arc<Store>, limits: LiveLimits, stop: CancellationToken) -> Self {
        let known = Known {
            last: 0,
            next_look: Instant::now(),
        };
        Self {
            store,
            limits,
            stop,
            known: known.into(),
            waiting: Mutex::default(),
        }
    }

    /// Takes a place among the requests that wait.
    ///
    /// # Errors
    /// If no place is left.
    pub fn place(self: &Arc<Self>, key_id: &str) -> Result<Place, Full> {
        let mut waiting = self.waiting.lock();
        let taken = waiting.iter().map(String::as_str);
        self.limits.check_place(taken, key_id)?;
        waiting.push(key_id.to_owned());
        Ok(Place {
            feed: Arc::clone(self),
            key_id: key_id.to_owned(),
        })
    }

    /// Returns the number up to which all visits are stored. Visits that are stored later have greater numbers.
    #[boxed]
    pub async fn last(&self) -> Result<i64, StoreError> {
        self.last_beyond(i64::MAX).await
    }

    /// As [`VisitFeed::last`], but of an earlier look, if there are visits behind `after` since then.
    async fn last_beyond(&self, after: i64) -> Result<i64, StoreError> {
        let mut known = self.known.lock().await;
        if known.last > after || Instant::now() < known.next_look {
            return Ok(known.last);
        }
        let begun = Instant::now();
        if self.store.last_visit_number().await? != known.last {
            known.last = self.store.visits_to_export().await?.stored;
        }
        known.next_look = Instant::now() + LOOK_EVERY.max(begun.elapsed() * PAUSES);
        Ok(known.last)
    }

    /// Reads the visits behind the number `after`, at most `limit` of them.
    #[boxed]
    pub async fn read(&self, after: i64, limit: u32) -> Result<Reading, StoreError> {
        let last = self.last_beyond(after).await?;
        if last <= after {
            // Another sidecar may know of later visits already.
            let is_ahead = last < after && self.store.last_visit_number().await? < after;
            return Ok(if is_ahead {
                Reading::Ahead
            } else {
                Reading::End
            });
        }
        let visits = self.store.exported_visits(after, last, limit).await?;
        let is_full = visits.len() >= limit as usize;
        let next = visits.last().filter(|_| is_full);
        let next = next.map_or(last, |it| it.visit.number);
        Ok(Reading::Page(FeedPage { visits, next }))
    }

    /// Waits until it is worth reading again; `false` if the process stops.
    #[boxed]
    pub async fn wait(&self, until: Instant) -> bool {
        let next_look = self.known.lock().await.next_look;
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep_until(next_look.min(until)) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use shortlink_store::testing::TemporaryStore;

    use super::*;

    #[tokio::test]
    async fn places_are_bounded_and_come_back() {
        let kept = TemporaryStore::new().await;
        let limits = LiveLimits {
            listeners: 3,
            per_key: 2,
            visits_per_s: 1,
        };
        let feed = VisitFeed::new(Arc::clone(&kept.store), limits, CancellationToken::new());
        let feed = Arc::new(feed);
        let one = feed.place("a").expect("a place");
        let _two = feed.place("a").expect("a place");
        assert_eq!(feed.place("a").err(), Some(Full::OfKey));
        let _three = feed.place("b").expect("a place");
        assert_eq!(feed.place("c").err(), Some(Full::All));
        drop(one);
        let _four = feed.place("a").expect("a place");
        assert_eq!(feed.place("c").err(), Some(Full::All));
    }
}
