use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::clock::SystemClock;
use crate::store::Store;
use crate::testing::{TemporaryStore, claims, eventually};

fn claims_of(kept: &TemporaryStore, holder: &str) -> Claims {
    claims(&kept.store, &Arc::new(SystemClock), holder)
}

/// Works for some time in one step.
#[derive(Default)]
struct Slow {
    begun: Arc<AtomicU32>,
    ended: Arc<AtomicU32>,
    takes: Duration,
}

impl Job for Slow {
    type Error = StoreError;
    const NAME: &'static str = "slow";
    const FAILURE: &'static str = "it can't be slow";
    const LEASE: Option<Duration> = Some(Duration::from_millis(300));

    async fn begin(&mut self) -> Result<(), StoreError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, StoreError> {
        tokio::time::sleep(self.takes).await;
        Ok(Next::Idle)
    }

    async fn end(&mut self) -> Result<(), StoreError> {
        self.ended.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

async fn claim(store: &Arc<Store>, holder: &str, length: Duration) -> bool {
    let now = SystemClock.now();
    let claimed = store.claim(Slow::NAME, holder, now, now + length).await;
    claimed.expect("a working store")
}

#[tokio::test]
async fn a_claim_is_renewed_while_a_step_runs_and_released_at_the_end() {
    let kept = TemporaryStore::new().await;
    let slow = Slow {
        takes: Duration::from_secs(1),
        ..Slow::default()
    };
    let mut run = Run::new(slow, &claims_of(&kept, "one"));
    let shutdown = CancellationToken::new();
    let others = async {
        let mut refused = 0;
        tokio::time::sleep(Duration::from_millis(100)).await;
        for _ in 0..8 {
            assert!(!claim(&kept.store, "two", Duration::from_secs(9)).await);
            refused += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        refused
    };
    let mut report = |_: Option<&Slow>| {};
    let finish = run.finish(Duration::ZERO, &shutdown, &mut report);
    let (outcome, refused) = tokio::join!(finish, others);
    assert_eq!(outcome.expect("a working store"), Outcome::Done);
    assert_eq!(refused, 8);
    assert_eq!(run.job.ended.load(Ordering::SeqCst), 1);
    assert!(claim(&kept.store, "two", Duration::from_secs(9)).await);
}

#[tokio::test]
async fn a_step_is_cut_off_when_the_claim_is_lost_and_the_job_begins_again() {
    let kept = TemporaryStore::new().await;
    let slow = Slow {
        takes: Duration::from_secs(3600),
        ..Slow::default()
    };
    let (begun, ended) = (Arc::clone(&slow.begun), Arc::clone(&slow.ended));
    let run = Run::new(slow, &claims_of(&kept, "one"));
    let shutdown = CancellationToken::new();
    let every = Duration::from_millis(100);
    let job = tokio::spawn(run.forever(every, shutdown.clone()));
    let has_begun = async |times| {
        eventually("it has begun", async || {
            begun.load(Ordering::SeqCst) == times
        })
        .await;
    };
    has_begun(1).await;
    // As if its process had stood still for longer than the lease.
    let released = kept.store.release(Slow::NAME, "one").await;
    released.expect("a working store");
    assert!(claim(&kept.store, "two", Duration::from_millis(900)).await);
    has_begun(2).await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    job.abort();
}

/// A job whose runs fail with the messages, or succeed where there is none.
struct Failing {
    messages: VecDeque<Option<&'static str>>,
    shutdown: CancellationToken,
}

#[derive(Debug, thiserror::Error)]
#[error("outer")]
struct Outer(#[source] Inner);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Inner(String);

impl From<StoreError> for Outer {
    fn from(error: StoreError) -> Self {
        Self(Inner(error.to_string()))
    }
}

impl Job for Failing {
    type Error = Outer;
    const NAME: &'static str = "failing";
    const FAILURE: &'static str = "it fails";

    async fn step(&mut self) -> Result<Next, Outer> {
        match self.messages.pop_front() {
            Some(Some(message)) => Err(Outer(Inner(message.to_owned()))),
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
async fn a_failure_is_logged_once_until_it_changes_or_ends_and_counted_each_time() {
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
            Some("one"),
            Some("one"),
            Some("two"),
            None,
            Some("two"),
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
    assert_eq!(lines.len(), 5, "{log}");
    for (place, text) in [
        (0, "it fails error=outer error.sources=[one]"),
        (1, "it fails error=outer error.sources=[two]"),
        (2, "the job works again"),
        (3, "it fails error=outer error.sources=[two]"),
        (4, "the job works again"),
    ] {
        assert!(lines[place].contains(text), "{log}");
    }
    let results = JOBS.results();
    let (_, results) = results
        .iter()
        .find(|(job, _)| *job == "failing")
        .expect("it");
    assert_eq!(results.failures, 4);
    assert!(results.succeeded_at.is_some());
    let steps = JOBS.steps.read();
    let (_, steps) = steps.iter().find(|(job, _)| *job == "failing").expect("it");
    assert_eq!(steps.count, 7);
}
