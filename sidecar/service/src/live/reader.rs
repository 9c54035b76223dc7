//! Reads the streams while there are listeners.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use shortlink_core::ports::{EntryId, PublishError, TailBatch};
use shortlink_core::visit::visitor::{KeyRing, LiveKeys, day_of};
use tokio::time::Instant;

use super::listener::{MOST_WAITING, Queue};
use super::sieve::{Making, Sieve, missed};
use super::{LiveId, LiveVisits};

/// Batches per read. The edge writes some hundred events per batch.
const TOGETHER: usize = 32;

/// Pause after a read without new batches.
const IDLE: Duration = Duration::from_millis(100);

/// Pause while Redis is unreachable.
const PAUSE: Duration = Duration::from_millis(250);

/// The most reads of a stream for a listener that resumes, and the most visits delivered then:
/// fewer than fit in its queue.
const CATCH_UP_READS: usize = 5;
const MOST_CAUGHT_UP: usize = MOST_WAITING * 3 / 4;

/// Overlap of other streams for a listener that resumes. A position identifies progress in one
/// stream only, so the others are read from so many milliseconds before it. Duplicates are
/// possible.
const OVERLAP_MS: u64 = 1000;

/// Number of look-ups of a day key that does not exist yet, and their interval: the process that
/// stores the first visits of the day creates it within moments.
const KEY_TRIES: u32 = 5;
const KEY_PAUSE: Duration = Duration::from_millis(100);

/// Time after these look-ups during which visits have no visitor id, before the next ones.
const KEYLESS: Duration = Duration::from_secs(10);

