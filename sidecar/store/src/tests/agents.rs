//! User agents are deleted after the last visit that has them.

use jiff::{SignedDuration, Timestamp};
use shortlink_core::ports::TimeSpan;
use shortlink_core::testing::moment;
use shortlink_core::visit::Visit;

use crate::testing::*;
use crate::{AgentsPass, Store, in_every_store};

in_every_store! {
    the_agents_of_expired_visits_are_deleted,
    the_agents_of_erased_and_reclassified_visits_are_deleted_unless_others_have_them,
    agents_that_are_stored_while_they_are_deleted_stay,
}

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn by(agent: &str, visit: Visit) -> Visit {
    Visit {
        user_agent: agent.to_owned(),
        ..visit
    }
}

async fn keep_at(store: &Store, now: Timestamp, visits: Vec<Visit>) {
    let kept = store.keep_visits(visits, now).await;
    kept.expect("a working store");
}

/// Does a whole pass in small portions; returns the number of deleted agents.
async fn forget(store: &Store, now: Timestamp, before: Option<Timestamp>) -> u64 {
    let mut pass = Some(AgentsPass::new(now, before));
    let mut deleted = 0;
    while let Some(rest) = pass {
        let some;
        (some, pass) = store.forget_agents(rest, 2).await.expect("a store");
        deleted += some;
    }
    deleted
}

/// Checks that every visit has an agent, and returns the number of agents.
async fn agents(fixture: &Fixture) -> i64 {
    let with = "visits JOIN visit_agents ON visit_agents.id = agent_id";
    assert_eq!(fixture.count("visits").await, fixture.count(with).await);
    fixture.count("visit_agents").await
}

async fn the_agents_of_expired_visits_are_deleted(fixture: Fixture) {
    let store = &*fixture.store;
    let start = moment("2026-06-01T12:00:00Z");
    for day in 0..10 {
        let at = start + DAY * day;
        let name = format!("agent of {day}");
        let n = u64::try_from(day).expect("a number");
        let visits = vec![
            by(&name, visit(2 * n, "abc", &at.to_string())),
            by("agent of all", visit(2 * n + 1, "abc", &at.to_string())),
        ];
        keep_at(store, at, visits).await;
    }
    assert_eq!(agents(&fixture).await, 11);
    let (now, before) = (start + DAY * 10, moment("2026-06-06T00:00:00Z"));
    // Visits that retention has not reached keep theirs.
    assert_eq!(forget(store, now, Some(before)).await, 0);
    while store.forget_visits(before, 3).await.expect("a store") > 0 {}
    assert_eq!(forget(store, now, None).await, 0);
    // One day is left for clocks that differ.
    assert_eq!(forget(store, now, Some(before)).await, 4);
    assert_eq!(agents(&fixture).await, 7);
}

async fn the_agents_of_erased_and_reclassified_visits_are_deleted_unless_others_have_them(
    fixture: Fixture,
) {
    let store = &*fixture.store;
    let start = moment("2026-06-01T12:00:00Z");
    let visits = [
        ("a", "one"),
        ("a", "two"),
        ("b", "two"),
        ("b", "three"),
        ("a", "four"),
    ];
    let visits = visits
        .into_iter()
        .zip(0..)
        .map(|((slug, agent), n)| by(agent, visit(n, slug, "2026-06-01T12:00:00Z")));
    keep_at(store, start, visits.collect()).await;
    assert_eq!(erase_visits(store, &[code("a")], start).await, 3);
    // Not on the same day, nor on the next one: visits may still be on their way.
    for days in 0..2 {
        assert_eq!(forget(store, start + DAY * days, None).await, 0);
    }
    // This one is seen again.
    keep_at(
        store,
        start + DAY,
        vec![by("four", visit(9, "b", "2026-06-02T12:00:00Z"))],
    )
    .await;
    assert_eq!(forget(store, start + DAY * 2, None).await, 1);
    assert_eq!(agents(&fixture).await, 3);
    assert_eq!(fixture.count("visit_agent_checks").await, 0);

    let page = store.visits_after(i64::MIN, TimeSpan::default(), 9).await;
    let verdicts = page.expect("a store").visits.into_iter().map(|visit| {
        let verdict = visit.reclassified(&NewRules).expect("another agent");
        (visit, verdict)
    });
    let later = start + DAY * 7;
    let done = store
        .reclassify_visits(verdicts.collect(), None, later)
        .await;
    assert_eq!(done.expect("a store"), 3);
    assert_eq!(agents(&fixture).await, 6);
    assert_eq!(forget(store, later + DAY * 2, None).await, 3);
    assert_eq!(agents(&fixture).await, 3);
}

async fn agents_that_are_stored_while_they_are_deleted_stay(fixture: Fixture) {
    let start = moment("2026-06-01T12:00:00Z");
    let later = start + DAY * 9;
    for round in 0..5_u64 {
        let store = &*fixture.store;
        let names: Vec<String> = (0..40).map(|n| format!("agent {round} {n}")).collect();
        let visits = |slug: &str, first: u64, at: Timestamp| -> Vec<Visit> {
            let visits = names.iter().zip(first + round * 1000..);
            let visits = visits.map(|(name, n)| by(name, visit(n, slug, &at.to_string())));
            visits.collect()
        };
        let old = format!("old{round}");
        keep_at(store, start, visits(&old, 0, start)).await;
        assert_eq!(erase_visits(store, &[code(&old)], start).await, 40);
        let again = visits("new", 100, later);
        let other = fixture.open().await;
        let ingestion = tokio::spawn(async move {
            for some in again.chunks(4) {
                keep_at(&other, later, some.to_vec()).await;
            }
        });
        forget(store, later, None).await;
        ingestion.await.expect("no panic");
        assert_eq!(agents(&fixture).await, 40 * (round as i64 + 1));
    }
}
