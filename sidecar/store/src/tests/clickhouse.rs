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
use shortlink_clickhouse::Numbers;
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_core::link::{Destination, Link, ParameterValues};
use shortlink_core::ports::{Counted, Dimension, OldCounts, TimeSpan, VisitListing};
use shortlink_core::testing::{campaign, eventually, link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::{Class, Classification};
use shortlink_core::visit::stored::Verdict;
use vocabulary::CampaignId;

use super::clicks::erase_campaign;
use super::visits::query;
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
            // Of links with clicks, which stay counted in their campaigns.
            let deleted = pair.codes[20..22].iter().map(|code| (*code, 1)).collect();
            let deleted = store.delete_links(deleted, moment(NOW)).await;
            assert_eq!(deleted.expect("a store"), 2);
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
    }
}

#[tokio::test]
async fn tables_without_variants_get_them_by_the_migration() {
    let mut fixture = Fixture::with_clickhouse(Scheme::Sqlite).await;
    create(&fixture.store, link("a")).await;
    keep(&fixture.store, vec![visit(0, "a", NOW)]).await;
    fixture.execute_in_clickhouse("ALTER TABLE visits DROP COLUMN variant");
    fixture.execute_in_clickhouse("ALTER TABLE visits_owner UPDATE version = 2 WHERE 1");
    let found = fixture
        .open()
        .await
        .count_visits(&query(Counted::Link(code("a"))))
        .await;
    let refused = found.expect_err("tables of another version").source;
    assert!(refused.to_string().contains("shortlink migrate"));
    let applied = crate::migrate(&fixture.options, &KEY).await;
    assert_eq!(applied.expect("a good database"), 0);
    fixture.store = fixture.open().await;
    let mut named = visit(1, "a", NOW);
    named.variant = Some("b".to_owned());
    keep(&fixture.store, vec![named]).await;
    let counts = fixture
        .store
        .count_by(&query(Counted::Link(code("a"))), Dimension::Variant)
        .await;
    let counts = counts.expect("a store").into_iter();
    let counts: Vec<_> = counts.map(|it| (it.value, it.visits)).collect();
    assert_eq!(counts, [(String::new(), 1), ("b".to_owned(), 1)]);
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
    create(first, link("a")).await;
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
        let clicks = other.link_clicks(&[code("a"), code("b")]).await;
        let clicks = clicks.expect("a store").into_iter();
        assert_eq!(clicks.map(|(_, it)| it.visits).collect::<Vec<_>>(), [2]);
    }
    assert_eq!(keep(&other, visits).await.new, [0; 0]);
    let totals = other
        .visit_totals(&[code("a"), code("b")])
        .await
        .expect("a store");
    assert_eq!(totals.iter().map(|total| total.visits).sum::<u64>(), 3);
}

/// The clicks of a link, and of its campaign by hour.
async fn clicks_of(store: &Store, id: CampaignId) -> (u64, Vec<(String, u64)>) {
    let clicks = store.link_clicks(&[code("a")]).await.expect("a store");
    let hours = store.first_clicks(id).await.expect("a store").into_iter();
    (
        clicks.first().map_or(0, |(_, it)| it.visits),
        hours.map(|it| (it.hour.to_string(), it.links)).collect(),
    )
}

async fn link_of_campaign(store: &Store, id: CampaignId, created_at: &str) {
    let new = Link {
        created_at: moment(created_at),
        destination: Destination::Campaign {
            id,
            values: ParameterValues::default(),
        },
        ..link("a")
    };
    create(store, new).await;
}

