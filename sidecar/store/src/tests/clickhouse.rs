//! Visits in ClickHouse: every answer is the one that SQL gives, and faults lose nothing.
//!
//! `SHORTLINK_VISITS` is the number of random visits.

mod answers;

use std::sync::Arc;

use answers::{DAYS, FIRST_DAY, Pair, random_visit};
use jiff::SignedDuration;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_core::ports::OldCounts;
use shortlink_core::testing::{eventually, link, moment};
use shortlink_core::visit::Visit;

use crate::testing::*;
use crate::{Scheme, Store, VisitsOptions};

/// The default number of random visits.
const VISITS: usize = 6_000;

#[tokio::test]
async fn every_answer_is_that_of_sql() {
    let count = std::env::var("SHORTLINK_VISITS").ok();
    let count = count.map_or(VISITS, |count| count.parse().expect("SHORTLINK_VISITS"));
    let mut random = StdRng::seed_from_u64(11);
    let pair = Pair::new().await;
    let mut stored = 0;
    let mut before: Vec<Visit> = Vec::new();
    while stored < count {
        let new = random.random_range(1..3000).min(count - stored);
        let mut batch: Vec<Visit> = (0..new)
            .map(|n| random_visit(&mut random, (stored + n) as u64))
            .collect();
        stored += new;
        // Some are delivered again, with others.
        let again = random.random_range(0..=before.len().min(50));
        let some: Vec<Visit> = before.sample(&mut random, again).cloned().collect();
        batch.extend(some);
        let [sql, clickhouse] = pair.stores();
        assert_eq!(
            keep(sql, batch.clone()).await,
            keep(clickhouse, batch.clone()).await
        );
        before = batch;
    }
    assert_eq!(pair.clickhouse.count("visits").await, count as i64);
    pair.compare(&mut random).await;
    pair.reclassify().await;
    pair.compare(&mut random).await;
    let until = moment(FIRST_DAY) + SignedDuration::from_hours(24 * DAYS / 2)
        - SignedDuration::from_millis(1);
    let erased = &pair.codes[10..14];
    pair.same("erased", async |store| {
        erase_visits(store, erased, until).await
    })
    .await;
    pair.compare(&mut random).await;
    let hours_before =
        Some(moment(FIRST_DAY) + SignedDuration::from_hours(24 * DAYS / 3 / 24 * 24));
    for store in pair.stores() {
        let old = OldCounts {
            minutes_before: None,
            hours_before,
        };
        while store.forget_counts(old, 10_000).await.expect("a store") > 0 {}
    }
    pair.compare(&mut random).await;
}

#[tokio::test]
async fn visits_are_moved_with_their_counts_and_answers_stay() {
    for scheme in [Scheme::Sqlite, Scheme::Postgres] {
        let mut random = StdRng::seed_from_u64(12);
        let mut pair = Pair::of(
            Fixture::new(Scheme::Sqlite).await,
            Fixture::new(scheme).await,
        )
        .await;
        let visits: Vec<Visit> = (0..4000).map(|n| random_visit(&mut random, n)).collect();
        for store in pair.stores() {
            keep(store, visits.clone()).await;
            erase_visits(store, &pair.codes[3..5], moment("2026-04-10T00:00:00Z")).await;
        }
        let process = Arc::clone(&pair.clickhouse.store);
        let mut options = pair.clickhouse.options.clone();
        options.visits = Some(VisitsOptions {
            url: new_clickhouse(),
            retention_days: None,
        });
        crate::migrate(&options, &KEY)
            .await
            .expect("a running server");
        // Again, nothing happens.
        crate::migrate(&options, &KEY)
            .await
            .expect("a running server");
        assert_eq!(pair.clickhouse.count("visits").await, 0);
        assert_eq!(pair.clickhouse.count("visit_link_hours").await, 0);
        // Nothing would correct or erase clicks there.
        for table in ["link_clicks", "campaign_clicks"] {
            assert!(pair.sql.count(table).await > 0);
            assert_eq!(pair.clickhouse.count(table).await, 0);
        }
        // A process that does not know it stores nothing.
        let lost = process
            .keep_visits(vec![random_visit(&mut random, 9000)], moment(NOW))
            .await;
        let lost = lost.expect_err("visits are elsewhere");
        assert!(
            lost.source.to_string().contains("visits.clickhouse"),
            "{}",
            lost.source
        );
        pair.clickhouse.store = crate::open(&options).await.expect("a migrated database");
        pair.clickhouse.options = options;
        pair.compare(&mut random).await;
        // The same visits are delivered again, with others.
        let more: Vec<Visit> = visits[..50]
            .iter()
            .cloned()
            .chain([random_visit(&mut random, 9000)])
            .collect();
        let [sql, clickhouse] = pair.stores();
        assert_eq!(keep(sql, more.clone()).await, keep(clickhouse, more).await);
        pair.reclassify().await;
        pair.compare(&mut random).await;
        let codes = &pair.codes;
        assert_eq!(pair.stores().map(Store::counts_clicks), [true, false]);
        let clicks = pair.clickhouse.store.link_clicks(codes).await;
        assert_eq!(clicks.expect("a store"), None);
        assert_eq!(pair.clickhouse.count("link_clicks").await, 0);
    }
}

