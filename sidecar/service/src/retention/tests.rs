mod postgres;

use shortlink_core::ports::VisitListing;
use shortlink_core::testing::{ManualClock, enrichment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::visitor::LiveKeys;
use shortlink_store::testing::{Fixture, TemporaryStore, erase_visits};
use shortlink_store::{Claim, Scheme};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::jobs::{Outcome, Run};
use crate::testing::claims;
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitEvent, VisitId, VisitMethod};

const NOW: &str = "2026-06-01T12:00:00Z";

fn visit(sequence: u64, at: &str) -> Visit {
    let at: Timestamp = at.parse().expect("a moment");
    let event = VisitEvent {
        id: VisitId {
            origin: 1,
            sequence,
        },
        time_ms: at.as_millisecond().unsigned_abs(),
        status: 302,
        method: VisitMethod::Get,
        code: b"abc",
        host: b"s.example.com",
        client: b"192.0.2.7",
        user_agent: b"",
        referrer: b"",
        accept_language: b"",
        purpose: b"",
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: b"",
    };
    let keys: LiveKeys = std::iter::empty().collect();
    enrichment().visit(&event, &keys).expect("a visit")
}

#[tokio::test]
async fn the_job_of_a_dead_holder_is_taken_over_and_deletes_what_is_due_alone() {
    let kept = TemporaryStore::new().await;
    let clock = Arc::new(ManualClock::at(NOW));
    let visits = vec![
        visit(0, "2026-04-01T00:00:00Z"),
        visit(1, "2026-05-20T00:00:00Z"),
        visit(2, "2026-03-01T00:00:00Z"),
    ];
    let stored = kept.store.keep_visits(visits, clock.now()).await;
    assert_eq!(stored.expect("a store").new.len(), 3);
    let counters = Arc::new(VisitCounters::default());
    let day = SignedDuration::from_hours(24);
    let periods = RetentionPeriods {
        visits: Some(day * 30),
        minutes: Some(day * 30),
        hours: None,
    };
    let retention = Retention::new(
        Arc::clone(&kept.store),
        Arc::clone(&clock) as _,
        Arc::clone(&counters),
        periods,
    );
    let claimed = kept.store.claim(Retention::NAME, "one", 1, None).await;
    assert_eq!(claimed.expect("a store"), Claim::Ours);
    let mut run = Run::new(retention, &claims(&kept.store, &clock, "two"));
    let shutdown = CancellationToken::new();
    let mut finish = async || {
        let outcome = run.finish(Duration::ZERO, &shutdown, &mut |_| {}).await;
        outcome.expect("a store")
    };
    assert_eq!(finish().await, Outcome::Claimed);
    assert_eq!(counters.forgotten.load(Ordering::Relaxed), 0);
    let released = kept.store.release(Retention::NAME, "one").await;
    released.expect("a store");
    assert_eq!(finish().await, Outcome::Done);
    assert_eq!(counters.forgotten.load(Ordering::Relaxed), 2);
    let listing = VisitListing {
        limit: 10,
        ..VisitListing::default()
    };
    let left = kept.store.list_visits(&listing).await;
    let left = left.expect("a store").items;
    let left: Vec<String> = left.iter().map(|visit| visit.at.to_string()).collect();
    assert_eq!(left, ["2026-05-20T00:00:00Z"]);
    let minutes = kept.store.count_domains(Timestamp::UNIX_EPOCH).await;
    assert_eq!(minutes.expect("a store").len(), 1);
    // The claim was released.
    let claimed = kept.store.claim(Retention::NAME, "three", 1, None).await;
    assert_eq!(claimed.expect("a store"), Claim::Ours);
}

#[tokio::test]
async fn user_agents_are_deleted_once_a_day_after_their_visits() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let clock = Arc::new(ManualClock::at("2026-04-01T00:00:00Z"));
    let day = SignedDuration::from_hours(24);
    for (n, agent) in ["old", "new"].into_iter().enumerate() {
        let visit = Visit {
            user_agent: agent.to_owned(),
            ..visit(n as u64, &clock.now().to_string())
        };
        let stored = fixture.store.keep_visits(vec![visit], clock.now()).await;
        stored.expect("a store");
        clock.advance(day * 30);
    }
    let periods = RetentionPeriods {
        visits: Some(day * 45),
        ..RetentionPeriods::default()
    };
    let counters = Arc::new(VisitCounters::default());
    let retention = Retention::new(
        Arc::clone(&fixture.store),
        Arc::clone(&clock) as _,
        counters,
        periods,
    );
    let mut run = Run::new(retention, &claims(&fixture.store, &clock, "one"));
    let shutdown = CancellationToken::new();
    let mut finish = async || {
        let outcome = run.finish(Duration::ZERO, &shutdown, &mut |_| {}).await;
        assert_eq!(outcome.expect("a store"), Outcome::Done);
    };
    finish().await;
    assert_eq!(fixture.count("visits").await, 1);
    assert_eq!(fixture.count("visit_agents").await, 1);
    clock.advance(day * 17);
    finish().await;
    let left = async || {
        (
            fixture.count("visits").await,
            fixture.count("visit_agents").await,
        )
    };
    assert_eq!(left().await, (0, 0));
    let visit = visit(9, "2026-04-01T00:00:00Z");
    let stored = fixture
        .store
        .keep_visits(vec![visit], clock.now() - day * 90)
        .await;
    stored.expect("a store");
    finish().await;
    assert_eq!(left().await, (0, 1));
    clock.advance(day);
    finish().await;
    assert_eq!(left().await, (0, 0));
}

#[tokio::test]
async fn late_events_of_erased_visits_are_dropped_for_400_days() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let clock = Arc::new(ManualClock::at(NOW));
    let code = "abc".parse().expect("a code");
    erase_visits(&fixture.store, &[code], clock.now()).await;
    let retention = Retention::new(
        Arc::clone(&fixture.store),
        Arc::clone(&clock) as _,
        Arc::default(),
        RetentionPeriods::default(),
    );
    let mut run = Run::new(retention, &claims(&fixture.store, &clock, "one"));
    let shutdown = CancellationToken::new();
    let mut erased = async |sequence| {
        let outcome = run.finish(Duration::ZERO, &shutdown, &mut |_| {}).await;
        assert_eq!(outcome.expect("a store"), Outcome::Done);
        let late = vec![visit(sequence, "2026-05-20T00:00:00Z")];
        let stored = fixture.store.keep_visits(late, clock.now()).await;
        stored.expect("a store").erased
    };
    clock.advance(LATEST_EVENT);
    assert_eq!(erased(0).await, 1);
    clock.advance(SignedDuration::from_secs(1));
    assert_eq!(erased(1).await, 0);
}
