use shortlink_core::link::{Link, Second};
use shortlink_core::ports::{MAX_TOGETHER, Publisher};
use shortlink_core::testing::{ManualClock, MemoryPublisher, link, moment};
use shortlink_store::Claim;
use shortlink_store::testing::TemporaryStore;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::jobs::{Outcome, Run};
use crate::testing::claims;

/// More than a few pages.
const LINKS: usize = 5000;

struct Scene {
    kept: TemporaryStore,
    redis: Arc<MemoryPublisher>,
}

impl Scene {
    async fn new() -> Self {
        Self::of(|_| link("abc")).await
    }

    /// With links that get codes of their own.
    async fn of(link: impl Fn(usize) -> Link) -> Self {
        let kept = TemporaryStore::new().await;
        let places: Vec<usize> = (0..LINKS).collect();
        for some in places.chunks(MAX_TOGETHER) {
            let links = some.iter().map(|&place| Link {
                code: format!("a{place}").parse().expect("a code"),
                ..link(place)
            });
            let created = kept.store.create_links(links.collect()).await;
            created.expect("room");
        }
        Self {
            kept,
            redis: Arc::new(MemoryPublisher::default()),
        }
    }

    fn rebuild(&self, holder: &str) -> Run<RebuildJob> {
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let rebuild = Rebuild {
            store: Arc::clone(&self.kept.store),
            index: Arc::clone(&self.redis) as _,
            clock: Arc::clone(&clock) as _,
            lanes: 2,
            restart: false,
        };
        let claims = claims(&self.kept.store, &clock, holder);
        Run::new(rebuild.job(), &claims)
    }

    async fn run(&self, holder: &str) -> (Outcome, Progress) {
        let mut run = self.rebuild(holder);
        let shutdown = CancellationToken::new();
        let outcome = run.finish(Duration::ZERO, &shutdown, &mut |_| {}).await;
        (outcome.expect("all servers work"), run.job.progress)
    }

    async fn keys(&self) -> u64 {
        self.redis.count().await.expect("a Redis")
    }
}

#[tokio::test]
async fn all_links_are_written_and_none_that_is_newer_is_replaced() {
    let scene = Scene::new().await;
    let newer = Link {
        revision: 7,
        ..link("a17")
    };
    scene.redis.publish(&[newer]).await.expect("a Redis");
    scene.redis.set_record("a18", "1 404 0");
    let (outcome, progress) = scene.run("one").await;
    assert_eq!(outcome, Outcome::Done);
    let filled = Filled {
        added: LINKS as u64 - 2,
        replaced: 1,
        same: 0,
        newer: 1,
    };
    assert_eq!(progress.filled, filled);
    assert_eq!(
        (progress.done, progress.total),
        (LINKS as u64, LINKS as u64)
    );
    assert!(
        scene
            .redis
            .record("a17")
            .expect("a record")
            .starts_with("1 302 7 ")
    );
    assert_eq!(scene.keys().await, LINKS as u64);
}

#[tokio::test]
async fn a_run_goes_on_where_the_one_before_was_stopped_unless_redis_was_emptied() {
    let scene = Scene::new().await;
    let stop_after_first = async || {
        let token = CancellationToken::new();
        let mut run = scene.rebuild("one");
        let outcome = run
            .finish(Duration::ZERO, &token, &mut |_| token.cancel())
            .await;
        (outcome.expect("all servers work"), run.job.progress)
    };
    let (outcome, progress) = stop_after_first().await;
    assert_eq!(outcome, Outcome::Stopped);
    let before = progress.done;
    assert!(before > 0 && before < LINKS as u64);
    let (outcome, progress) = scene.run("two").await;
    assert_eq!((outcome, progress.resumed), (Outcome::Done, before));
    assert_eq!(scene.keys().await, LINKS as u64);

    scene.redis.restart();
    let (outcome, _) = stop_after_first().await;
    assert_eq!(outcome, Outcome::Stopped);
    scene.redis.restart();
    assert_eq!(scene.run("two").await.1.resumed, 0);
    assert_eq!(scene.keys().await, LINKS as u64);
}

#[tokio::test]
async fn links_that_ended_long_ago_are_left_out_and_not_missed() {
    let is_live = |place: usize| place.is_multiple_of(10);
    let scene = Scene::of(|place| Link {
        valid_until: Second::at(moment("2026-05-01T00:00:00Z")).filter(|_| !is_live(place)),
        ..link("abc")
    })
    .await;
    scene.redis.set_ended_days(7);
    let token = CancellationToken::new();
    let mut run = scene.rebuild("one");
    let outcome = run
        .finish(Duration::ZERO, &token, &mut |_| token.cancel())
        .await;
    assert_eq!(outcome.expect("all servers work"), Outcome::Stopped);
    let before = run.job.progress.done;
    // Redis has few of the links so far, and has lost none of them.
    let (outcome, progress) = scene.run("two").await;
    assert_eq!((outcome, progress.resumed), (Outcome::Done, before));
    assert_eq!(scene.keys().await, LINKS as u64 / 10);
    assert_eq!(progress.done, LINKS as u64);

    let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
    let refill = crate::refill::Refill {
        claims: claims(&scene.kept.store, &clock, "three"),
        index: Arc::clone(&scene.redis) as _,
        shutdown: CancellationToken::new(),
        settled: None,
    };
    assert!(!refill.is_empty().await.expect("all servers work"));
    scene.redis.restart();
    assert!(refill.is_empty().await.expect("all servers work"));
}

#[tokio::test]
async fn one_process_does_it() {
    let scene = Scene::new().await;
    let claimed = scene.kept.store.claim("rebuild", "one", 1, None).await;
    assert_eq!(claimed.expect("a store"), Claim::Ours);
    assert_eq!(scene.run("two").await.0, Outcome::Claimed);
    assert_eq!(scene.keys().await, 0);
}
