mod stores;

use shortlink_core::clock::Clock;
use shortlink_core::ports::{CountQuery, Counted};
use shortlink_core::testing::{ManualClock, Nothing, enrichment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Classification;
use shortlink_core::visit::visitor::LiveKeys;
use shortlink_store::testing::TemporaryStore;
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitEvent, VisitId, VisitMethod};

use super::*;
use crate::testing::claims;

const NOON: u64 = 1_780_315_200_000; // 2026-06-01T12:00:00Z

/// A visit of a bot that was classified as a human.
fn mistaken(sequence: u64) -> Visit {
    let event = VisitEvent {
        id: VisitId {
            origin: 1,
            sequence,
        },
        time_ms: NOON + sequence * 60_000,
        status: 302,
        method: VisitMethod::Get,
        code: b"abc",
        host: b"s.example.com",
        client: b"192.0.2.7",
        user_agent: b"examplebot/1.0",
        referrer: b"",
        accept_language: b"",
        purpose: b"",
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: b"",
    };
    let enrichment = enrichment();
    let keys: LiveKeys = std::iter::empty().collect();
    let visit = enrichment.visit(&event, &keys).expect("a visit");
    assert_eq!(visit.classification.class, Class::Bot);
    Visit {
        classification: Classification {
            class: Class::Human,
            ..visit.classification
        },
        ..visit
    }
}

struct Scene {
    kept: TemporaryStore,
    clock: Arc<ManualClock>,
    reclassify: Reclassify,
}

impl Scene {
    async fn with(visits: u64) -> Self {
        let kept = TemporaryStore::new().await;
        let clock = Arc::new(ManualClock::at("2026-06-02T00:00:00Z"));
        let reclassify = Reclassify {
            store: Arc::clone(&kept.store),
            agents: Arc::new(Nothing),
            time: TimeSpan::default(),
            hours_since: None,
            is_rehearsal: false,
        };
        for first in (0..visits).step_by(1000) {
            let visits = (first..visits.min(first + 1000)).map(mistaken).collect();
            let done = kept.store.keep_visits(visits, clock.now()).await;
            done.expect("a working store");
        }
        Self {
            kept,
            clock,
            reclassify,
        }
    }

    /// Runs until the end, or until `shutdown`, which a step may cancel.
    async fn run(
        &self,
        shutdown: &CancellationToken,
        progress: impl Fn(&Report) + Send + Sync,
    ) -> (Outcome, Report) {
        let claims = claims(&self.kept.store, &self.clock, "holder");
        let mut report = |report: Option<&Report>| progress(report.expect("no other process"));
        let reclassify = self.reclassify.clone();
        let done = reclassify.run(&claims, shutdown, &mut report).await;
        done.expect("a working store")
    }

    async fn bots(&self) -> u64 {
        let query = CountQuery {
            of: Counted::All,
            since: Timestamp::UNIX_EPOCH,
            until: "2027-01-01T00:00:00Z".parse().expect("a moment"),
        };
        let counts = self.kept.store.count_visits(&query).await;
        let counts = counts.expect("a working store");
        let bots = counts.iter().filter(|count| count.class == Class::Bot);
        bots.map(|count| count.visits).sum()
    }
}

#[tokio::test]
async fn a_rehearsal_says_what_would_change_and_changes_nothing() {
    let mut scene = Scene::with(30).await;
    scene.reclassify.is_rehearsal = true;
    for _ in 0..2 {
        let (outcome, report) = scene.run(&CancellationToken::new(), |_| {}).await;
        assert_eq!(
            (outcome, report.visits, report.written),
            (Outcome::Done, 30, 0)
        );
        let moves: Vec<_> = report.moves().collect();
        assert_eq!(moves, [(Class::Human, Class::Bot, 30)]);
        assert_eq!(scene.bots().await, 0);
    }
}

#[tokio::test]
async fn only_visits_of_the_time_that_was_asked_for_are_classified() {
    let mut scene = Scene::with(120).await;
    scene.reclassify.time = TimeSpan {
        since: "2026-06-01T12:30:00Z".parse().ok(),
        until: "2026-06-01T12:40:00Z".parse().ok(),
    };
    let (_, report) = scene.run(&CancellationToken::new(), |_| {}).await;
    assert_eq!((report.visits, report.written), (10, 10));
    assert_eq!(scene.bots().await, 10);
}

#[tokio::test]
async fn a_run_that_was_stopped_leaves_the_rest_to_the_next() {
    let scene = Scene::with(2 * u64::from(PAGE) + 10).await;
    let shutdown = CancellationToken::new();
    let stop = |report: &Report| {
        assert!(report.reached <= report.total);
        if report.reached > 0 {
            shutdown.cancel();
        }
    };
    let (outcome, first) = scene.run(&shutdown, stop).await;
    assert_eq!(outcome, Outcome::Stopped);
    assert_eq!((first.written, scene.bots().await), (2000, 2000));
    let (outcome, second) = scene.run(&CancellationToken::new(), |_| {}).await;
    assert_eq!(outcome, Outcome::Done);
    assert_eq!((second.written, scene.bots().await), (2010, 4010));
    assert_eq!(second.reached, second.total);
}

#[tokio::test]
async fn without_visits_there_is_nothing_to_be_done() {
    let scene = Scene::with(0).await;
    let (outcome, report) = scene.run(&CancellationToken::new(), |_| {}).await;
    assert_eq!((outcome, report), (Outcome::Done, Report::default()));
}

#[tokio::test]
async fn a_step_writes_one_transaction_and_only_then_is_there_a_rest() {
    let scene = Scene::with(1200).await;
    for expected in [
        vec![
            (Next::Rest, 500),
            (Next::Rest, 1000),
            (Next::Rest, 1200),
            (Next::Idle, 1200),
        ],
        vec![(Next::Now, 0), (Next::Idle, 0)],
    ] {
        let mut walk = Walk {
            clock: Arc::clone(&scene.clock) as _,
            reclassify: scene.reclassify.clone(),
            report: Report::default(),
            numbers: None,
            pending: Vec::new(),
        };
        walk.begin().await.expect("a working store");
        for (next, written) in expected {
            let done = walk.step().await.expect("a working store");
            assert_eq!((done, walk.report.written), (next, written));
        }
    }
}
