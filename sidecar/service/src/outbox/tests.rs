use shortlink_core::ports::{DataSet, Editor};
use shortlink_core::revised::Revised;
use shortlink_core::testing::{ManualClock, MemoryPublisher, changed_by, eventually, link};
use shortlink_store::testing::{TemporaryStore, add_endless_changes, count_waiting};

use tokio_util::sync::CancellationToken;

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

    /// Waits until the data set has a beat after this one.
    async fn until_beat(&self, beat: u64) -> [u64; 3] {
        self.until_shown(|[.., it]| it > beat).await
    }

    /// Waits until the data set has the changes up to a place.
    async fn until_watermark(&self, place: u64) -> [u64; 3] {
        self.until_shown(|[_, it, _]| it >= place).await
    }

    async fn until_shown(&self, is_it: impl Fn([u64; 3]) -> bool) -> [u64; 3] {
        let is_shown = || async { self.redis.shown().is_some_and(&is_it) };
        eventually("the data set is marked", is_shown).await;
        self.redis.shown().expect("a mark")
    }

    async fn until_nothing_waits(&self) {
        eventually("nothing waits", || async {
            count_waiting(&self.kept.store, 1).await == 0
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
async fn a_change_is_published_again_to_a_redis_that_has_lost_it() {
    let mut fixture = Fixture::new().await;
    fixture.create("abc").await;
    assert!(fixture.revoke("abc").await);
    fixture.start();
    fixture.until_nothing_waits().await;
    fixture.redis.restart();
    fixture.until_published("abc", REVOKED).await;
    fixture.until_nothing_waits().await;
}

#[tokio::test]
async fn a_data_set_gets_what_it_lacks_before_it_gets_beats() {
    let mut fixture = Fixture::new().await;
    for code in ["a", "b", "c"] {
        fixture.create_and_deliver(code).await;
    }
    fixture.start();
    fixture.until_beat(0).await;
    assert!(fixture.revoke("a").await);
    let [generation, before, _] = fixture.until_watermark(1).await;
    for code in ["b", "c"] {
        assert!(fixture.revoke(code).await);
    }
    fixture.until_watermark(before + 2).await;
    // A replica that has seen none of the last two changes takes over.
    for code in ["b", "c"] {
        fixture.redis.set_record(code, LIVE);
    }
    fixture.redis.fall_back(Some([generation, before, 5]));
    for code in ["b", "c"] {
        fixture.until_published(code, REVOKED).await;
    }
    let [later, watermark, _] = fixture.until_beat(5).await;
    assert_eq!((later, watermark), (generation + 1, before + 2));
}

#[tokio::test]
async fn a_data_set_that_went_back_in_a_running_redis_is_another_one() {
    let mut fixture = Fixture::new().await;
    fixture.create_and_deliver("a").await;
    fixture.start();
    let [generation, ..] = fixture.until_beat(0).await;
    assert!(fixture.revoke("a").await);
    let [.., beat] = fixture.until_watermark(1).await;
    fixture.redis.set_record("a", LIVE);
    fixture.redis.set_mark([generation, 0, beat]);
    fixture.until_published("a", REVOKED).await;
    let [later, watermark, _] = fixture.until_beat(beat).await;
    assert_eq!((later, watermark), (generation + 1, 1));
}

#[tokio::test]
async fn a_worker_learns_that_another_process_knows_another_data_set() {
    let mut fixture = Fixture::new().await;
    fixture.start();
    fixture.until_beat(0).await;
    let seen = DataSet {
        incarnation: "a promoted replica".to_owned(),
        standing: None,
        is_whole: false,
        is_nearly_empty: false,
    };
    let adopted = fixture.kept.store.adopt(seen).await;
    let adopted = adopted.expect("a working store").generation;
    // It has no beat before it is adopted again.
    let shown = fixture.until_shown(|[generation, ..]| generation > adopted);
    assert_eq!(shown.await[0], adopted + 1);
}

#[tokio::test]
async fn a_change_that_waits_withholds_beats() {
    let mut fixture = Fixture::new().await;
    fixture.create_and_deliver("abc").await;
    fixture.start();
    fixture.until_beat(0).await;
    fixture.redis.set_full(true);
    assert!(!fixture.revoke("abc").await);
    tokio::time::sleep(GRACE * 2).await;
    let [_, _, beat] = fixture.redis.shown().expect("a mark");
    tokio::time::sleep(GRACE).await;
    assert_eq!(fixture.redis.shown().expect("a mark")[2], beat);
    fixture.redis.set_full(false);
    fixture.until_published("abc", REVOKED).await;
    fixture.until_beat(beat).await;
}

#[tokio::test]
async fn a_change_that_nothing_settles_keeps_no_other_waiting() {
    let mut fixture = Fixture::new().await;
    fixture.create_and_deliver("abc").await;
    fixture.create_and_deliver("def").await;
    fixture.start();
    fixture.until_nothing_waits().await;
    add_endless_changes(&fixture.kept.url).await;
    fixture.redis.set_away(true);
    assert!(!fixture.revoke("abc").await);
    fixture.create("ghi").await;
    fixture.redis.set_away(false);
    fixture.until_published("abc", REVOKED).await;
    fixture.until_published("ghi", LIVE).await;
    // That of the revoked link is settled with its revocation.
    eventually("only an endless one waits", || async {
        count_waiting(&fixture.kept.store, 9).await == 1
    })
    .await;
}

#[tokio::test]
async fn the_database_wins_against_a_newer_record() {
    let mut fixture = Fixture::new().await;
    fixture.create_and_deliver("abc").await;
    fixture.start();
    fixture.until_nothing_waits().await;
    fixture
        .redis
        .set_record("abc", "1 302 70 0 https://evil.example/");
    assert!(fixture.revoke("abc").await);
    assert_eq!(fixture.redis.record("abc").as_deref(), Some("1 410 71"));
    let link = fixture
        .kept
        .store
        .find_link(&"abc".parse().expect("a code"))
        .await;
    assert_eq!(link.expect("a working store").expect("a link").revision, 71);
}

#[tokio::test]
async fn a_clock_that_was_set_back_hides_no_change() {
    let mut fixture = Fixture::new().await;
    fixture.create_and_deliver("abc").await;
    fixture.start();
    fixture.until_nothing_waits().await;
    fixture.clock.advance(SignedDuration::from_hours(1));
    fixture.redis.set_away(true);
    assert!(!fixture.revoke("abc").await);
    fixture.clock.advance(SignedDuration::from_hours(-1));
    fixture.redis.set_away(false);
    fixture.until_published("abc", REVOKED).await;
    fixture.until_nothing_waits().await;
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
    assert_eq!(count_waiting(&fixture.kept.store, 1).await, 0);
}
