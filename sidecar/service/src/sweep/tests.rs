use shortlink_core::link::{Link, Second};
use shortlink_core::ports::{Publisher, Slice};
use shortlink_core::revised::Revised;
use shortlink_core::testing::{ManualClock, MemoryPublisher, changed_by, link, moment};
use shortlink_store::testing::{TemporaryStore, settle};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::jobs::{Outcome, Run};
use crate::testing::claims;

struct Scene {
    kept: TemporaryStore,
    redis: Arc<MemoryPublisher>,
    clock: Arc<ManualClock>,
}

impl Scene {
    async fn new() -> Self {
        Self {
            kept: TemporaryStore::new().await,
            redis: Arc::new(MemoryPublisher::default()),
            clock: Arc::new(ManualClock::at("2026-01-01T00:00:00Z")),
        }
    }

    async fn keep(&self, link: &Link) {
        let created = self.kept.store.create_links(vec![link.clone()]).await;
        let created = created.expect("a working store");
        assert!(created.taken.is_empty());
        let receipts = vec![created.receipt];
        settle(&self.kept.store, receipts, self.clock.now()).await;
        let links = std::slice::from_ref(link);
        self.redis.publish(links).await.expect("a working Redis");
    }

    async fn sweep(&self) -> Swept {
        self.sweep_in(Lane::default()).await
    }

    async fn sweep_in(&self, lane: Lane) -> Swept {
        let sweep = Sweep {
            store: Arc::clone(&self.kept.store),
            index: Arc::clone(&self.redis) as _,
            clock: Arc::clone(&self.clock) as _,
            quarantine: Some(SignedDuration::from_hours(24 * 30)),
            straggle: SignedDuration::from_secs(10),
            lane,
            stage: Stage::default(),
            swept: Swept::default(),
        };
        let (sweep, outcome) = self.run(sweep).await;
        assert_eq!(outcome.expect("all servers work"), Outcome::Done);
        sweep.swept
    }

    async fn run(&self, sweep: Sweep) -> (Sweep, Result<Outcome, InspectError>) {
        let mut run = Run::new(sweep, &claims(&self.kept.store, &self.clock, "one"));
        let shutdown = CancellationToken::new();
        let outcome = run.finish(Duration::ZERO, &shutdown, &mut |_| {}).await;
        (run.job, outcome)
    }
}

#[tokio::test]
async fn what_has_expired_is_shortened_once_and_deleted_after_its_quarantine() {
    let scene = Scene::new().await;
    let mortal = Link {
        valid_until: Second::at(moment("2026-01-02T00:00:00Z")),
        ..link("abc")
    };
    scene.keep(&mortal).await;
    scene.keep(&link("abd")).await;
    assert_eq!(scene.sweep().await, Swept::default());
    assert_eq!(
        scene.redis.record("abc").as_deref(),
        Some("1 302 1 1767312000 https://example.com/a")
    );
    scene.clock.advance(SignedDuration::from_hours(25));
    let swept = Swept {
        expired: 1,
        ..Swept::default()
    };
    assert_eq!(scene.sweep().await, swept);
    assert_eq!(scene.redis.record("abc").as_deref(), Some("1 410 1"));
    assert_eq!(scene.sweep().await, Swept::default());

    scene.clock.advance(SignedDuration::from_hours(24 * 30));
    let swept = Swept {
        deleted: 1,
        ..Swept::default()
    };
    assert_eq!(scene.sweep().await, swept);
    // Redis still answers 410, and the code is still taken, until no delayed write can restore the
    // record.
    assert_eq!(scene.redis.record("abc").as_deref(), Some("1 410 1"));
    let again = || scene.kept.store.create_links(vec![link("abc")]);
    assert_eq!(again().await.expect("a working store").taken, [0]);
    assert_eq!(scene.sweep().await, Swept::default());
    scene.clock.advance(SignedDuration::from_secs(11));
    let swept = Swept {
        freed: 1,
        ..Swept::default()
    };
    assert_eq!(scene.sweep().await, swept);
    assert_eq!(scene.redis.record("abc"), None);
    assert!(again().await.expect("a working store").taken.is_empty());
    assert!(scene.redis.record("abd").is_some());
}

