use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use jiff::SignedDuration;
use rand::SeedableRng;
use shortlink_core::ports::{Publisher, QueueDepth, VisitListing};
use shortlink_core::testing::{ManualClock, MemoryPublisher, enrichment, eventually, link};
use shortlink_store::testing::TemporaryStore;
use tokio_util::sync::CancellationToken;
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitEvent, VisitId, VisitMethod};

use super::*;
use crate::jobs::Run;
use crate::outbox::outbox;
use crate::retention::{self, Retention, RetentionPeriods};
use crate::testing::claims;

/// A queue in memory that can lose settlements.
#[derive(Default)]
struct MemoryQueue {
    waiting: Mutex<VecDeque<QueuedBatch>>,
    settled: Mutex<Vec<QueuedId>>,
    renewed: Mutex<Vec<QueuedId>>,
    /// Batches that count as abandoned.
    abandoned: Mutex<Vec<QueuedBatch>>,
    /// Settling waits until batches are renewed.
    is_slow: AtomicBool,
    is_away: AtomicBool,
}

impl MemoryQueue {
    fn put(&self, entry: &str, frames: Vec<u8>) {
        let id = QueuedId {
            shard: 0,
            entry: entry.to_owned(),
        };
        let mut waiting = self.waiting.lock().expect("no holder panics");
        waiting.push_back(QueuedBatch { id, frames });
    }

    fn settled(&self) -> Vec<String> {
        let settled = self.settled.lock().expect("no holder panics");
        settled.iter().map(|id| id.entry.clone()).collect()
    }
}

#[async_trait]
impl VisitQueue for MemoryQueue {
    async fn take(&self, most: usize) -> Result<Vec<QueuedBatch>, PublishError> {
        let mut waiting = self.waiting.lock().expect("no holder panics");
        let most = most.min(waiting.len());
        Ok(waiting.drain(..most).collect())
    }

    async fn take_over(
        &self,
        _idle: Duration,
        _most: usize,
    ) -> Result<Vec<QueuedBatch>, PublishError> {
        let mut abandoned = self.abandoned.lock().expect("no holder panics");
        Ok(std::mem::take(&mut *abandoned))
    }

    async fn renew(&self, batches: &[QueuedId]) -> Result<(), PublishError> {
        *self.renewed.lock().expect("no holder panics") = batches.to_vec();
        Ok(())
    }

    async fn settle(&self, batches: &[QueuedId]) -> Result<(), PublishError> {
        if self.is_slow.load(Ordering::SeqCst) {
            let renewed = async || !self.renewed.lock().expect("no holder panics").is_empty();
            eventually("batches are renewed", renewed).await;
        }
        if self.is_away.load(Ordering::SeqCst) {
            let operation = "settle visits";
            return Err(PublishError::Away { operation });
        }
        let mut settled = self.settled.lock().expect("no holder panics");
        settled.extend_from_slice(batches);
        Ok(())
    }

    async fn forget_readers(&self, _idle: Duration) -> Result<(), PublishError> {
        Ok(())
    }

    async fn trim(&self) -> Result<(), PublishError> {
        Ok(())
    }

    async fn depth(&self) -> Result<QueueDepth, PublishError> {
        Ok(QueueDepth::default())
    }
}

struct Scene {
    kept: TemporaryStore,
    redis: Arc<MemoryPublisher>,
    queue: Arc<MemoryQueue>,
    writer: VisitWriter,
    keys: KeyRing,
    rng: StdRng,
}

const NOW: &str = "2026-06-01T12:00:00Z";

