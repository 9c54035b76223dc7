//! Links by their target.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Change, Destination, Link};
use shortlink_core::ports::Listing;
use shortlink_core::target::Target;
use shortlink_core::testing::{changed_by, link, moment};
use sqlx::AssertSqlSafe;
use vocabulary::CampaignId;

use crate::db::Statement;
use crate::sql::sql;
use crate::testing::*;
use crate::{Scheme, Store, TargetSearch, in_every_store, listing};

in_every_store! {
    links_are_found_by_their_target_once_none_lacks_its_hash,
    no_link_is_missing_while_another_process_creates_links_without_hashes,
}

fn target(path: &str) -> Target {
    Target::from_stored(format!("https://example.com/{path}"))
}

fn to(code: &str, path: &str) -> Link {
    Link {
        destination: Destination::Target(target(path)),
        ..link(code)
    }
}

async fn found(store: &Store, path: &str) -> Vec<String> {
    let listing = Listing {
        target: Some(target(path)),
        limit: 1000,
        ..Listing::default()
    };
    let mut found = codes(&store.list_links(&listing).await.expect("a store"));
    found.sort();
    found
}

async fn search(store: &Store) -> TargetSearch {
    store.target_search().await.expect("a store")
}

/// Fills in all that is missing; returns the number of steps.
async fn fill(store: &Store) -> u32 {
    let mut steps = 1;
    while store.fill_targets(2).await.expect("a store") {
        steps += 1;
    }
    steps
}

async fn change(store: &Store, text: &str, change: Change) {
    let editor = Box::new(move |link: Link| link.change(&change, moment(REVOKED_AT)));
    let (code, by) = (code(text), changed_by("key"));
    let edited = store.edit_link(&code, &by, editor).await;
    edited.expect("a store").expect("a link");
}

async fn links_are_found_by_their_target_once_none_lacks_its_hash(fixture: Fixture) {
    let without = &*fixture.store;
    let with = &*fixture.finding_targets().await;
    for (code, path) in [("x1", "a"), ("x2", "a"), ("x3", "b")] {
        create(without, to(code, path)).await;
    }
    assert_eq!(search(without).await, TargetSearch::Off);
    assert_eq!(search(with).await, TargetSearch::Filling);
    // A new link is found at once, and older ones are not.
    create(with, to("x4", "a")).await;
    assert_eq!(found(with, "a").await, ["x4"]);
    // The walk begins, reads two pages, finds the end, and then nothing to do.
    assert_eq!(fill(with).await, 4);
    assert_eq!(
        (fill(with).await, search(with).await),
        (1, TargetSearch::Complete)
    );
    assert_eq!(found(with, "a").await, ["x1", "x2", "x4"]);
    create(with, to("x5", "b")).await;
    assert_eq!(search(with).await, TargetSearch::Complete);
    assert_eq!(found(with, "b").await, ["x3", "x5"]);
    // A change keeps the hash right in every process.
    let new_target = Change {
        target: Some(target("a")),
        ..Change::default()
    };
    change(without, "x3", new_target).await;
    let new_note = Change {
        note: Some(Some("a note".to_owned())),
        ..Change::default()
    };
    change(without, "x5", new_note).await;
    assert_eq!(search(with).await, TargetSearch::Complete);
    assert_eq!(found(with, "a").await, ["x1", "x2", "x3", "x4"]);
    assert_eq!(found(with, "b").await, ["x5"]);
    // Links of campaigns have no target, so none lacks its hash.
    let of_campaign = Link {
        destination: Destination::Campaign {
            id: CampaignId::FIRST,
            values: ParameterValues::from_stored(String::new()),
        },
        ..link("x6")
    };
    create(without, of_campaign).await;
    assert_eq!(search(with).await, TargetSearch::Complete);
    // Each way to create links without a hash is noticed.
    let import = without.import_links(vec![to("x7", "a")]);
    assert_eq!(import.await.expect("a store").taken, [0; 0]);
    assert_eq!(search(with).await, TargetSearch::Filling);
    assert!(fill(with).await > 1);
    let deduplicated = without.find_or_create_links(vec![(to("x8", "a"), identity(1))]);
    assert_eq!(deduplicated.await.expect("a store").taken, [0; 0]);
    assert_eq!(search(with).await, TargetSearch::Filling);
    assert!(fill(with).await > 1);
    assert_eq!(search(with).await, TargetSearch::Complete);
    assert_eq!(found(with, "a").await, ["x1", "x2", "x3", "x4", "x7", "x8"]);
    // Another target with the same hash is another target.
    let hash = target("b").hash();
    fixture
        .execute(&format!(
            "UPDATE links SET target_hash = {hash} WHERE code = 'x7'"
        ))
        .await;
    assert_eq!(found(with, "b").await, ["x5"]);
    assert_eq!(found(with, "c").await, [""; 0]);
}