#[tokio::test]
async fn contributions_count_once_and_those_of_an_earlier_link_of_a_code_for_its_campaign_only() {
    let fixture = Fixture::with_clickhouse(Scheme::Sqlite).await;
    let store = &*fixture.store;
    let id = store.create_campaign(&campaign()).await.expect("room");
    link_of_campaign(store, id, "2026-05-01T00:00:00Z").await;
    let visits = ["2026-05-02T12:10:00Z", "2026-05-02T12:20:00Z"];
    let visits = visits.into_iter().zip(0..);
    keep(store, visits.map(|(at, n)| visit(n, "a", at)).collect()).await;
    let hour = |text: &str| (format!("2026-{text}:00:00Z"), 1);
    let first = (2, vec![hour("05-02T12")]);
    assert_eq!(clicks_of(store, id).await, first);
    // As an insertion whose token ClickHouse has forgotten, before the rows are merged.
    fixture.execute_in_clickhouse("SYSTEM STOP MERGES link_clicks");
    fixture.execute_in_clickhouse("INSERT INTO link_clicks SELECT * FROM link_clicks");
    assert_eq!(clicks_of(store, id).await, first);
    fixture.execute_in_clickhouse("SYSTEM START MERGES link_clicks");
    // The code is given to another link.
    let deleted = store.delete_links(vec![(code("a"), 1)], moment(NOW)).await;
    assert_eq!(deleted.expect("a store"), 1);
    store.free_codes(vec![code("a")]).await.expect("a store");
    link_of_campaign(store, id, "2026-05-20T00:00:00Z").await;
    assert_eq!(clicks_of(store, id).await, (0, vec![hour("05-02T12")]));
    keep(store, vec![visit(2, "a", "2026-05-21T08:00:00Z")]).await;
    let both = (1, vec![hour("05-02T12"), hour("05-21T08")]);
    assert_eq!(clicks_of(store, id).await, both);
    // Only visits of the later link are corrected.
    for (class, expected) in [
        (Class::Bot, (0, vec![hour("05-02T12")])),
        (Class::Human, both.clone()),
    ] {
        let page = store.visits_after(0, TimeSpan::default(), 10).await;
        let judged = page.expect("a store").visits.into_iter().map(|stored| {
            let judged = visit(0, "a", NOW);
            let verdict = Verdict {
                classification: Classification {
                    class,
                    reason: "judged",
                    ruleset: stored.ruleset + 1,
                },
                agent: judged.agent,
            };
            (stored, verdict)
        });
        let done = store.reclassify_visits(judged.collect(), None, moment(NOW));
        assert_eq!(done.await.expect("a store"), 3);
        assert_eq!(clicks_of(store, id).await, expected);
    }
    // Erasure leaves nothing but hours of them.
    erase_visits(store, &[code("a")], moment(NOW)).await;
    assert_eq!(clicks_of(store, id).await, (0, vec![hour("05-02T12")]));
    let exact = fixture.count_in_clickhouse(
        "link_clicks WHERE visits > 0 AND (first_at != toStartOfHour(first_at) OR lasted > 0)",
    );
    assert_eq!(exact, 0);
    assert_eq!(
        fixture.count_in_clickhouse("link_clicks WHERE created = 1779235200000 AND visits > 0"),
        0
    );
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

#[tokio::test]
async fn the_erasure_of_a_campaign_leaves_no_exact_time_of_a_deleted_link() {
    let fixture = Fixture::with_clickhouse(Scheme::Sqlite).await;
    let store = &*fixture.store;
    let id = store.create_campaign(&campaign()).await.expect("room");
    link_of_campaign(store, id, "2026-05-01T00:00:00Z").await;
    let visits = ["2026-05-02T12:10:00Z", "2026-05-02T12:20:00Z"];
    let visits = visits.into_iter().zip(0..);
    keep(store, visits.map(|(at, n)| visit(n, "a", at)).collect()).await;
    let deleted = store.delete_links(vec![(code("a"), 1)], moment(NOW)).await;
    assert_eq!(deleted.expect("a store"), 1);
    let exact = "link_clicks FINAL WHERE lasted > 0 OR toStartOfHour(first_at) != first_at";
    assert_eq!(fixture.count_in_clickhouse(exact), 1);
    erase_campaign(store, id, moment(NOW)).await;
    assert_eq!(fixture.count_in_clickhouse(exact), 0);
    let first = vec![("2026-05-02T12:00:00Z".to_owned(), 1)];
    assert_eq!(clicks_of(store, id).await, (0, first));
}

#[tokio::test]
async fn a_server_that_lost_numbers_draws_none_of_them_while_sidecars_go_on() {
    for scheme in [Scheme::Sqlite, Scheme::Postgres] {
        let fixture = Fixture::with_clickhouse(scheme).await;
        let store = &fixture.store;
        let before = (0..3).map(|n| visit(n, "a", "2026-06-01T12:00:00Z"));
        keep(store, before.collect()).await;
        // Another process of the server has taken over, without the visits.
        let lost = "UPDATE visit_sink SET batches = 0, numbers = 0, server = 1";
        fixture.execute(lost).await;
        let new = || {
            (3..5)
                .map(|n| visit(n, "a", "2026-06-01T13:00:00Z"))
                .collect()
        };
        let refused = store.keep_visits(new(), moment(NOW)).await;
        let refused = refused.expect_err("its numbers are not compared").source;
        assert!(
            refused.to_string().contains("ClickHouse first"),
            "{refused}"
        );
        // Visits are stored again a moment later.
        keep(store, new()).await;
        let totals = store.visit_totals(&[code("a")]).await.expect("a store");
        assert_eq!(totals[0].visits, 5);
        let clicks = store.link_clicks(&[code("a")]).await.expect("a store");
        assert_eq!(clicks.len(), 0, "the link does not exist");
        assert_eq!(fixture.count("visit_sink WHERE batches > 1000").await, 1);
    }
}

#[tokio::test]
async fn the_visits_of_a_link_are_read_where_they_are() {
    for scheme in [Scheme::Sqlite, Scheme::Postgres] {
        let fixture = Fixture::with_clickhouse(scheme).await;
        let store = &fixture.store;
        // Between two visits are as many numbers as those of 10,000 others.
        let number = |n: i64| 1 + n * 10_001;
        let keep_next = async |n: u64, text: &str| {
            keep(store, vec![visit(n, text, "2026-06-01T12:00:00Z")]).await;
            let others = "UPDATE visit_sink SET numbers = numbers + 10000";
            fixture.execute(others).await;
        };
        for n in 0..6 {
            keep_next(n, ["a", "b"][n as usize % 2]).await;
        }
        let places = async || {
            let sink = store.sink.as_ref().expect("visits are in ClickHouse");
            let hours = (i64::MIN, i64::MAX);
            let numbers = store.numbers_of(sink, &code("a"), hours).await;
            numbers.expect("a store")
        };
        let list = async |text: &str| {
            let listing = VisitListing {
                code: Some(code(text)),
                limit: 100,
                ..VisitListing::default()
            };
            let listed = store.list_visits(&listing).await.expect("a store");
            listed.items.len() as u64
        };
        let answers = async |visits: u64| {
            let of_link = query(Counted::Link(code("a")));
            let counts = store.count_by(&of_link, Dimension::Domain).await;
            let counts = counts.expect("a store");
            assert_eq!(counts.iter().map(|it| it.visits).sum::<u64>(), visits);
            assert_eq!(list("a").await, visits);
        };
        let of = |ranges: &[(i64, i64)]| Numbers::of(ranges.iter().copied());
        let (first, second, third) = (
            (number(0), number(1)),
            (number(2), number(3)),
            (number(4), number(5)),
        );
        assert_eq!(places().await, of(&[first, second, third]));
        answers(3).await;
        // As a replica that lags behind.
        let later = format!("DELETE FROM visit_marks WHERE number > {}", number(2));
        fixture.execute(&later).await;
        assert_eq!(places().await, of(&[first, (number(2), i64::MAX)]));
        answers(3).await;
        // As visits that a program without marks has stored.
        fixture.execute("DELETE FROM visit_marks").await;
        assert_eq!(places().await, of(&[(i64::MIN, i64::MAX)]));
        answers(3).await;
        keep_next(6, "b").await;
        assert_eq!(places().await, of(&[(i64::MIN, number(6))]));
        assert_eq!(list("c").await, 0);
        if scheme == Scheme::Postgres {
            continue;
        }
        // Of many batches, the earlier ones are not looked up.
        for n in 7..72 {
            keep_next(n, "a").await;
        }
        keep_next(72, "b").await;
        assert_eq!(places().await, of(&[(i64::MIN, number(72))]));
        answers(68).await;
    }
}