impl Scene {
    async fn new() -> Self {
        let kept = TemporaryStore::new().await;
        let redis = Arc::new(MemoryPublisher::default());
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(NOW));
        let publisher: Arc<dyn Publisher> = Arc::clone(&redis) as _;
        let (outbox, _worker) = outbox(Arc::clone(&kept.store), publisher, Arc::clone(&clock));
        let queue = Arc::new(MemoryQueue::default());
        let writer = VisitWriter {
            queue: Arc::clone(&queue) as _,
            store: Arc::clone(&kept.store),
            delivery: Arc::new(outbox),
            enrichment: Arc::new(enrichment()),
            clock,
            counters: Arc::default(),
        };
        Self {
            keys: KeyRing::new(Arc::clone(&kept.store) as _),
            kept,
            redis,
            queue,
            writer,
            rng: StdRng::seed_from_u64(1),
        }
    }

    async fn round(&mut self) -> Result<usize, WriteError> {
        let read = self.writer.next(&self.keys, &mut self.rng, None).await?;
        let count = read.ids.len();
        self.writer.store(read).await?;
        Ok(count)
    }

    async fn visits(&self) -> usize {
        let listing = VisitListing {
            limit: 1000,
            ..VisitListing::default()
        };
        let visits = self.kept.store.list_visits(&listing).await;
        visits.expect("a working store").items.len()
    }

    fn counted(&self) -> [u64; 4] {
        let counters = &self.writer.counters;
        [
            &counters.stored,
            &counters.repeated,
            &counters.quarantined,
            &counters.ended,
        ]
        .map(|counter| counter.load(Ordering::Relaxed))
    }
}

fn frame(sequence: u64, code: &str) -> Vec<u8> {
    // At noon.
    frame_at(1_780_315_200_000, sequence, code)
}

fn frame_at(time_ms: u64, sequence: u64, code: &str) -> Vec<u8> {
    let mut frames = Vec::new();
    let event = VisitEvent {
        id: VisitId {
            origin: 7,
            sequence,
        },
        time_ms,
        status: 302,
        method: VisitMethod::Get,
        code: code.as_bytes(),
        host: b"s.example.com",
        client: b"192.0.2.7",
        user_agent: b"Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 \
            (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1",
        referrer: b"",
        accept_language: b"de",
        purpose: b"",
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: b"",
    };
    event.write(&mut frames);
    frames
}

#[tokio::test]
async fn visits_are_stored_and_then_settled() {
    let mut scene = Scene::new().await;
    scene
        .queue
        .put("1-0", [frame(0, "abc"), frame(1, "abd")].concat());
    scene.queue.put("2-0", frame(2, "abc"));
    assert_eq!(scene.round().await.expect("all servers work"), 2);
    assert_eq!(scene.visits().await, 3);
    assert_eq!(scene.queue.settled(), ["1-0", "2-0"]);
    assert_eq!(scene.round().await.expect("all servers work"), 0);
    assert_eq!(scene.counted(), [3, 0, 0, 0]);
}

#[tokio::test]
async fn what_could_not_be_settled_comes_again_and_is_stored_once() {
    let mut scene = Scene::new().await;
    scene.queue.put("1-0", frame(0, "abc"));
    scene.queue.is_away.store(true, Ordering::SeqCst);
    assert!(scene.round().await.is_err());
    scene.queue.is_away.store(false, Ordering::SeqCst);
    scene.queue.put("1-0", frame(0, "abc"));
    scene.round().await.expect("all servers work");
    assert_eq!((scene.visits().await, scene.counted()), (1, [1, 1, 0, 0]));
    assert_eq!(scene.queue.settled(), ["1-0"]);
}

