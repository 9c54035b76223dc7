//! Visits of codes that have no number, and of what is no code at all.

use jiff::SignedDuration;
use shortlink_core::link::Link;
use shortlink_core::ports::{Counted, Dimension, OldCounts, TimeSpan, VisitListing};
use shortlink_core::testing::{link, moment};

use super::visits::query;
use crate::testing::*;
use crate::{Store, in_every_store};

in_every_store! {
    visits_of_far_codes_are_found_whether_their_links_are_there_or_come_later,
    visits_of_what_is_no_code_are_kept_and_counted_with_all,
}

/// With a link that has been there before, with one that comes later, and with none.
const CODES: [&str; 3] = ["ABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOQ", "ABCDEFGHIJKLMNOR"];
const AT: &str = "2026-06-01T12:00:00Z";

/// Counts the visits of a link: in the list, in its totals, by hour, by country, and as unique visitors
/// per day.
async fn found(store: &Store, slug: &str) -> [u64; 5] {
    let listing = VisitListing {
        code: Some(code(slug)),
        limit: 100,
        ..VisitListing::default()
    };
    let visits = store.list_visits(&listing).await.expect("a store").items;
    assert!(visits.iter().all(|visit| visit.code == slug));
    let totals = store.visit_totals(&[code(slug), code("other")]).await;
    let totals = totals.expect("a store");
    assert!(totals.iter().all(|total| total.code == code(slug)));
    let query = query(Counted::Link(code(slug)));
    let hours = store.count_visits(&query).await.expect("a store");
    let countries = store.count_by(&query, Dimension::Country).await;
    let days = store.count_visitors(&query).await.expect("a store");
    [
        visits.len() as u64,
        totals.iter().map(|total| total.visits).sum(),
        hours.iter().map(|count| count.visits).sum(),
        countries.expect("a store").iter().map(|it| it.visits).sum(),
        days.iter().map(|day| day.visitors).sum(),
    ]
}

async fn visits_of_far_codes_are_found_whether_their_links_are_there_or_come_later(
    fixture: Fixture,
) {
    let store = &*fixture.store;
    let ending = |slug| Link {
        max_visits: std::num::NonZeroU64::new(3),
        ..link(slug)
    };
    create(store, ending(CODES[0])).await;
    assert_eq!(found(store, CODES[0]).await, [0; 5]);
    for round in 0..2 {
        let visits = (0..3).map(|n| visit(round * 3 + n, CODES[n as usize], AT));
        assert_eq!(keep(store, visits.collect()).await.ended, []);
    }
    create(store, ending(CODES[1])).await;
    for slug in CODES {
        assert_eq!(found(store, slug).await, [2, 2, 2, 2, 1], "{slug}");
    }
    // Visits before the link's creation count towards its limit, as for any code.
    let last = vec![visit(10, CODES[0], AT), visit(11, CODES[1], AT)];
    assert_eq!(
        keep(store, last).await.ended,
        [code(CODES[0]), code(CODES[1])]
    );

    let page = store
        .visits_after(i64::MIN, TimeSpan::default(), 100)
        .await
        .expect("a store");
    let verdicts: Vec<_> = page
        .visits
        .into_iter()
        .map(|visit| {
            let verdict = visit.reclassified(&NewRules).expect("another verdict");
            (visit, verdict)
        })
        .collect();
    let written = store.reclassify_visits(verdicts, None, moment(NOW)).await;
    assert_eq!(written.expect("a store"), 8);
    for (slug, visits) in CODES.into_iter().zip([3, 3, 2]) {
        assert_eq!(found(store, slug).await[..4], [visits; 4], "{slug}");
    }

    let old = OldCounts {
        minutes_before: None,
        hours_before: Some(moment(NOW) + SignedDuration::from_hours(24)),
    };
    while store.forget_counts(old, 2).await.expect("a store") > 0 {}
    assert_eq!(found(store, CODES[2]).await[..3], [2, 2, 0]);
    let codes = CODES.map(code);
    assert_eq!(erase_visits(store, &codes, moment(NOW)).await, 8);
    assert_eq!(found(store, CODES[1]).await[..3], [0, 3, 0]);
}

async fn visits_of_what_is_no_code_are_kept_and_counted_with_all(fixture: Fixture) {
    let store = &*fixture.store;
    let texts = ["no code!", "", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "no code!"];
    let visits = (0..4).map(|n| visit(n, texts[n as usize], AT));
    assert_eq!(keep(store, visits.collect()).await.new.len(), 4);
    let all = store.count_visits(&query(Counted::All)).await;
    assert_eq!(all.expect("a store")[0].visits, 4);
    assert_eq!(fixture.count("visit_link_hours").await, 3);
    let listing = VisitListing {
        limit: 100,
        ..VisitListing::default()
    };
    let listed = store.list_visits(&listing).await.expect("a store").items;
    let codes: Vec<&str> = listed.iter().rev().map(|visit| &*visit.code).collect();
    assert_eq!(codes, texts);
    assert_eq!(found(store, "nobody").await, [0; 5]);
}