#[tokio::test]
async fn an_export_continues_after_the_move() {
    let mut fixture = Fixture::new(Scheme::Sqlite).await;
    keep(&fixture.store, vec![visit(0, "a", "2026-06-01T12:00:00Z")]).await;
    erase_visits(&fixture.store, &[code("a")], moment("2026-06-01T13:00:00Z")).await;
    let before = fixture.store.visits_to_export().await.expect("a store");
    fixture.options.visits = Some(VisitsOptions {
        url: new_clickhouse(),
        retention_days: None,
    });
    crate::migrate(&fixture.options, &KEY)
        .await
        .expect("a running server");
    let moved = fixture.open().await;
    keep(&moved, vec![visit(1, "b", "2026-06-01T14:00:00Z")]).await;
    let after = moved.visits_to_export().await.expect("a store");
    let exported = moved.exported_visits(before.stored, after.stored, 10).await;
    let exported = exported.expect("a store");
    assert_eq!(exported.len(), 1, "{before:?}, {after:?}");
    assert_eq!(exported[0].visit.code, "b");
}

#[tokio::test]
async fn a_link_ends_by_visits_from_before_it_had_a_limit() {
    let fixture = Fixture::with_clickhouse(Scheme::Sqlite).await;
    let store = &*fixture.store;
    create(store, link("late")).await;
    keep(
        store,
        (0..3)
            .map(|n| visit(n, "late", "2026-06-01T12:00:00Z"))
            .collect(),
    )
    .await;
    fixture.execute("UPDATE links SET max_visits = 5").await;
    let fourth = keep(store, vec![visit(3, "late", "2026-06-01T12:00:01Z")]).await;
    assert_eq!(fourth.ended, []);
    let fifth = keep(store, vec![visit(4, "late", "2026-06-01T12:00:02Z")]).await;
    assert_eq!(fifth.ended, [code("late")]);
}

#[tokio::test]
async fn a_batch_that_was_stored_and_not_inserted_is_inserted_later() {
    let fixture = Fixture::with_clickhouse(Scheme::Sqlite).await;
    let (first, other) = (&*fixture.store, fixture.open().await);
    keep(first, vec![visit(0, "a", "2026-06-01T12:00:00Z")]).await;
    // As after a kill: the batch is in SQL, and it is unknown whether ClickHouse has it.
    fixture.execute("CREATE TABLE kept AS SELECT * FROM visit_batches; CREATE TRIGGER keep AFTER INSERT ON visit_batches \
         BEGIN INSERT INTO kept VALUES (NEW.id, NEW.stored_at, NEW.rows); END").await;
    let visits = vec![
        visit(1, "a", "2026-06-01T12:00:00Z"),
        visit(2, "b", "2026-06-01T12:00:00Z"),
    ];
    keep(first, visits.clone()).await;
    fixture.execute("DROP TRIGGER keep").await;
    for _ in 0..2 {
        fixture
            .execute("INSERT INTO visit_batches SELECT * FROM kept")
            .await;
        other.flush_visits().await.expect("a store");
        assert_eq!(fixture.count("visit_batches").await, 0);
        assert_eq!(fixture.count("visits").await, 3);
    }
    assert_eq!(keep(&other, visits).await.new, [0; 0]);
    let totals = other
        .visit_totals(&[code("a"), code("b")])
        .await
        .expect("a store");
    assert_eq!(totals.iter().map(|total| total.visits).sum::<u64>(), 3);
}

#[tokio::test]
async fn another_place_of_visits_is_refused() {
    let fixture = Fixture::with_clickhouse(Scheme::Sqlite).await;
    let mut options = fixture.options.clone();
    options.visits = None;
    let refused = crate::open(&options)
        .await
        .err()
        .expect("visits are elsewhere");
    assert!(
        refused.to_string().contains("visits.clickhouse"),
        "{refused}"
    );
    let sql = Fixture::new(Scheme::Sqlite).await;
    let mut options = sql.options.clone();
    options.visits = fixture.options.visits.clone();
    let refused = crate::open(&options)
        .await
        .err()
        .expect("visits are in SQL");
    assert!(
        refused.to_string().contains("shortlink migrate"),
        "{refused}"
    );
}

#[tokio::test]
async fn clickhouse_deletes_visits_after_their_time() {
    let mut fixture = Fixture::with_clickhouse(Scheme::Sqlite).await;
    let visits = fixture.options.visits.as_mut().expect("ClickHouse");
    visits.retention_days = Some(1);
    let store = fixture.open().await;
    let old = visit(0, "a", "2026-06-01T12:00:00Z");
    let new = Visit {
        at: SystemClock.now(),
        ..visit(1, "a", "2026-06-01T12:00:00Z")
    };
    keep(&store, vec![old, new]).await;
    eventually("the old visit is gone", async || {
        fixture.count("visits").await == 1
    })
    .await;
    let totals = store.visit_totals(&[code("a")]).await.expect("a store");
    assert_eq!(totals[0].visits, 2);
}

#[tokio::test]
async fn a_restored_database_numbers_visits_anew() {
    let fixture = Fixture::with_clickhouse(Scheme::Sqlite).await;
    let before = (0..3).map(|n| visit(n, "a", "2026-06-01T12:00:00Z"));
    keep(&fixture.store, before.collect()).await;
    // As it was before the visits.
    fixture
        .execute("UPDATE visit_sink SET batches = 0, numbers = 0")
        .await;
    let restored = fixture.open().await;
    let new = (3..5).map(|n| visit(n, "a", "2026-06-01T13:00:00Z"));
    keep(&restored, new.collect()).await;
    assert_eq!(fixture.count("visits").await, 5);
    let totals = restored.visit_totals(&[code("a")]).await.expect("a store");
    assert_eq!(totals[0].visits, 5);
}
