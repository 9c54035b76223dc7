//! Visitors choose some values, so only the first ones of a day are counted by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use shortlink_core::ports::{
    CountQuery, Counted, Dimension, MAX_VALUES, OTHER, OldCounts, TimeSpan,
};
use shortlink_core::testing::moment;
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;

use super::visits::{create_member, query};
use crate::testing::*;
use crate::{Store, in_every_store_of_visits};

in_every_store_of_visits! {
    the_first_values_of_a_day_have_names_and_all_add_up,
    visits_without_a_name_are_found_when_they_are_classified_again,
    values_of_old_days_are_forgotten_and_leave_room,
}

const SEVERAL: usize = 5000;

fn from(referrer: &str, visit: Visit) -> Visit {
    Visit {
        referrer_host: Some(referrer.to_owned()),
        ..visit
    }
}

/// The counts of a day by a dimension: by value and class.
async fn counts(
    store: &Store,
    query: CountQuery,
    dimension: Dimension,
) -> BTreeMap<(String, &'static str), u64> {
    let counts = store.count_by(&query, dimension).await.expect("a store");
    let counts = counts.into_iter();
    counts
        .map(|it| ((it.value, it.class.name()), it.visits))
        .collect()
}

async fn referrers(store: &Store, of: Counted) -> BTreeMap<(String, &'static str), u64> {
    counts(store, query(of), Dimension::Referrer).await
}

/// Stores visits as the sidecar does, which tries again: on a busy machine, one process can keep SQLite's only lock from
/// another for longer than the store waits.
async fn keep_at_last(store: &Store, visits: &[Visit]) {
    for _ in 0..10 {
        match store.keep_visits(visits.to_vec(), moment(NOW)).await {
            Err(error) if error.source.to_string().contains("database is locked") => {}
            kept => {
                kept.expect("a working store");
                return;
            }
        }
    }
    panic!("the database stays locked");
}

