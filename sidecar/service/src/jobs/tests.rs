use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use shortlink_core::clock::SystemClock;
use shortlink_core::testing::{ManualClock, eventually};
use shortlink_store::Claim;
use shortlink_store::Store;
use shortlink_store::testing::{TemporaryStore, break_claims};

use super::*;
use crate::testing::claims;

fn claims_of(kept: &TemporaryStore, holder: &str) -> Claims {
    claims(&kept.store, &Arc::new(SystemClock), holder)
}

/// Works in one step until the test ends it.
#[derive(Default)]
struct Slow {
    begun: Arc<AtomicU32>,
    ended: Arc<AtomicU32>,
    is_done: CancellationToken,
}

#[async_trait]
impl Job for Slow {
    type Error = StoreError;
    const NAME: &'static str = "slow";
    const FAILURE: &'static str = "it can't be slow";
    const LEASE: Option<Duration> = Some(Duration::from_secs(3));

    async fn begin(&mut self) -> Result<(), StoreError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, StoreError> {
        self.is_done.cancelled().await;
        Ok(Next::Idle)
    }

    async fn end(&mut self) -> Result<(), StoreError> {
        self.ended.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// One whose steps are done at once.
fn quick() -> Slow {
    let job = Slow::default();
    job.is_done.cancel();
    job
}

async fn until_begun(begun: &AtomicU32, times: u32) {
    let has_begun = async || begun.load(Ordering::SeqCst) == times;
    eventually("it has begun", has_begun).await;
}

async fn claim(store: &Arc<Store>, holder: &str) -> bool {
    let claimed = store.claim(Slow::NAME, holder, 1, None).await;
    claimed.expect("a working store") == Claim::Ours
}

#[tokio::test]
async fn a_claim_is_renewed_while_a_step_runs_and_released_at_the_end() {
    let kept = TemporaryStore::new().await;
    let slow = Slow::default();
    let (begun, is_done) = (Arc::clone(&slow.begun), slow.is_done.clone());
    let mut run = Run::new(slow, &claims_of(&kept, "one"));
    let shutdown = CancellationToken::new();
    let others = async {
        until_begun(&begun, 1).await;
        // Twice the lease.
        let asked_until = Instant::now() + 2 * Slow::LEASE.expect("a lease");
        while Instant::now() < asked_until {
            assert!(!claim(&kept.store, "two").await);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        is_done.cancel();
    };
    let mut report = |_: Option<&Slow>| {};
    let finish = run.finish(Duration::ZERO, &shutdown, &mut report);
    let (outcome, ()) = tokio::join!(finish, others);
    assert_eq!(outcome.expect("a working store"), Outcome::Done);
    assert_eq!(run.job.ended.load(Ordering::SeqCst), 1);
    assert!(claim(&kept.store, "two").await);
}

#[tokio::test]
async fn a_step_is_cut_off_when_the_claim_is_lost_and_the_job_begins_again() {
    let kept = TemporaryStore::new().await;
    let slow = Slow::default();
    let (begun, ended) = (Arc::clone(&slow.begun), Arc::clone(&slow.ended));
    let run = Run::new(slow, &claims_of(&kept, "one"));
    let shutdown = CancellationToken::new();
    let every = Duration::from_millis(100);
    let job = tokio::spawn(run.forever(every, shutdown.clone()));
    until_begun(&begun, 1).await;
    // As if its process had stood still for longer than the lease.
    let released = kept.store.release(Slow::NAME, "one").await;
    released.expect("a working store");
    assert!(claim(&kept.store, "two").await);
    until_begun(&begun, 2).await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    job.abort();
}

#[tokio::test]
async fn a_renewal_that_fails_is_tried_again_while_the_claim_is_valid() {
    let kept = TemporaryStore::new().await;
    let slow = Slow::default();
    let (begun, is_done) = (Arc::clone(&slow.begun), slow.is_done.clone());
    let mut run = Run::new(slow, &claims_of(&kept, "one"));
    let shutdown = CancellationToken::new();
    let outage = async {
        until_begun(&begun, 1).await;
        break_claims(&kept.url, true).await;
        // The first renewal comes after a third of the lease.
        tokio::time::sleep(Slow::LEASE.expect("a lease") / 2).await;
        break_claims(&kept.url, false).await;
        is_done.cancel();
    };
    let mut report = |_: Option<&Slow>| {};
    let finish = run.finish(Duration::ZERO, &shutdown, &mut report);
    let (outcome, ()) = tokio::join!(finish, outage);
    assert_eq!(outcome.expect("a working store"), Outcome::Done);
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_command_is_patient_while_it_can_t_claim_its_job() {
    let kept = TemporaryStore::new().await;
    let mut run = Run::new(quick(), &claims_of(&kept, "one"));
    let shutdown = CancellationToken::new();
    break_claims(&kept.url, true).await;
    let outcome = run.finish(Duration::ZERO, &shutdown, &mut |_| {}).await;
    assert_eq!(outcome.expect_err("a failure").operation, "claim a task");
    let outage = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        break_claims(&kept.url, false).await;
    };
    let mut report = |_: Option<&Slow>| {};
    let finish = run.finish(Duration::from_secs(10), &shutdown, &mut report);
    let (outcome, ()) = tokio::join!(finish, outage);
    assert_eq!(outcome.expect("a working store"), Outcome::Done);
}

#[tokio::test]
async fn a_step_is_cut_off_soon_after_shutdown_and_its_position_noted() {
    let kept = TemporaryStore::new().await;
    let run = &mut Run::new(Slow::default(), &claims_of(&kept, "one"));
    let shutdown = CancellationToken::new();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        shutdown.cancel();
    };
    let mut report = |_: Option<&Slow>| {};
    let finish = run.finish(Duration::ZERO, &shutdown, &mut report);
    let finish = tokio::time::timeout(Duration::from_secs(20), finish);
    let (outcome, ()) = tokio::join!(finish, stop);
    let outcome = outcome.expect("an end").expect("a working store");
    assert_eq!(outcome, Outcome::Stopped);
    assert_eq!(run.job.ended.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn nothing_is_noted_without_the_claim() {
    let kept = TemporaryStore::new().await;
    let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
    let mut run = Run::new(quick(), &claims(&kept.store, &clock, "one"));
    assert!(matches!(run.attempt().await, Turn::Done(Next::Idle)));
    let released = kept.store.release(Slow::NAME, "one").await;
    released.expect("a working store");
    assert!(claim(&kept.store, "two").await);
    run.stop().await;
    assert_eq!(run.job.ended.load(Ordering::SeqCst), 0);
    assert!(!claim(&kept.store, "one").await);
}

#[tokio::test]
async fn a_job_begins_again_when_its_claim_had_expired() {
    let kept = TemporaryStore::new().await;
    let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
    let mut run = Run::new(quick(), &claims(&kept.store, &clock, "one"));
    for (pause, begun) in [(0, 1), (2000, 1), (3100, 2)] {
        clock.advance(jiff::SignedDuration::from_millis(pause));
        assert!(matches!(run.attempt().await, Turn::Done(Next::Idle)));
        assert_eq!(run.job.begun.load(Ordering::SeqCst), begun, "{pause} ms");
    }
}

#[tokio::test]
async fn a_claim_is_released_before_a_pause_that_leaves_it_less_than_a_third() {
    let kept = TemporaryStore::new().await;
    let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
    let mut run = Run::new(quick(), &claims(&kept.store, &clock, "one"));
    assert!(matches!(run.attempt().await, Turn::Done(Next::Idle)));
    let every = Duration::from_millis(500);
    for (age, ended) in [(0, 0), (1600, 1)] {
        clock.advance(jiff::SignedDuration::from_millis(age));
        assert_eq!(run.rest(Next::Idle, every, Duration::ZERO).await, every);
        assert_eq!(run.job.ended.load(Ordering::SeqCst), ended, "{age} ms");
    }
}

#[tokio::test]
async fn pauses_between_steps_follow_from_their_time() {
    let kept = TemporaryStore::new().await;
    let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
    let mut run = Run::new(quick(), &claims(&kept.store, &clock, "one"));
    for (next, took, pause) in [
        (Next::Now, 100, 0),
        (Next::Rest, 100, 100),
        (Next::Rest, 5000, 1000),
        (Next::ShortRest, 100, 50),
        (Next::ShortRest, 5000, 1000),
        (Next::Idle, 100, 400),
    ] {
        let [every, took, pause] = [500, took, pause].map(Duration::from_millis);
        assert_eq!(run.rest(next, every, took).await, pause, "{next:?}");
    }
}

/// A job whose runs fail with the errors and causes, or succeed where there is none.
struct Failing {
    messages: VecDeque<Option<(&'static str, &'static str)>>,
    shutdown: CancellationToken,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Outer(String, #[source] Inner);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Inner(String);

impl From<StoreError> for Outer {
    fn from(error: StoreError) -> Self {
        Self(error.to_string(), Inner(String::new()))
    }
}

#[async_trait]
impl Job for Failing {
    type Error = Outer;
    const NAME: &'static str = "failing";
    const FAILURE: &'static str = "it fails";

    async fn step(&mut self) -> Result<Next, Outer> {
        match self.messages.pop_front() {
            Some(Some((message, cause))) => {
                assert!(message != "panic", "{cause}");
                Err(Outer(message.to_owned(), Inner(cause.to_owned())))
            }
            Some(None) => Ok(Next::Rest),
            None => {
                self.shutdown.cancel();
                Ok(Next::Idle)
            }
        }
    }
}

/// Collects the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no holder panics").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_kind_of_failure_is_logged_once_until_it_ends_and_counted_each_time() {
    let kept = TemporaryStore::new().await;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let shutdown = CancellationToken::new();
    let failing = Failing {
        messages: VecDeque::from([
            Some(("one", "at 1")),
            Some(("one", "at 2")),
            Some(("two", "at 3")),
            Some(("one", "at 1")),
            None,
            Some(("two", "at 3")),
            Some(("panic", "at 4")),
            None,
        ]),
        shutdown: shutdown.clone(),
    };
    let run = Run::new(failing, &claims_of(&kept, "one"));
    run.forever(Duration::from_millis(10), shutdown).await;
    let log = String::from_utf8(log.0.lock().expect("no holder panics").clone());
    let log = log.expect("a readable log");
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("job=\"failing\""))
        .collect();
    assert_eq!(lines.len(), 6, "{log}");
    for (place, level, text) in [
        (0, "WARN", "it fails error=one error.sources=[at 1]"),
        (1, "WARN", "it fails error=two error.sources=[at 3]"),
        (2, "INFO", "the job works again"),
        (3, "WARN", "it fails error=two error.sources=[at 3]"),
        (4, "ERROR", "it fails panic=\"at 4\""),
        (5, "INFO", "the job works again"),
    ] {
        let line = lines[place];
        assert!(line.contains(level) && line.contains(text), "{log}");
    }
    let results = JOBS.results();
    let (_, results) = results
        .iter()
        .find(|(job, _)| *job == "failing")
        .expect("it");
    assert_eq!(results.failures, 6);
    assert!(results.succeeded_at.is_some());
    let steps = JOBS.steps.read();
    let (_, steps) = steps.iter().find(|(job, _)| *job == "failing").expect("it");
    assert_eq!(steps.count, 9);
}
