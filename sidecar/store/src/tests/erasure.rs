//! Erasure of visits, step by step.

use jiff::SignedDuration;
use secrecy::ExposeSecret;
use shortlink_core::bulk::{BulkAction, Erased, NewBulkJob, Selection};
use shortlink_core::campaign::Campaign;
use shortlink_core::link::{Change, Destination, Link, ParameterValues};
use shortlink_core::ports::{Counted, TimeSpan};
use shortlink_core::testing::{campaign, eventually, link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use vocabulary::CampaignId;

use super::visits::query;
use crate::sql::sql;
use crate::testing::*;
use crate::visits::erasure::{erase_of_campaign, erase_of_links};
use crate::{BulkCreated, Scheme, Store, in_every_store_of_visits};

in_every_store_of_visits! {
    late_visits_of_an_erased_link_are_dropped,
    visits_after_an_erasure_are_corrected_where_they_were_counted,
    the_visits_of_a_campaign_are_erased_while_others_are_stored,
    an_erasure_of_a_long_list_takes_its_tombstones_in_portions,
    tombstones_are_forgotten_after_their_time,
}

/// Of visits in SQL.
mod in_sql {
    use super::visits_from_before_a_campaign_are_not_read_for_its_erasure;

    crate::in_every_store! {
        visits_from_before_a_campaign_are_not_read_for_its_erasure,
    }
}

fn erasure_of(selection: Selection) -> NewBulkJob {
    NewBulkJob {
        own: None,
        key_id: "key".to_owned(),
        action: BulkAction::Erase,
        selection,
        change: Change::default(),
        is_trial: false,
        idempotency: None,
        created_at: moment(NOW),
    }
}

async fn created(store: &Store, new: NewBulkJob) -> u64 {
    let created = store.create_bulk_job(new).await.expect("a store");
    let BulkCreated::Job(job) = created else {
        panic!("a job of another request");
    };
    job.id
}

async fn an_erasure_of_a_long_list_takes_its_tombstones_in_portions(fixture: Fixture) {
    let store = &*fixture.store;
    let listed: Vec<_> = (0..5_000).map(|n| code(&format!("x{n}"))).collect();
    let last = listed.last().expect("a code").to_string();
    keep(store, vec![visit(0, &last, "2026-06-01T12:00:00Z")]).await;
    let id = created(store, erasure_of(Selection::Codes(listed))).await;
    let mut tombstones = vec![fixture.count("visit_erasures").await];
    let mut next = 1;
    loop {
        let step = store.step_bulk_job(id, moment(NOW)).await;
        if step.expect("a store").is_last {
            break;
        }
        let count = fixture.count("visit_erasures").await;
        tombstones.push(count);
        // No visit is deleted before all of them are there, and none comes back then.
        let visits = fixture.count("visits").await;
        if count < 5_000 {
            assert_eq!(visits, 1);
        } else {
            let late = keep(store, vec![visit(next, &last, "2026-06-01T12:00:00Z")]);
            assert_eq!(late.await.erased, 1);
            next += 1;
        }
    }
    tombstones.dedup();
    assert_eq!(tombstones, [0, 2_000, 4_000, 5_000]);
    assert_eq!(fixture.count("visits").await, 0);
}

async fn tombstones_are_forgotten_after_their_time(fixture: Fixture) {
    let store = &*fixture.store;
    let (first, second) = (moment("2026-06-01T12:00:00Z"), moment(NOW));
    erase_visits(store, &[code("a"), code("b"), code("c")], first).await;
    erase_visits(store, &[code("c"), code("d")], second).await;
    let forget = async |before, limit| {
        let forgotten = store.forget_erasures(before, limit).await;
        (
            forgotten.expect("a store"),
            fixture.count("visit_erasures").await,
        )
    };
    assert_eq!(forget(first, 10).await, (0, 4));
    assert_eq!(forget(second, 1).await, (1, 3));
    // The later erasure of `c` counts.
    assert_eq!(forget(second, 10).await, (1, 2));
    let late = ["a", "c", "d"].into_iter().zip(0..);
    let late = late.map(|(code, n)| visit(n, code, "2026-06-01T11:00:00Z"));
    assert_eq!(keep(store, late.collect()).await.new, [0]);
}

async fn late_visits_of_an_erased_link_are_dropped(fixture: Fixture) {
    let store = &*fixture.store;
    create(store, link("a")).await;
    keep(
        store,
        vec![
            visit(0, "a", "2026-06-01T12:00:00Z"),
            visit(1, "b", "2026-06-01T12:00:00Z"),
        ],
    )
    .await;
    assert_eq!(erase_visits(store, &[code("a")], moment(NOW)).await, 1);
    let late = keep(
        store,
        vec![
            visit(2, "a", "2026-06-01T12:10:00Z"),
            visit(3, "a", "2026-06-01T12:30:00Z"),
            visit(4, "a", "2026-06-01T12:30:00.001Z"),
            visit(5, "b", "2026-06-01T12:10:00Z"),
        ],
    );
    let late = late.await;
    assert_eq!((late.new, late.erased), (vec![2, 3], 2));
    // They stay dropped when they are delivered again.
    assert_eq!(
        keep(store, vec![visit(2, "a", "2026-06-01T12:10:00Z")])
            .await
            .new,
        [0; 0]
    );
    assert_eq!(fixture.count("visits").await, 3);
    // The total counts the erased visit, and no hour of it is left.
    let totals = store.visit_totals(&[code("a")]).await.expect("a store");
    assert_eq!((totals[0].visits, totals[0].human), (2, 2));
    assert_eq!(totals[0].last_at, moment("2026-06-01T12:30:00.001Z"));
}

async fn visits_after_an_erasure_are_corrected_where_they_were_counted(fixture: Fixture) {
    let store = &*fixture.store;
    let visits = [
        "2026-06-01T11:59:00Z",
        "2026-06-01T12:10:00Z",
        "2026-06-01T12:27:00Z",
        "2026-06-01T12:28:00Z",
    ];
    let visits = visits.iter().zip(0..);
    let visits: Vec<Visit> = visits.map(|(at, number)| visit(number, "a", at)).collect();
    keep(store, visits).await;
    let until = moment("2026-06-01T12:25:00Z");
    assert_eq!(erase_visits(store, &[code("a")], until).await, 2);
    let totals = async || {
        let totals = store.visit_totals(&[code("a")]).await.expect("a store");
        (totals[0].visits, totals[0].human, totals[0].last_at)
    };
    let last = moment("2026-06-01T12:28:00Z");
    assert_eq!(totals().await, (4, 4, last));
    let hours = async || {
        let counts = store.count_visits(&query(Counted::Link(code("a")))).await;
        let counts = counts.expect("a store");
        let of = counts
            .iter()
            .map(|it| (it.begin.to_string(), it.class, it.visits));
        of.collect::<Vec<_>>()
    };
    let hour = "2026-06-01T12:00:00Z".to_owned();
    assert_eq!(hours().await, [(hour.clone(), Class::Human, 2)]);
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 10).await;
    let left = page.expect("a store").visits;
    let mut verdict = left[0].reclassified(&NewRules).expect("another agent");
    verdict.classification.class = Class::Scanner;
    let lost = vec![(left[0].clone(), verdict)];
    let done = store.reclassify_visits(lost, None, moment(NOW)).await;
    assert_eq!(done.expect("a store"), 1);
    assert_eq!(totals().await, (4, 3, last));
    let both = [(hour.clone(), Class::Human, 1), (hour, Class::Scanner, 1)];
    assert_eq!(hours().await, both);
    // Once more, when the rest of the hour is erased as well.
    assert_eq!(erase_visits(store, &[code("a")], moment(NOW)).await, 2);
    assert_eq!(totals().await, (4, 3, moment("2026-06-01T00:00:00Z")));
    assert_eq!(hours().await, []);
}

