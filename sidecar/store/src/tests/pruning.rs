//! Old counts are deleted, except the numbers of visits of links.

use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shortlink_core::link::Link;
use shortlink_core::ports::{CountQuery, Counted, LinkTotal, OldCounts, TimeSpan};
use shortlink_core::testing::{link, moment};
use shortlink_core::visit::class::Class;

use super::visits::{of_class, query};
use crate::testing::*;
use crate::{Store, in_every_store};

in_every_store! {
    old_counts_are_forgotten_a_few_at_a_time_and_links_keep_their_totals,
    totals_are_right_when_visits_are_classified_again_before_or_after_their_hours_are_forgotten,
    the_days_on_which_visits_were_recorded_are_known,
}

const LONG_AGO: &str = "2024-01-01T10:00:00Z";

fn old() -> OldCounts {
    let before = Some(moment(NOW) - SignedDuration::from_hours(24 * 300));
    OldCounts {
        minutes_before: before,
        hours_before: before,
    }
}

/// Forgets all that is old; answers how many rows that were.
async fn forget(store: &Store) -> u64 {
    let mut gone = 0;
    loop {
        match store.forget_counts(old(), 7).await.expect("a store") {
            0 => return gone,
            some => {
                // Minutes, hours of links, hours, values, and days.
                assert!(some <= 5 * 7, "{some}");
                gone += some;
            }
        }
    }
}

fn always(of: Counted) -> CountQuery {
    CountQuery {
        since: Timestamp::MIN,
        ..query(of)
    }
}

async fn totals(store: &Store, slugs: &[&str]) -> Vec<LinkTotal> {
    let codes: Vec<_> = slugs.iter().map(|slug| code(slug)).collect();
    let mut totals = store.visit_totals(&codes).await.expect("a store");
    totals.sort_unstable_by_key(|total| total.code.to_string());
    totals
}

async fn counted(store: &Store, of: Counted) -> u64 {
    let counts = store.count_visits(&always(of)).await.expect("a store");
    counts.iter().map(|count| count.visits).sum()
}

async fn old_counts_are_forgotten_a_few_at_a_time_and_links_keep_their_totals(fixture: Fixture) {
    let store = &*fixture.store;
    let three = Link {
        max_visits: NonZeroU64::new(21),
        ..link("three")
    };
    create(store, three).await;
    let mut visits = Vec::new();
    for n in 0..40_u32 {
        let at = moment(LONG_AGO) + SignedDuration::from_hours(i64::from(n / 2));
        let slug = if n % 2 == 0 { "three" } else { "four" };
        visits.push(visit(u64::from(n), slug, &at.to_string()));
    }
    visits.push(of_class(Class::Bot, visit(90, "three", NOW)));
    assert_eq!(keep(store, visits).await.ended, []);
    let before = totals(store, &["three", "four"]).await;
    assert_eq!(
        before
            .iter()
            .map(|it| (it.visits, it.human))
            .collect::<Vec<_>>(),
        [(20, 20), (21, 20)]
    );
    let (one, two) = (fixture.open().await, fixture.open().await);
    let tasks = [one, two].map(|store| tokio::spawn(async move { forget(&store).await }));
    let mut gone = 0;
    for task in tasks {
        gone += task.await.expect("no panic");
    }
    // 20 minutes, 40 hours of links, 20 hours by 9 dimensions, 3 values on each of two days, and two days.
    assert_eq!(gone, 20 + 40 + 180 + 6 + 2);
    assert_eq!(totals(store, &["three", "four"]).await, before);
    assert_eq!(counted(store, Counted::Link(code("three"))).await, 1);
    assert_eq!(counted(store, Counted::Link(code("four"))).await, 0);
    assert_eq!(counted(store, Counted::All).await, 1);
    assert_eq!(
        store
            .count_visitors(&always(Counted::All))
            .await
            .expect("a store"),
        []
    );
    let minutes = store.count_domains(Timestamp::UNIX_EPOCH).await;
    assert_eq!(minutes.expect("a store").len(), 1);
    assert_eq!(fixture.count("visit_link_hours").await, 3);
    // Late visits are added, and earlier visits count towards a link's limit.
    let late = vec![visit(91, "three", LONG_AGO)];
    assert_eq!(keep(store, late).await.ended, [code("three")]);
    assert!(forget(store).await > 0);
    assert_eq!(fixture.count("visit_link_hours").await, 3);
    assert_eq!(totals(store, &["three"]).await[0].visits, 22);
    assert_eq!(forget(store).await, 0);
    // Nothing is forgotten that is to be kept for ever.
    keep(store, vec![visit(92, "three", LONG_AGO)]).await;
    let none = store.forget_counts(OldCounts::default(), 7).await;
    assert_eq!(none.expect("a store"), 0);
}

async fn totals_are_right_when_visits_are_classified_again_before_or_after_their_hours_are_forgotten(
    fixture: Fixture,
) {
    let store = &*fixture.store;
    let since = old().hours_before;
    for (sequence, slug) in [(0, "first"), (10, "then")] {
        let visits = (0..4).map(|n| visit(sequence + n, slug, LONG_AGO));
        keep(store, visits.collect()).await;
        let mut page = store
            .visits_after(i64::MIN, TimeSpan::default(), 100)
            .await
            .expect("a store");
        page.visits.retain(|visit| visit.code == slug);
        let verdicts: Vec<_> = page.visits[..3]
            .iter()
            .map(|visit| {
                let mut verdict = visit.reclassified(&NewRules).expect("another agent");
                verdict.classification.class = Class::Bot;
                (visit.clone(), verdict)
            })
            .collect();
        let total = LinkTotal {
            code: code(slug),
            visits: 4,
            human: 1,
            refused: 0,
            last_at: moment(LONG_AGO),
        };
        if slug == "then" {
            forget(store).await;
        }
        let written = store.reclassify_visits(verdicts, since, moment(NOW)).await;
        assert_eq!(written.expect("a store"), 3);
        assert_eq!(totals(store, &[slug]).await, [total]);
        forget(store).await;
        assert_eq!(totals(store, &[slug]).await, [total]);
    }
    assert_eq!(fixture.count("visit_hours").await, 0);
    assert_eq!(fixture.count("visit_stale_sketches").await, 0);
}

async fn the_days_on_which_visits_were_recorded_are_known(fixture: Fixture) {
    let store: Arc<Store> = Arc::clone(&fixture.store);
    let recorded = async |days| {
        let before = moment("2026-06-01T00:00:00Z");
        store.recorded_days(before, days).await.expect("a store")
    };
    assert_eq!(recorded(1).await, None);
    let visits = [
        "2026-06-01T00:00:00Z",
        "2026-05-31T23:59:59Z",
        "2026-05-31T00:00:00Z",
        "2026-05-28T12:00:00Z",
        "2026-05-27T12:00:00Z",
        "2025-12-24T12:00:00Z",
    ];
    let visits = visits.into_iter().enumerate();
    let visits = visits.map(|(n, at)| of_class(Class::Bot, visit(n as u64, "abc", at)));
    keep(&store, visits.collect()).await;
    for (days, begin) in [
        (1, Some("2026-05-31T00:00:00Z")),
        (2, Some("2026-05-28T00:00:00Z")),
        (3, Some("2026-05-27T00:00:00Z")),
        (4, Some("2025-12-24T00:00:00Z")),
        (5, None),
    ] {
        assert_eq!(recorded(days).await, begin.map(moment), "{days}");
    }
}