async fn the_first_values_of_a_day_have_names_and_all_add_up(fixture: Fixture) {
    let store = &*fixture.store;
    let id = create_member(store).await;
    keep(
        store,
        vec![from(
            "known.example",
            visit(0, "member", "2026-06-01T10:00:00Z"),
        )],
    )
    .await;
    // Two processes store at the same time; each host comes in two hours.
    let mut tasks = Vec::new();
    for process in 0..2_usize {
        let other = fixture.open().await;
        tasks.push(tokio::spawn(async move {
            for hour in [12, 13] {
                let all = (0..SEVERAL).filter(|n| n % 2 == process);
                let all = all.map(|n| {
                    let sequence = hour * 10_000 + n as u64;
                    let at = format!("2026-06-01T{hour}:00:00Z");
                    from(&format!("{n}.example"), visit(sequence, "member", &at))
                });
                for some in all.collect::<Vec<_>>().chunks(500) {
                    keep_at_last(&other, some).await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    // A value that has its name keeps it, whatever comes; one like the rest is of the rest.
    let late = [("known.example", 1), (OTHER, 2), ("late.example", 3)];
    let late = late.map(|(referrer, n)| from(referrer, visit(n, "member", "2026-06-01T14:00:00Z")));
    keep(store, late.to_vec()).await;
    // A visit without a referrer, and another day.
    keep(store, vec![visit(4, "member", "2026-06-01T14:00:00Z")]).await;
    keep(
        store,
        vec![from(
            "late.example",
            visit(5, "member", "2026-06-02T00:00:00Z"),
        )],
    )
    .await;

    let named = usize::try_from(MAX_VALUES).expect("few");
    let all = 2 * SEVERAL as u64 + 5;
    for of in [Counted::All, Counted::Campaign(id)] {
        let counts = referrers(store, of).await;
        assert_eq!(counts.values().sum::<u64>(), all);
        let [known, rest, none] = ["known.example", OTHER, ""]
            .map(|value| counts.get(&(value.to_owned(), "human")).copied());
        assert_eq!((known, none), (Some(2), Some(1)));
        assert_eq!(rest, Some(all - 3 - 2 * (MAX_VALUES as u64 - 1)));
        assert_eq!(counts.len(), named + 2);
        // Each other value was counted in both hours.
        assert!(
            counts
                .iter()
                .all(|(of, visits)| of.0.is_empty() || *visits >= 2)
        );
        let next_day = CountQuery {
            since: moment("2026-06-02T00:00:00Z"),
            until: moment("2026-06-03T00:00:00Z"),
            of,
        };
        let late = counts_of(store, next_day).await;
        assert_eq!(late, [("late.example".to_owned(), 1)]);
    }
    let rows = "visit_hours WHERE campaign_id = 0 AND dimension = 'referrer' AND hour % 24 = 12";
    assert_eq!(fixture.count(rows).await, MAX_VALUES);
}

async fn counts_of(store: &Store, query: CountQuery) -> Vec<(String, u64)> {
    let counts = counts(store, query, Dimension::Referrer).await;
    counts
        .into_iter()
        .map(|(of, visits)| (of.0, visits))
        .collect()
}

async fn visits_without_a_name_are_found_when_they_are_classified_again(fixture: Fixture) {
    let store: &Arc<Store> = &fixture.store;
    let visits = (0..2 * MAX_VALUES as u64).map(|n| {
        // Each browser is one of its own, too.
        let mut visit = from(
            &format!("{n}.example"),
            visit(n, "abc", "2026-06-01T12:00:00Z"),
        );
        let mut agent = (*visit.agent).clone();
        if let Some(browser) = &mut agent.browser {
            browser.name = format!("Browser of {n}");
        }
        visit.agent = Arc::new(agent);
        visit
    });
    keep(store, visits.collect()).await;
    let before = referrers(store, Counted::All).await;
    let time = TimeSpan::default();
    let page = store
        .visits_after(i64::MIN, time, 5000)
        .await
        .expect("a store");
    assert_eq!(page.visits.len(), 2000);
    let verdicts = page.visits.into_iter().map(|visit| {
        let mut verdict = visit.reclassified(&NewRules).expect("another agent");
        verdict.classification.class = Class::Bot;
        (visit, verdict)
    });
    let verdicts: Vec<_> = verdicts.collect();
    // The last ones first: those that have no name.
    for some in verdicts.rchunks(500) {
        let changed = store
            .reclassify_visits(some.to_vec(), None, moment(NOW))
            .await;
        assert_eq!(changed.expect("a store"), 500);
    }
    let expected = before
        .into_iter()
        .map(|((value, _), visits)| ((value, "bot"), visits));
    assert_eq!(referrers(store, Counted::All).await, expected.collect());
    let browsers = counts(store, query(Counted::All), Dimension::Browser).await;
    assert_eq!(
        browsers,
        BTreeMap::from([((OTHER.to_owned(), "bot"), 2000)])
    );
}

async fn values_of_old_days_are_forgotten_and_leave_room(fixture: Fixture) {
    let store = &*fixture.store;
    let days = ["2026-06-01T12:00:00Z", "2026-06-02T12:00:00Z"];
    for (n, at) in days.into_iter().enumerate() {
        keep(store, vec![visit(n as u64, "abc", at)]).await;
    }
    // The domain, the browser and the system of each day.
    assert_eq!(fixture.count("visit_values").await, 6);
    let old = |before| OldCounts {
        hours_before: Some(moment(before)),
        ..OldCounts::default()
    };
    // Some hours of the second day are still counted.
    for (before, left) in [("2026-06-02T13:00:00Z", 3), ("2026-06-03T00:00:00Z", 0)] {
        while store.forget_counts(old(before), 7).await.expect("a store") > 0 {}
        assert_eq!(fixture.count("visit_values").await, left);
    }
}
