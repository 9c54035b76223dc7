//! Erasure of visits, step by step.

use jiff::SignedDuration;
use shortlink_core::bulk::{BulkAction, NewBulkJob, Selection};
use shortlink_core::link::{Change, Destination, Link, ParameterValues};
use shortlink_core::testing::{link, moment};
use shortlink_core::visit::Visit;
use vocabulary::CampaignId;

use crate::testing::*;
use crate::{BulkCreated, Scheme, in_every_store};

in_every_store! {
    late_visits_of_an_erased_link_are_dropped,
    the_visits_of_a_campaign_are_erased_while_others_are_stored,
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
    let new = NewBulkJob {
        own: None,
        key_id: "key".to_owned(),
        action: BulkAction::Erase,
        selection: Selection::Campaign(campaign),
        change: Change::default(),
        is_trial: false,
        idempotency: None,
        created_at: moment(NOW),
    };
    let BulkCreated::Job(job) = store.create_bulk_job(new).await.expect("a store") else {
        panic!("a job of another request");
    };
    let mut stored = 0;
    let mut next = 20_000;
    loop {
        let step = store
            .step_bulk_job(job.id, moment(NOW))
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
        .find_bulk_job(job.id)
        .await
        .expect("a store")
        .expect("a job");
    assert_eq!((done.erased.visits, done.counts.changed), (9_000, 3));
    assert_eq!(fixture.count("visits").await, stored);
}

#[tokio::test]
async fn no_byte_of_an_erased_visit_is_in_the_file_of_sqlite_after_a_checkpoint() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let store = &*fixture.store;
    let visits = (0..500).map(|number| {
        let (code, name) = if number < 100 {
            ("stays", "kept")
        } else {
            ("goes", "erased")
        };
        Visit {
            referrer: format!("https://referrer.example/{name}-{number:04}"),
            ..visit(number, code, "2026-06-01T12:00:00Z")
        }
    });
    keep(store, visits.collect()).await;
    let path = fixture.directory.path().join("made/links.db");
    let count = async |name: &str| {
        fixture.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
        let bytes = std::fs::read(&path).expect("the database");
        let needle = format!("https://referrer.example/{name}-");
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