async fn the_visits_of_a_campaign_are_erased_while_others_are_stored(fixture: Fixture) {
    let store = &*fixture.store;
    let campaign = CampaignId::FIRST;
    for number in 0..3 {
        let link = Link {
            destination: Destination::Campaign {
                id: campaign,
                values: ParameterValues::default(),
            },
            ..link(&format!("m{number}"))
        };
        create(store, link).await;
    }
    let old = |first: u64| -> Vec<Visit> {
        let visits =
            (first..first + 900).map(|n| visit(n, &format!("m{}", n % 3), "2026-06-01T12:00:00Z"));
        visits.collect()
    };
    for part in 0..10 {
        keep(store, old(part * 900)).await;
    }
    let job = created(store, erasure_of(Selection::Campaign(campaign))).await;
    let mut stored = 0;
    let mut next = 20_000;
    loop {
        let step = store
            .step_bulk_job(job, moment(NOW))
            .await
            .expect("a store");
        // Between the steps, late visits and new ones arrive.
        let late = keep(
            store,
            vec![
                visit(next, "m0", "2026-06-01T12:00:00Z"),
                visit(
                    next + 1,
                    "m1",
                    &(moment(NOW) + SignedDuration::from_mins(1)).to_string(),
                ),
            ],
        );
        let late = late.await;
        assert_eq!((late.new, late.erased), (vec![1], 1));
        (stored, next) = (stored + 1, next + 2);
        if step.is_last {
            break;
        }
    }
    let done = store
        .find_bulk_job(job)
        .await
        .expect("a store")
        .expect("a job");
    assert_eq!((done.erased.visits, done.counts.changed), (9_000, 3));
    assert_eq!(fixture.count("visits").await, stored);
}