/// Reads until the last listener leaves or the feed stops.
pub(super) async fn read_while_listened(feed: &LiveVisits) {
    let mut reader = Reader {
        feed,
        places: None,
        is_away: false,
        sieve: Some(Sieve::new()),
        keys: KeyRing::new(Arc::clone(&feed.parts.keys)),
        keyless_until: Instant::now(),
    };
    let stop = &feed.parts.stop;
    loop {
        let queues = feed.queues.lock().clone();
        if queues.is_empty() {
            return;
        }
        let wait = tokio::select! {
            () = stop.cancelled() => return,
            wait = reader.step(&queues) => wait,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct Reader<'a> {
    feed: &'a LiveVisits,
    /// The last entry that was read of each stream; `None` before the first read.
    places: Option<Vec<EntryId>>,
    is_away: bool,
    /// `None` while a task uses it.
    sieve: Option<Sieve>,
    keys: KeyRing,
    /// Time until which the day key is not looked up.
    keyless_until: Instant,
}

impl Reader<'_> {
    /// Reads new batches; returns the pause before the next read.
    async fn step(&mut self, queues: &[Arc<Queue>]) -> Duration {
        match self.read(queues).await {
            Ok(has_more) if has_more => Duration::ZERO,
            Ok(_) => IDLE,
            Err(error) => {
                if !self.is_away {
                    tracing::warn!(
                        error = &error as &dyn Error,
                        "the live feed of visits is interrupted"
                    );
                }
                self.is_away = true;
                for queue in queues {
                    queue.interrupt();
                }
                PAUSE
            }
        }
    }

    /// Reads new batches; returns true when more may be available at once.
    async fn read(&mut self, queues: &[Arc<Queue>]) -> Result<bool, PublishError> {
        let tail = &self.feed.parts.tail;
        let (joined, newcomers): (Vec<_>, Vec<_>) = queues
            .iter()
            .cloned()
            .partition(|queue| queue.newcomer().is_none());
        if self.is_away || self.places.is_none() {
            self.find_places().await?;
        }
        let mut has_more = false;
        let mut batches = Vec::new();
        for stream in 0..tail.streams() {
            let read = tail.read(stream, self.place(stream), TOGETHER).await?;
            has_more |= read.len() >= TOGETHER;
            batches.extend(read);
        }
        if std::mem::take(&mut self.is_away) {
            tracing::info!("the live feed of visits continues");
            for queue in &joined {
                queue.resume();
            }
        }
        for batch in &batches {
            self.advance(batch);
        }
        let keys = self.live_keys(!batches.is_empty()).await;
        if !batches.is_empty() {
            self.pass(batches, joined, keys.clone()).await;
        }
        for queue in newcomers {
            match queue.newcomer().flatten() {
                Some(after) => self.catch_up(&queue, after).await?,
                None => queue.join(self.end()),
            }
        }
        Ok(has_more)
    }

    /// Starts at the ends of the streams or, after an outage of Redis, at the last positions. A
    /// stream that now ends before its position was replaced or lost its end, and is read from
    /// there.
    async fn find_places(&mut self) -> Result<(), PublishError> {
        let bounds = self.feed.parts.tail.bounds().await?;
        let ends = bounds.iter().map(|bounds| bounds.last);
        self.places = Some(match &self.places {
            Some(places) => places
                .iter()
                .zip(ends)
                .map(|(&place, end)| place.min(end))
                .collect(),
            None => ends.collect(),
        });
        Ok(())
    }

    fn place(&self, stream: u16) -> EntryId {
        let places = self.places.as_deref().unwrap_or_default();
        places.get(usize::from(stream)).copied().unwrap_or_default()
    }

    /// Returns the position behind all visits that were read. All streams were read to their ends
    /// at one time, so the latest entry is enough.
    fn end(&self) -> LiveId {
        let places = (0..).zip(self.places.iter().flatten());
        let latest = places.max_by_key(|(_, entry)| **entry);
        let (stream, entry) = latest.map_or((0, EntryId::default()), |(stream, it)| (stream, *it));
        LiveId {
            stream,
            entry,
            place: u32::MAX,
            rest: 0,
        }
    }

    fn advance(&mut self, batch: &TailBatch) {
        let places = self.places.as_mut();
        if let Some(place) = places.and_then(|places| places.get_mut(usize::from(batch.stream))) {
            *place = batch.entry.max(*place);
        }
    }

    /// Delivers batches to listeners on a blocking thread, since enrichment can take long.
    async fn pass(&mut self, batches: Vec<TailBatch>, queues: Vec<Arc<Queue>>, keys: LiveKeys) {
        let mut sieve = self.sieve.take().unwrap_or_else(Sieve::new);
        let making = self.making(keys);
        let passed = tokio::task::spawn_blocking(move || {
            sieve.pass(&batches, &queues, &making);
            sieve
        });
        match passed.await {
            Ok(sieve) => self.sieve = Some(sieve),
            Err(error) => tracing::error!(%error, "some visits were not delivered to listeners"),
        }
    }

    /// Adds a new listener and delivers the visits after the one it saw last.
    async fn catch_up(&mut self, queue: &Arc<Queue>, after: LiveId) -> Result<(), PublishError> {
        let tail = &self.feed.parts.tail;
        let from = |stream| {
            if stream == after.stream {
                after.entry
            } else {
                EntryId {
                    ms: after.entry.ms.saturating_sub(OVERLAP_MS),
                    number: 0,
                }
            }
        };
        let mut is_whole = after.stream < tail.streams();
        let mut batches: Vec<TailBatch> = Vec::new();
        for stream in 0..tail.streams() {
            let end = self.place(stream);
            // The entry itself may hold further visits.
            let mut at = from(stream).before();
            let mut reads = 0;
            while at < end {
                if reads == CATCH_UP_READS {
                    is_whole = false;
                    break;
                }
                let read = tail.read(stream, at, TOGETHER).await?;
                reads += 1;
                let Some(last) = read.last() else { break };
                at = last.entry;
                let is_due = |batch: &TailBatch| batch.entry <= end;
                batches.extend(read.into_iter().filter(is_due));
            }
        }
        // Queried afterwards: entries that still exist also existed during the read.
        for (stream, bounds) in (0..).zip(tail.bounds().await?) {
            let from = from(stream);
            let has_entry = bounds.first.is_some_and(|first| first <= from);
            let was_last = from >= self.place(stream) || bounds.last <= from;
            let was_told = stream != after.stream || after.rest == 0;
            is_whole &= has_entry || (was_last && was_told);
        }
        batches.sort_by_key(|batch| batch.entry);
        let keys = self.live_keys(!batches.is_empty()).await;
        let making = self.making(keys);
        let filter = queue.filter.clone();
        let missed = tokio::task::spawn_blocking(move || {
            missed(&batches, after, MOST_CAUGHT_UP, &filter, &making)
        });
        let (visits, is_all) = missed.await.unwrap_or_default();
        queue.join(after);
        if !(is_whole && is_all) {
            queue.note_gap();
        }
        for visit in visits {
            queue.put(visit);
        }
        Ok(())
    }

    fn making(&self, keys: LiveKeys) -> Making {
        Making {
            enrichment: Arc::clone(&self.feed.parts.enrichment),
            keys,
            now: self.feed.parts.clock.now(),
        }
    }

    /// Returns the day keys. Without them, visits have no visitor id.
    async fn live_keys(&mut self, has_visits: bool) -> LiveKeys {
        let clock = &self.feed.parts.clock;
        let held = self.keys.held(clock.now());
        if !has_visits || held.has(day_of(clock.now())) || Instant::now() < self.keyless_until {
            return held;
        }
        for attempt in 0..KEY_TRIES {
            if attempt > 0 {
                tokio::time::sleep(KEY_PAUSE).await;
            }
            match self.keys.known(clock.now()).await {
                Ok(keys) if keys.has(day_of(clock.now())) => return keys,
                Ok(_) => {}
                // Visits matter more than visitor ids.
                Err(_away) => break,
            }
        }
        self.keyless_until = Instant::now() + KEYLESS;
        self.keys.held(clock.now())
    }
}