#[tokio::test]
async fn poison_goes_to_quarantine_and_keeps_nothing_back() {
    let mut scene = Scene::new().await;
    let mut later = frame(5, "abc");
    // The byte after the length, which takes two bytes.
    later[2] = 9;
    let cut = frame(6, "abc");
    let whole = frame(8, "abc");
    let endless = VisitEvent {
        id: VisitId {
            origin: 7,
            sequence: 8,
        },
        time_ms: u64::MAX,
        ..VisitFrames::new(&whole)
            .next()
            .expect("a frame")
            .expect("an event")
    };
    let mut beyond = Vec::new();
    endless.write(&mut beyond);
    scene.queue.put("1-0", Vec::new());
    let batch = [
        frame(0, "abc"),
        later,
        frame(1, "abc"),
        beyond,
        cut[..9].to_vec(),
    ];
    scene.queue.put("2-0", batch.concat());
    scene.queue.put("3-0", b"\xff\xff nonsense".to_vec());
    scene.queue.put("4-0", frame(2, "abc"));
    assert_eq!(scene.round().await.expect("all servers work"), 4);
    assert_eq!((scene.visits().await, scene.counted()), (3, [3, 0, 5, 0]));
    assert_eq!(scene.queue.settled(), ["1-0", "2-0", "3-0", "4-0"]);
}

#[tokio::test]
async fn a_visit_from_the_future_is_one_of_now() {
    let mut scene = Scene::new().await;
    let now: Timestamp = NOW.parse().expect("a moment");
    let ms = |at: Timestamp| u64::try_from(at.as_millisecond()).expect("after 1970");
    let slightly = now + SignedDuration::from_secs(59);
    let centuries = now + SignedDuration::from_hours(24 * 365 * 300);
    let frames = [now, slightly, centuries].map(ms);
    let frames = (0..).zip(frames).map(|(n, at)| frame_at(at, n, "abc"));
    scene.queue.put("1-0", frames.collect::<Vec<_>>().concat());
    scene.round().await.expect("all servers work");
    let listing = VisitListing {
        limit: 10,
        ..VisitListing::default()
    };
    let visits = scene.kept.store.list_visits(&listing).await;
    let visits = visits.expect("a working store").items;
    let times: Vec<Timestamp> = visits.iter().rev().map(|visit| visit.at).collect();
    assert_eq!(times, [now, slightly, now]);
    let ahead = scene.writer.counters.ahead.load(Ordering::Relaxed);
    assert_eq!((ahead, scene.counted()), (1, [3, 0, 0, 0]));
}

#[tokio::test]
async fn a_link_is_ended_when_it_was_visited_often_enough() {
    let mut scene = Scene::new().await;
    let once = Link {
        max_visits: NonZeroU64::new(2),
        ..link("twice")
    };
    let created = scene.kept.store.create_links(vec![once]).await;
    created.expect("a working store");
    scene.queue.put("1-0", frame(0, "twice"));
    scene.round().await.expect("all servers work");
    assert_eq!(scene.redis.record("twice"), None);
    scene.queue.put("2-0", frame(1, "twice"));
    scene.queue.put("3-0", frame(2, "twice"));
    scene.round().await.expect("all servers work");
    let code = "twice".parse().expect("a code");
    let link = scene.kept.store.find_link(&code).await.expect("a store");
    let link = link.expect("the link");
    let now: Timestamp = NOW.parse().expect("a moment");
    assert_eq!(link.state(now), shortlink_core::link::State::Expired);
    let record = scene.redis.record("twice").expect("a record");
    assert_eq!(record, "1 302 2 1780315200 https://example.com/a");
    // Later visits change nothing more.
    scene.queue.put("4-0", frame(3, "twice"));
    scene.round().await.expect("all servers work");
    assert_eq!(scene.counted(), [4, 0, 0, 1]);
}