#[tokio::test]
async fn a_link_whose_record_has_left_redis_is_deleted() {
    let scene = Scene::new().await;
    for code in ["abc", "abd"] {
        scene
            .keep(&Link {
                valid_until: Second::at(moment("2026-01-02T00:00:00Z")),
                ..link(code)
            })
            .await;
    }
    scene.redis.set_ended_days(7);
    scene.clock.advance(SignedDuration::from_hours(24 * 40));
    // Of the other a visitor came a moment ago.
    scene.redis.lose("abc");
    scene.redis.set_record("abd", "1 410 1");
    assert_eq!(scene.sweep().await.deleted, 2);
}

#[tokio::test]
async fn a_dead_link_is_kept_while_redis_has_something_else() {
    let scene = Scene::new().await;
    let dead = Link {
        valid_until: Second::at(moment("2026-01-02T00:00:00Z")),
        ..link("abc")
    };
    scene.keep(&dead).await;
    scene
        .redis
        .set_record("abc", "1 302 9 0 https://example.com/newer");
    scene.clock.advance(SignedDuration::from_hours(24 * 40));
    assert_eq!(scene.sweep().await.deleted, 0);
    let found = scene.kept.store.find_link(&dead.code).await;
    assert!(found.expect("a working store").is_some());
}

#[tokio::test]
async fn nothing_is_deleted_that_redis_can_not_be_told_of() {
    let scene = Scene::new().await;
    scene
        .keep(&Link {
            valid_until: Second::at(moment("2026-01-02T00:00:00Z")),
            ..link("abc")
        })
        .await;
    scene.clock.advance(SignedDuration::from_hours(24 * 40));
    scene.redis.set_away(true);
    let sweep = Sweep {
        store: Arc::clone(&scene.kept.store),
        index: Arc::clone(&scene.redis) as _,
        clock: Arc::clone(&scene.clock) as _,
        quarantine: Some(SignedDuration::from_hours(24)),
        straggle: SignedDuration::ZERO,
        lane: Lane::default(),
        stage: Stage::default(),
        swept: Swept::default(),
    };
    let (_, swept) = scene.run(sweep).await;
    swept.expect_err("a Redis that is away");
    let found = scene.kept.store.find_link(&link("abc").code).await;
    assert!(found.expect("a working store").is_some());
}

#[tokio::test]
async fn lanes_sweep_different_links_and_together_all() {
    let scene = Scene::new().await;
    let all: Vec<String> = (0..20).map(|n| format!("abc{n}")).collect();
    for (place, code) in all.iter().enumerate() {
        let mortal = Link {
            valid_until: Second::at(moment("2026-01-02T00:00:00Z")),
            ..link(code)
        };
        scene.keep(&mortal).await;
        if place % 2 == 0 {
            let code: Code = code.parse().expect("a code");
            let revoke = Box::new(|link: Link| link.revoke(moment("2026-01-01T12:00:00Z")));
            let edited = scene
                .kept
                .store
                .edit_link(&code, &changed_by("key"), revoke)
                .await;
            let receipt = edited.expect("a working store").expect("a link").receipt;
            settle(
                &scene.kept.store,
                vec![receipt],
                moment("2026-01-01T12:00:00Z"),
            )
            .await;
        }
    }
    let sweep = async |number| {
        let lane = Lane::new(Slice { number, of: 3 });
        scene.sweep_in(lane).await
    };
    scene.clock.advance(SignedDuration::from_hours(25));
    let mut expired = 0;
    for number in 0..3 {
        expired += sweep(number).await.expired;
    }
    assert_eq!(expired, 20);
    // Each lane knows where it was.
    assert_eq!(sweep(1).await, Swept::default());
    scene.clock.advance(SignedDuration::from_hours(24 * 31));
    let mut deleted = Vec::new();
    for number in 0..3 {
        deleted.push(sweep(number).await.deleted);
    }
    assert!(deleted.iter().all(|&it| it > 0), "{deleted:?}");
    assert_eq!(deleted.iter().sum::<u64>(), 20);
    scene.clock.advance(SignedDuration::from_secs(11));
    let mut freed = 0;
    for number in 0..3 {
        freed += sweep(number).await.freed;
    }
    assert_eq!(freed, 20);
    // One lane continues where all were, and finds nothing.
    assert_eq!(scene.sweep().await.deleted, 0);
}
