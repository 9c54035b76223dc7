//! Retention while another session uses what is due.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use secrecy::ExposeSecret;
use shortlink_core::testing::ManualClock;
use shortlink_store::Scheme;
use shortlink_store::testing::{Fixture, NOW, hold, keep, visit};
use tokio_util::sync::CancellationToken;

use crate::jobs::{Outcome, Run};
use crate::retention::{Retention, RetentionPeriods};
use crate::testing::claims;
use crate::visits::VisitCounters;

#[tokio::test]
async fn a_day_of_visits_that_is_in_use_is_dropped_later_and_counts_before() {
    let mut fixture = Fixture::new(Scheme::Postgres).await;
    fixture.options.lock_timeout = Duration::from_millis(400);
    fixture.store = fixture.open().await;
    let visits = (0..3).map(|n| visit(n, "old", "2026-05-20T12:00:00Z"));
    keep(&fixture.store, visits.collect()).await;
    let clock = Arc::new(ManualClock::at(NOW));
    let counters = Arc::new(VisitCounters::default());
    let week = Some(SignedDuration::from_hours(24 * 7));
    let periods = RetentionPeriods {
        visits: week,
        minutes: week,
        hours: week,
    };
    let (store, counted) = (Arc::clone(&fixture.store), Arc::clone(&counters));
    let retention = Retention::new(store, Arc::clone(&clock) as _, counted, periods);
    let mut run = Run::new(retention, &claims(&fixture.store, &clock, "one"));
    let holder = hold(fixture.options.url.expose_secret(), "visits_20260520").await;
    let shutdown = CancellationToken::new();
    let mut finish = async || {
        let begun = Instant::now();
        let outcome = run.finish(Duration::ZERO, &shutdown, &mut |_| {}).await;
        assert_eq!(outcome.expect("a store"), Outcome::Done);
        begun.elapsed()
    };
    // The attempts wait longer and longer, but no longer than the session does.
    for wait_ms in [100, 200, 400, 400, 400, 400, 400, 400] {
        let took = finish().await;
        assert!(took >= Duration::from_millis(wait_ms), "{took:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        for counts in ["visit_domain_minutes", "visit_hours", "visit_sketches"] {
            assert_eq!(fixture.count(counts).await, 0, "{counts}");
        }
        assert_eq!(fixture.count("visits").await, 3);
    }
    assert_eq!(counters.forgotten.load(Ordering::Relaxed), 0);
    drop(holder);
    // The server ends the holder's transaction soon after its connection is closed.
    while counters.forgotten.load(Ordering::Relaxed) == 0 {
        finish().await;
    }
    assert_eq!(counters.forgotten.load(Ordering::Relaxed), 3);
    assert_eq!(fixture.count("visits").await, 0);
}