async fn no_link_is_missing_while_another_process_creates_links_without_hashes(fixture: Fixture) {
    const LINKS: usize = 60;
    let with = fixture.finding_targets().await;
    let created = Arc::new(AtomicUsize::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let filler = {
        let (store, is_over) = (Arc::clone(&with), Arc::clone(&is_over));
        tokio::spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                store.fill_targets(7).await.expect("a store");
            }
        })
    };
    let creators: Vec<_> = (0..2)
        .map(|creator| {
            let (store, created) = (Arc::clone(&fixture.store), Arc::clone(&created));
            tokio::spawn(async move {
                for number in 0..LINKS {
                    create(&store, to(&format!("c{creator}n{number}"), "a")).await;
                    created.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let mut complete = 0;
    while created.load(Ordering::SeqCst) < 2 * LINKS {
        let acknowledged = created.load(Ordering::SeqCst);
        if search(&with).await == TargetSearch::Complete {
            complete += 1;
            let found = found(&with, "a").await.len();
            assert!(found >= acknowledged, "{found} of {acknowledged}");
        }
    }
    for creator in creators {
        creator.await.expect("no panic");
    }
    is_over.store(true, Ordering::SeqCst);
    filler.await.expect("no panic");
    fill(&with).await;
    assert_eq!(search(&with).await, TargetSearch::Complete);
    assert_eq!(found(&with, "a").await.len(), 2 * LINKS);
    println!("{complete} listings were complete meanwhile");
}

#[tokio::test]
async fn postgres_finds_links_of_a_target_in_their_order_by_the_index() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let filter = Listing {
        target: Some(target("a")),
        limit: 50,
        ..Listing::default()
    };
    let mut statement = Statement::new(Scheme::Postgres, sql!("SELECT code FROM "));
    listing::query(&mut statement, &filter, (5, 5), None);
    let hash = target("a").hash();
    let values = format!("5, 5, {hash}, '{}', 50", target("a").as_str());
    let plan = plan(&fixture, &statement, &values).await;
    assert!(
        plan.contains("links_0_target_hash_created_at_id_idx"),
        "{plan}"
    );
    assert!(plan.contains("target_hash = "), "{plan}");
    assert!(
        !plan.contains("Sort  (") && !plan.contains("Seq Scan"),
        "{plan}"
    );
}

/// PostgreSQL's plan of a statement for values, as with many links, whose table is never read as a whole.
pub(super) async fn plan(fixture: &Fixture, statement: &Statement<'_>, values: &str) -> String {
    let mut session = connect(secrecy::ExposeSecret::expose_secret(&fixture.options.url)).await;
    let prepare = format!(
        "SET enable_seqscan = off; PREPARE page AS {}",
        statement.text()
    );
    let prepared = sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut session);
    prepared.await.expect("a good statement");
    let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE page ({values})"));
    let plan: Vec<String> = sqlx::query_scalar(explain)
        .fetch_all(&mut session)
        .await
        .expect("a good statement");
    plan.join("\n")
}
