use jiff::Timestamp;
use shortlink_core::ports::Editor;
use shortlink_core::revised::Revised;
use shortlink_core::testing::{ManualClock, MemoryPublisher, changed_by, eventually, link, moment};
use shortlink_store::testing::TemporaryStore;

use super::*;

/// A store, a Redis and the worker between them.
struct Fixture {
    kept: TemporaryStore,
    redis: Arc<MemoryPublisher>,
    clock: Arc<ManualClock>,
    outbox: Outbox,
    worker: Option<Worker>,
    shutdown: CancellationToken,
}

impl Fixture {
    async fn new() -> Self {
        let kept = TemporaryStore::new().await;
        let redis = Arc::new(MemoryPublisher::default());
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let (outbox, worker) = outbox(
            Arc::clone(&kept.store),
            Arc::clone(&redis) as Arc<dyn Publisher>,
            Arc::clone(&clock) as Arc<dyn Clock>,
        );
        Self {
            kept,
            redis,
            clock,
            outbox,
            worker: Some(worker),
            shutdown: CancellationToken::new(),
        }
    }

    fn start(&mut self) -> tokio::task::JoinHandle<()> {
        let worker = self.worker.take().expect("a worker is started once");
        tokio::spawn(worker.run(self.shutdown.clone()))
    }

    async fn create(&self, code: &str) {
        self.create_undelivered(code).await;
    }

    async fn create_undelivered(&self, code: &str) -> Receipt {
        let created = self.kept.store.create_links(vec![link(code)]).await;
        let created = created.expect("a working store");
        assert!(created.taken.is_empty());
        created.receipt
    }

    /// Creates a link and delivers it.
    async fn create_and_deliver(&self, code: &str) {
        let receipt = self.create_undelivered(code).await;
        assert!(self.outbox.deliver(&[link(code)], receipt).await);
    }

    /// Revokes a link and delivers the change.
    async fn revoke(&self, code: &str) -> bool {
        let now = self.clock.now();
        let editor: Editor = Box::new(move |link| link.revoke(now));
        let code = code.parse().expect("a code");
        let edit = self
            .kept
            .store
            .edit_link(&code, &changed_by("key"), editor)
            .await;
        let edited = edit.expect("a working store").expect("a known link");
        let shortlink_core::link::Edit::Changed(link) = edited.edit else {
            panic!("{code} was revoked before");
        };
        self.outbox.deliver(&[link], edited.receipt).await
    }

    async fn until_published(&self, code: &str, record: &str) {
        eventually(record, || async {
            self.redis.record(code).as_deref() == Some(record)
        })
        .await;
    }

    async fn until_nothing_waits(&self) {
        eventually("nothing waits", || async {
            let waiting = self.kept.store.count_waiting(Timestamp::MAX, 1).await;
            waiting.expect("a working store") == 0
        })
        .await;
    }
}

/// More than one read returns.
const MANY: usize = 1100;

const LIVE: &str = "1 302 1 0 https://example.com/a";
const REVOKED: &str = "1 410 2";

#[tokio::test]
async fn what_another_process_left_behind_is_published_at_the_start() {
    let mut fixture = Fixture::new().await;
    // More than one batch.
    for number in 0..=MANY {
        fixture.create(&format!("left{number}")).await;
    }
    fixture.start();
    fixture.until_nothing_waits().await;
    for code in ["left0", &*format!("left{MANY}")] {
        fixture.until_published(code, LIVE).await;
    }
}

#[tokio::test]
async fn what_could_not_be_published_is_once_redis_is_back() {
    let mut fixture = Fixture::new().await;
    fixture.create_and_deliver("abc").await;
    fixture.start();
    fixture.until_nothing_waits().await;
    fixture.redis.set_away(true);
    assert!(!fixture.revoke("abc").await);
    assert_eq!(fixture.redis.record("abc").as_deref(), Some(LIVE));
    fixture.redis.set_away(false);
    fixture.until_published("abc", REVOKED).await;
    fixture.until_nothing_waits().await;
}

#[tokio::test]
async fn a_late_change_is_published_again_to_another_redis_but_not_for_ever() {
    let mut fixture = Fixture::new().await;
    fixture.create("abc").await;
    assert!(fixture.revoke("abc").await);
    fixture.start();
    fixture.until_nothing_waits().await;
    fixture.redis.restart();
    fixture.until_published("abc", REVOKED).await;
    fixture.until_nothing_waits().await;

    fixture.clock.advance(LINGER + SignedDuration::from_secs(1));
    let store = &fixture.kept.store;
    store
        .forget_applied(fixture.clock.now() - LINGER)
        .await
        .expect("a working store");
    assert_eq!(store.reopen_applied().await.expect("a working store"), 0);
}

#[tokio::test]
async fn stopping_notes_what_was_published_last() {
    let mut fixture = Fixture::new().await;
    let worker = fixture.start();
    // The worker finds nothing and becomes idle.
    fixture.until_nothing_waits().await;
    fixture.create_and_deliver("abc").await;
    fixture.shutdown.cancel();
    worker.await.expect("no panic");
    let waiting = fixture.kept.store.count_waiting(Timestamp::MAX, 1).await;
    assert_eq!(waiting.expect("a working store"), 0);
}

#[tokio::test]
async fn requests_have_some_time_to_publish_what_they_change() {
    let fixture = Fixture::new().await;
    let overdue = overdue(&*fixture.clock);
    assert_eq!(overdue, moment("2026-05-31T23:59:58Z"));
}