async fn visits_from_before_a_campaign_are_not_read_for_its_erasure(fixture: Fixture) {
    let store = &*fixture.store;
    // More than a step examines.
    let old = (0..5_005).map(|number| visit(number, "old", "2026-05-20T12:00:00Z"));
    let old: Vec<Visit> = old.collect();
    for some in old.chunks(1_001) {
        keep(store, some.to_vec()).await;
    }
    let campaign = Campaign {
        created_at: moment("2026-06-01T10:00:00Z"),
        ..campaign()
    };
    let id = store.create_campaign(&campaign).await.expect("a store");
    let destination = Destination::Campaign {
        id,
        values: ParameterValues::default(),
    };
    create(
        store,
        Link {
            destination,
            ..link("new")
        },
    )
    .await;
    // The clock of an edge is behind, and one visit is late.
    let times = ["2026-06-01T12:00:00Z", "2026-05-31T20:00:00Z"];
    let times = times.iter().zip(6_000..);
    let visits = times.map(|(at, number)| visit(number, "new", at));
    keep(store, visits.collect()).await;
    let erase = store.run_tx("erase", id.get().cast_signed(), |db, id| {
        Box::pin(async move {
            let mut erased = Erased::default();
            let (until, now) = (moment(NOW), moment(NOW));
            let last = erase_of_campaign(db, *id, i64::MIN, until, now, &mut erased).await?;
            Ok((last, erased.visits))
        })
    });
    assert_eq!(erase.await.expect("a store"), (None, 2));
    assert_eq!(fixture.count("visits").await, 5_005);
}

#[tokio::test]
async fn an_erasure_goes_on_when_others_delete_the_same_visits() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let store = &*fixture.store;
    // More than a step deletes.
    let visits = (0..5_005).map(|number| visit(number, "a", "2026-06-01T12:00:00Z"));
    let visits: Vec<Visit> = visits.collect();
    for some in visits.chunks(1_001) {
        keep(store, some.to_vec()).await;
    }
    let mut other = connect(fixture.options.url.expose_secret()).await;
    let deleted =
        "BEGIN; DELETE FROM visits WHERE id IN (SELECT id FROM visits ORDER BY id LIMIT 6)";
    let deleted = sqlx::raw_sql(deleted).execute(&mut other).await;
    deleted.expect("a server");
    let codes = [code("a")];
    let erasing = erase_visits(store, &codes, moment(NOW));
    let commit = async {
        let waiting =
            "pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        eventually("the erasure waits", async || {
            fixture.count(waiting).await > 0
        })
        .await;
        let ended = sqlx::raw_sql("COMMIT").execute(&mut other).await;
        ended.expect("a server");
    };
    let (erased, ()) = tokio::join!(erasing, commit);
    assert_eq!(erased, 4_999);
    assert_eq!(fixture.count("visits").await, 0);
}

#[tokio::test]
async fn an_erasure_on_postgres_reads_no_visits_of_others() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let store = &*fixture.store;
    // As after a hundred days: with parts for all of them, PostgreSQL expects to look for each visit in every part.
    let parts = "DO $$ DECLARE first BIGINT; BEGIN FOR day IN 20000..20099 LOOP first := day * 86400000::bigint; \
         EXECUTE format('CREATE TABLE visits_2%s PARTITION OF visits FOR VALUES FROM (%s) TO (%s)', \
         day, first, first + 86400000); END LOOP; END $$";
    fixture.execute(parts).await;
    let visits = "INSERT INTO visits (at, code, host, agent_id, method, status, class, reason, ruleset) \
         SELECT (20000 + n % 100) * 86400000::bigint + n, CASE WHEN n < 100 THEN 'a' ELSE 'other' || n END, \
         'a.example', 1, 'GET', 302, 'human', 'browser', 1 FROM generate_series(0, 29999) AS n; ANALYZE visits";
    fixture.execute(visits).await;
    let read = store.run_tx("erase", [code("a")], |db, codes| {
        Box::pin(async move {
            let mut erased = Erased::default();
            let until = moment(NOW);
            let is_whole = erase_of_links(db, codes, until, until, &mut erased).await?;
            assert!(is_whole && erased.visits == 100);
            let read = sql!(
                "SELECT CAST(sum(idx_tup_fetch + seq_tup_read) AS bigint) AS visits \
                 FROM pg_stat_xact_user_tables WHERE relname LIKE 'visits_2%'"
            );
            db.get(read, &[], |row| row.get::<i64>("visits")).await
        })
    });
    // Each visit is found, and then deleted.
    assert_eq!(read.await.expect("a store"), 200);
}

#[tokio::test]
async fn no_byte_of_an_erased_visit_is_in_the_file_of_sqlite_after_a_checkpoint() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let store = &*fixture.store;
    let visits = (0..500).map(|number| {
        let (code, name) = if number < 400 {
            ("goes", "erased")
        } else {
            ("stays", "kept")
        };
        Visit {
            referrer: format!("https://referrer.example/{name}-{number:04}"),
            referrer_host: Some(format!("{name}-{number:04}.example")),
            ..visit(number, code, "2026-06-01T12:00:00Z")
        }
    });
    keep(store, visits.collect()).await;
    let path = fixture.directory.path().join("made/links.db");
    let count = async |name: &str| {
        fixture.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
        let bytes = std::fs::read(&path).expect("the database");
        let needle = format!("{name}-0");
        let windows = bytes.windows(needle.len());
        windows
            .filter(|window| *window == needle.as_bytes())
            .count()
    };
    assert!(count("erased").await >= 400);
    assert_eq!(erase_visits(store, &[code("goes")], moment(NOW)).await, 400);
    assert_eq!(count("erased").await, 0);
    assert!(count("kept").await >= 100);
}
