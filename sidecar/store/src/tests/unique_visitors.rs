//! Unique visitors of days, in sketches of every form.

use jiff::SignedDuration;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use shortlink_core::ports::{Counted, OldCounts, StaleDay};
use shortlink_core::testing::moment;
use shortlink_core::visit::Visit;
use shortlink_core::visit::sketch::Sketch;
use shortlink_core::visit::visitor::VisitorId;
use sqlx::AssertSqlSafe;

use super::visits::query;
use crate::testing::*;
use crate::{Scheme, Store, in_every_store};

in_every_store! {
    visitors_are_counted_while_a_set_grows_and_is_replaced,
    a_day_that_an_earlier_version_has_begun_goes_on,
}

const DAY: i64 = 20_605;
const AT: &str = "2026-06-01T12:00:00Z";

fn visitor(number: u64) -> VisitorId {
    let digest = Sha256::digest(number.to_be_bytes());
    VisitorId(digest[..16].try_into().expect("16 bytes"))
}

/// Stores visits of some visitors, each of their own, twice.
async fn keep_visitors(store: &Store, numbers: std::ops::Range<u64>) {
    let visits = numbers.flat_map(|number| {
        [0, 1].map(|again| Visit {
            visitor: Some(visitor(number)),
            ..visit(2 * number + again, "abc", AT)
        })
    });
    keep(store, visits.collect()).await;
}

async fn visitors(store: &Store) -> u64 {
    let days = store.count_visitors(&query(Counted::All)).await;
    days.expect("a store").iter().map(|day| day.visitors).sum()
}

async fn visitors_are_counted_while_a_set_grows_and_is_replaced(fixture: Fixture) {
    let store = &*fixture.store;
    keep_visitors(store, 0..300).await;
    assert_eq!(visitors(store).await, 300);
    assert_eq!(fixture.count("visit_sketch_parts").await, 0);
    let is_near = |found: u64, wanted: f64| (found as f64 / wanted - 1.0).abs() < 0.02;
    for (first, last) in [(300, 600), (600, 601), (601, 2_000)] {
        keep_visitors(store, first..last).await;
        let found = visitors(store).await;
        assert!(is_near(found, last as f64), "{last}: {found}");
        assert_eq!(fixture.count("visit_sketch_parts").await, 32);
    }
    // Visitors who are known change nothing.
    let before = visitors(store).await;
    let known = (0..50).map(|number| Visit {
        visitor: Some(visitor(number)),
        ..visit(10_000 + number, "abc", AT)
    });
    keep(store, known.collect()).await;
    assert_eq!(visitors(store).await, before);
    // A small set replaces a large one, and grows again: nothing of the large one is left.
    let mut few = Sketch::default();
    (5_000..5_010).for_each(|number| few.add(visitor(number)));
    let stale =
        "INSERT INTO visit_stale_sketches (campaign_id, day, generation) VALUES (0, 20605, 1)";
    fixture.execute(stale).await;
    let day = StaleDay {
        campaign: 0,
        day: DAY,
        generation: 1,
    };
    let replaced = store.replace_people(vec![(day, few)]).await;
    assert_eq!(replaced.expect("a store").len(), 1);
    assert_eq!(visitors(store).await, 10);
    keep_visitors(store, 6_000..7_000).await;
    let found = visitors(store).await;
    assert!(is_near(found, 1_010.0), "{found}");
    // The parts are deleted with the day.
    let old = OldCounts {
        hours_before: Some(moment(NOW) + SignedDuration::from_hours(48)),
        ..OldCounts::default()
    };
    while store.forget_counts(old, 7).await.expect("a store") > 0 {}
    assert_eq!(fixture.count("visit_sketches").await, 0);
    assert_eq!(fixture.count("visit_sketch_parts").await, 0);
}

async fn a_day_that_an_earlier_version_has_begun_goes_on(fixture: Fixture) {
    let store = &*fixture.store;
    let url = fixture.options.url.expose_secret();
    let registers = match Scheme::of(url).expect("a scheme") {
        Scheme::Sqlite => "zeroblob(4096)",
        Scheme::Postgres => "decode(repeat('00', 4096), 'hex')",
    };
    fixture
        .execute(&format!(
            "INSERT INTO visit_sketches (campaign_id, day, registers) VALUES (0, {DAY}, {registers})"
        ))
        .await;
    keep_visitors(store, 0..1_000).await;
    let found = visitors(store).await;
    assert!((found as f64 / 1_000.0 - 1.0).abs() < 0.065, "{found}");
    assert_eq!(fixture.count("visit_sketch_parts").await, 0);
    let bytes = "visit_sketches WHERE length(registers) = 4096 AND visitors IS NULL";
    assert_eq!(fixture.count(bytes).await, 1);
    // A process of that version still runs: it replaces the registers, and knows no estimate beside them.
    fixture
        .execute("UPDATE visit_sketches SET visitors = 5")
        .await;
    assert_eq!(visitors(store).await, found);
}

#[tokio::test]
async fn retention_waits_for_no_count_that_others_have_locked() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let store = &*fixture.store;
    keep_visitors(store, 0..1_000).await;
    let tables = [
        "visit_sketches",
        "visit_hours",
        "visit_values",
        "visit_link_hours",
        "visit_domain_minutes",
    ];
    let mut other = connect(fixture.options.url.expose_secret()).await;
    let locks = tables.map(|table| format!("; SELECT 1 FROM {table} FOR UPDATE"));
    let locked = AssertSqlSafe(format!("BEGIN{}", locks.concat()));
    let locked = sqlx::raw_sql(locked).execute(&mut other).await;
    locked.expect("a server");
    let after = Some(moment(NOW) + SignedDuration::from_hours(48));
    let old = OldCounts {
        minutes_before: after,
        hours_before: after,
    };
    let forget = async || store.forget_counts(old, 1_000).await.expect("a store");
    assert_eq!(forget().await, 0);
    // A sketch goes with its parts, or stays with all of them.
    assert_eq!(fixture.count("visit_sketch_parts").await, 32);
    let ended = sqlx::raw_sql("ROLLBACK").execute(&mut other).await;
    ended.expect("a server");
    while forget().await > 0 {}
    for table in tables {
        // The total of the link stays.
        let left = i64::from(table == "visit_link_hours");
        assert_eq!(fixture.count(table).await, left, "{table}");
    }
    assert_eq!(fixture.count("visit_sketch_parts").await, 0);
}