#[tokio::test]
async fn visits_are_stored_while_old_ones_are_deleted() {
    const OLD: u64 = 20_000;
    let mut scene = Scene::new().await;
    for batch in 0..4 {
        let sequences = batch * OLD / 4..(batch + 1) * OLD / 4;
        let frames: Vec<_> = sequences
            .map(|sequence| frame_at(1_700_000_000_000, sequence, "abc"))
            .collect();
        scene.queue.put(&format!("{batch}-0"), frames.concat());
    }
    scene.round().await.expect("all servers work");
    let counters = Arc::clone(&scene.writer.counters);
    let deleted = || counters.forgotten.load(Ordering::Relaxed);
    let clock = Arc::new(ManualClock::at(NOW));
    let periods = RetentionPeriods {
        visits: Some(SignedDuration::from_hours(24 * 30)),
        ..RetentionPeriods::default()
    };
    let retention = Retention::new(
        Arc::clone(&scene.kept.store),
        Arc::clone(&clock) as _,
        Arc::clone(&counters),
        periods,
    );
    let run = Run::new(retention, &claims(&scene.kept.store, &clock, "one"));
    let shutdown = CancellationToken::new();
    let job = tokio::spawn(run.forever(retention::EVERY, shutdown.clone()));
    eventually("the first are deleted", async || deleted() > 0).await;
    scene.queue.put("9-0", frame(OLD, "abc"));
    assert_eq!(scene.round().await.expect("all servers work"), 1);
    assert_eq!(scene.counted()[0], OLD + 1);
    assert!(deleted() < OLD, "{}", deleted());
    eventually("all are deleted", async || deleted() == OLD).await;
    assert_eq!(scene.visits().await, 1);
    shutdown.cancel();
    job.await.expect("no panic");
}

#[tokio::test]
async fn the_job_stores_what_comes_and_at_its_end_what_it_has_read() {
    let scene = Scene::new().await;
    let mut job = scene.writer.job(Arc::new(scene.keys), scene.rng);
    scene.queue.put("1-0", frame(0, "abc"));
    assert_eq!(job.step().await.expect("all servers work"), Next::Now);
    assert_eq!(scene.queue.settled(), [""; 0]);
    scene.queue.put("2-0", frame(1, "abc"));
    assert_eq!(job.step().await.expect("all servers work"), Next::Now);
    assert_eq!(scene.queue.settled(), ["1-0"]);
    job.end().await.expect("all servers work");
    assert_eq!(scene.queue.settled(), ["1-0", "2-0"]);
    assert_eq!(job.step().await.expect("all servers work"), Next::Idle);
}

#[tokio::test]
async fn what_is_stored_slowly_is_renewed_with_what_was_read_meanwhile() {
    let scene = Scene::new().await;
    let mut job = scene.writer.job(Arc::new(scene.keys), scene.rng);
    for entry in 1..=3 {
        scene.queue.put(&format!("{entry}-0"), frame(entry, "abc"));
        scene.queue.is_slow.store(entry == 3, Ordering::SeqCst);
        assert_eq!(job.step().await.expect("all servers work"), Next::Now);
    }
    let renewed = scene
        .queue
        .renewed
        .lock()
        .expect("no holder panics")
        .clone();
    let renewed: Vec<&str> = renewed.iter().map(|id| id.entry.as_str()).collect();
    assert_eq!(renewed, ["2-0", "3-0"]);
    assert_eq!(scene.queue.settled(), ["1-0", "2-0"]);
}

#[tokio::test]
async fn a_process_takes_nothing_over_from_itself_that_it_is_storing() {
    let scene = Scene::new().await;
    let counters = Arc::clone(&scene.writer.counters);
    let mut job = scene.writer.job(Arc::new(scene.keys), scene.rng);
    scene.queue.put("1-0", frame(1, "abc"));
    assert_eq!(job.step().await.expect("all servers work"), Next::Now);
    let batch = |entry: u64| QueuedBatch {
        id: QueuedId {
            shard: 0,
            entry: format!("{entry}-0"),
        },
        frames: frame(entry, "abc"),
    };
    let abandoned = vec![batch(1), batch(2)];
    *scene.queue.abandoned.lock().expect("no holder panics") = abandoned;
    job.take_over_at = Instant::now();
    for next in [Next::Now, Next::Idle] {
        assert_eq!(job.step().await.expect("all servers work"), next);
    }
    assert_eq!(scene.queue.settled(), ["1-0", "2-0"]);
    assert_eq!(counters.repeated.load(Ordering::Relaxed), 0);
}
