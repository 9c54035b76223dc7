//! Tests of every store.

mod agents;
mod bulk;
mod campaigns;
mod changes;
mod chunks;
mod clickhouse;
mod clicks;
mod conversions;
mod domains;
mod erased_values;
mod erasure;
mod events;
mod exports;
pub(super) mod keys;
pub(super) mod listing;
mod minutes;
mod people;
mod places;
mod pruning;
mod quarantine;
mod quotas;
mod receipts;
mod refused_visits;
mod reports;
mod search;
mod targets;
mod unique_visitors;
mod upkeep;
mod uploads;
mod variants;
pub(super) mod visits;
mod visits_of_far_codes;
mod visits_of_many_values;
mod visits_over_time;
mod webhooks;
mod writable;

use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::SignedDuration;
use shortlink_core::codes::strategy::CodeOrigin;
use shortlink_core::link::{Change, Edit, Link, Second};
use shortlink_core::ports::{Listing, OutboxSpan, Position, Receipt};
use shortlink_core::target::Target;
use shortlink_core::testing::{changed_by, link, moment};
use vocabulary::Code;

use crate::in_every_store;
use crate::testing::*;

in_every_store! {
    a_link_is_found_as_it_was_kept_and_its_code_is_taken,
    many_are_kept_together_but_those_whose_codes_are_taken,
    codes_that_were_issued_together_share_a_row_of_the_outbox,
    a_counter_is_leased_once_and_never_goes_back,
    the_pool_gives_each_code_once,
    concurrent_creations_of_one_code_have_one_winner,
    edits_are_kept_and_revocation_is_final,
    what_is_published_leaves_the_outbox_unless_it_has_changed_meanwhile,
    closing_writes_what_was_asked_for_and_then_nothing_more,
    edits_at_the_same_time_follow_each_other,
    creations_of_the_same_codes_in_any_order_have_one_winner_each,
    far_codes_are_kept_listed_and_changed,
    many_are_found_together_and_a_scan_sees_each_once,
}

async fn a_link_is_found_as_it_was_kept_and_its_code_is_taken(fixture: Fixture) {
    let full = Link {
        redirect_status: vocabulary::RedirectStatus::PermanentRedirect,
        forward_query: true,
        valid_since: Second::at(moment("2029-01-01T00:00:00Z")),
        valid_until: Second::at(moment("2030-01-01T00:00:00Z")),
        max_visits: NonZeroU64::new(5),
        paused_at: Some(moment("2026-01-01T00:00:00.5Z")),
        external_id: Some("order 7".to_owned()),
        note: Some("two\nlines".to_owned()),
        tags: vec!["a".to_owned(), "\"ü\"".to_owned()],
        ..link("Full")
    };
    let origins = CodeOrigin::ALL.into_iter().map(|origin| Link {
        strategy: Some(origin),
        ..link(origin.name())
    });
    for link in [link("abc"), full].into_iter().chain(origins) {
        create(&fixture.store, link.clone()).await;
        let found = fixture.store.find_link(&link.code).await.expect("a store");
        assert_eq!(found, Some(link));
    }
    let other = Link {
        created_by: "another key".to_owned(),
        ..link("abc")
    };
    assert_eq!(try_create(&fixture.store, other).await, None);
    let found = fixture
        .store
        .find_link(&code("abc"))
        .await
        .expect("a store");
    assert_eq!(found, Some(link("abc")));
    // Codes differ by case.
    assert_eq!(
        fixture
            .store
            .find_link(&code("ABC"))
            .await
            .expect("a store"),
        None
    );
    create(&fixture.store, link("ABC")).await;
}

async fn many_are_kept_together_but_those_whose_codes_are_taken(fixture: Fixture) {
    let store = &*fixture.store;
    create(store, link("taken")).await;
    // Codes of sixteen characters have no number.
    create(store, link("ABCDEFGHIJKLMNOP")).await;
    let mut links: Vec<Link> = (0..700).map(|n| link(&format!("c{n}"))).collect();
    links[3] = link("taken");
    links[300] = link("ABCDEFGHIJKLMNOP");
    links[301] = link("ABCDEFGHIJKLMNOQ");
    // Twice in one go: the first gets it.
    links[650] = link("c4");
    let created = store.create_links(links.clone()).await.expect("a store");
    assert_eq!(created.taken, [3, 300, 650]);
    for (place, link) in links.iter().enumerate() {
        let found = store.find_link(&link.code).await.expect("a store");
        assert_eq!(found.as_ref(), Some(link), "{place}");
    }
    let mut waiting = fixture.waiting().await;
    waiting.sort();
    let mut expected: Vec<String> = codes(&links);
    expected.sort();
    expected.dedup();
    assert_eq!(waiting, expected);
    settle(store, vec![created.receipt], moment(REVOKED_AT)).await;
    let mut waiting = fixture.waiting().await;
    waiting.sort();
    assert_eq!(waiting, ["ABCDEFGHIJKLMNOP", "taken"]);
    let usage = store.code_usage(0).await.expect("a store");
    let total: u64 = usage.iter().map(|usage| usage.links).sum();
    assert_eq!(total, expected.len() as u64);
}

async fn codes_that_were_issued_together_share_a_row_of_the_outbox(fixture: Fixture) {
    let store = &*fixture.store;
    let issued: Vec<Link> = (0..1000)
        .filter_map(|count| {
            let check = vocabulary::Check::Luhn;
            store
                .numbering()
                .issued(vocabulary::Alphabet::Base62, &check, 7, count)
        })
        .map(|code| link(code.as_str()))
        .collect();
    let created = store.create_links(issued.clone()).await.expect("a store");
    assert_eq!(created.receipt.0.len(), 1);
    // A change has a row of its own, and comes first.
    revoke(store, issued[500].code.as_str()).await;
    let waiting = waiting(store).await;
    assert_eq!(waiting.receipt.0.len(), 2);
    assert_eq!(waiting.links.len(), 1001);
    assert_eq!(waiting.links[0].revision, 2);
    settle(store, vec![waiting.receipt], moment(REVOKED_AT)).await;
    assert!(fixture.waiting().await.is_empty());
}

async fn a_counter_is_leased_once_and_never_goes_back(fixture: Fixture) {
    let store = Arc::clone(&fixture.store);
    let leases: Vec<_> = (0..20)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.lease("a", 0, 10).await })
        })
        .collect();
    let mut starts = Vec::new();
    for lease in leases {
        starts.push(lease.await.expect("no panic").expect("a store"));
    }
    starts.sort_unstable();
    let expected: Vec<u64> = (0..20).map(|number| number * 10).collect();
    assert_eq!(starts, expected);
    for (floor, count, expected) in [(500, 7, 500), (100, 1, 507), (0, 0, 508)] {
        let start = store.lease("a", floor, count).await;
        assert_eq!(start.expect("a store"), expected);
    }
    assert_eq!(store.lease("b", 0, 1).await.expect("a store"), 0);
}

async fn the_pool_gives_each_code_once(fixture: Fixture) {
    let store = &*fixture.store;
    create(store, link("aab")).await;
    let ahead = ["aaa", "aab", "aac", "aaa", "aad"].map(code);
    assert_eq!(store.fill_pool(ahead.to_vec()).await.expect("room"), 3);
    let first = store.take_pooled(3, 2).await.expect("a store");
    let second = store.take_pooled(3, 2).await.expect("a store");
    assert_eq!((first.len(), second.len()), (2, 1));
    assert!(store.take_pooled(4, 2).await.expect("a store").is_empty());
    store.void_pooled(second.clone()).await.expect("a store");
    let counts = store.count_pooled(3).await.expect("a store");
    assert_eq!((counts.unused, counts.used, counts.void), (0, 2, 1));
    // Codes that were taken do not return to the pool.
    assert_eq!(store.fill_pool(ahead.to_vec()).await.expect("room"), 0);
    assert_eq!(store.fill_pool(Vec::new()).await.expect("room"), 0);
}

async fn concurrent_creations_of_one_code_have_one_winner(fixture: Fixture) {
    let store = Arc::clone(&fixture.store);
    let attempts: Vec<_> = (0..50)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { try_create(&store, link("abc")).await })
        })
        .collect();
    let mut winners = 0;
    for attempt in attempts {
        let won = attempt.await.expect("no panic");
        winners += usize::from(won.is_some());
    }
    assert_eq!(winners, 1);
}

async fn edits_are_kept_and_revocation_is_final(fixture: Fixture) {
    assert_eq!(revoke(&fixture.store, "abc").await, None);
    create(&fixture.store, link("abc")).await;
    let Some(Edit::Changed(revoked)) = revoke(&fixture.store, "abc").await else {
        panic!("a live link can be revoked");
    };
    let found = fixture
        .store
        .find_link(&code("abc"))
        .await
        .expect("a store");
    assert_eq!(found.as_ref(), Some(&revoked));
    assert_eq!(revoked.revision, 2);
    assert_eq!(
        revoke(&fixture.store, "abc").await,
        Some(Edit::Unchanged(revoked))
    );
    // A revoked link's code stays taken.
    assert_eq!(try_create(&fixture.store, link("abc")).await, None);
}

async fn what_is_published_leaves_the_outbox_unless_it_has_changed_meanwhile(fixture: Fixture) {
    let now = moment("2026-03-01T00:00:00Z");
    let id = |text| {
        let number = fixture.store.numbering().number(&code(text));
        number.expect("a short code").get()
    };
    let published = |text, revision| {
        Receipt(vec![OutboxSpan {
            first: id(text),
            last: id(text),
            revision,
        }])
    };
    for text in ["a", "b", "c"] {
        let receipt = create(&fixture.store, link(text)).await;
        assert_eq!(receipt, published(text, 1));
    }
    revoke(&fixture.store, "b").await;
    revoke(&fixture.store, "c").await;
    // Changes come first; their links still wait as new ones too.
    assert_eq!(fixture.waiting().await, ["b", "c", "a", "b", "c"]);
    assert_eq!(count_waiting(&fixture.store, 4).await, 4);
    // Rows of the last moments are not overdue; those from the future are.
    let (before, after) = (link("a").created_at, moment(REVOKED_AT));
    let second = SignedDuration::from_secs(1);
    for (since, until, expected) in [
        (before - second, after, 0),
        (before, after, 3),
        (before - second, after - second, 2),
    ] {
        let overdue = fixture.store.overdue(since, until, 100).await;
        assert_eq!(overdue.expect("a store").rows, expected, "{since} {until}");
    }

    // The first revisions are confirmed late: `b` and `c` have changed since.
    let late = vec![published("a", 1), published("b", 1), published("c", 1)];
    settle(&fixture.store, late, now).await;
    assert_eq!(fixture.waiting().await, ["b", "c"]);

    settle(&fixture.store, vec![published("b", 2)], now).await;
    assert_eq!(fixture.waiting().await, ["c"]);
    settle(&fixture.store, vec![published("c", 2)], now).await;
    assert!(fixture.waiting().await.is_empty());

    // A repeated request for an earlier change publishes it again.
    revoke(&fixture.store, "b").await;
    assert_eq!(fixture.waiting().await, ["b"]);
}

async fn closing_writes_what_was_asked_for_and_then_nothing_more(fixture: Fixture) {
    create(&fixture.store, link("abc")).await;
    fixture.store.close().await;
    let refused = fixture.store.create_links(vec![link("def")]).await;
    assert!(refused.is_err());
    let found = fixture.open().await.find_link(&code("abc")).await;
    assert!(found.expect("a store").is_some());
}

async fn edits_at_the_same_time_follow_each_other(fixture: Fixture) {
    create(&fixture.store, link("abc")).await;
    let edits: Vec<_> = (0..20)
        .map(|number| {
            let store = Arc::clone(&fixture.store);
            let target = Target::from_stored(format!("https://example.com/{number}"));
            let change = Change {
                target: Some(target),
                ..Change::default()
            };
            let editor = Box::new(move |link: Link| link.change(&change, moment(REVOKED_AT)));
            tokio::spawn(async move {
                store
                    .edit_link(&code("abc"), &changed_by("key"), editor)
                    .await
            })
        })
        .collect();
    let mut revisions = Vec::new();
    for edit in edits {
        let edited = edit.await.expect("no panic").expect("a store");
        let Some(Edit::Changed(link)) = edited.map(|edited| edited.edit) else {
            panic!("each is another target");
        };
        revisions.push(link.revision);
    }
    revisions.sort_unstable();
    assert_eq!(revisions, (2..=21).collect::<Vec<u64>>());
}

async fn creations_of_the_same_codes_in_any_order_have_one_winner_each(fixture: Fixture) {
    let other = fixture.open().await;
    // Some with a number and some without.
    let mut links: Vec<Link> = (0..100).map(|n| link(&format!("c{n}"))).collect();
    links.extend((0..20).map(|n| link(&format!("ABCDEFGHIJKLMN{n:02}"))));
    let tasks: Vec<_> = (0..8)
        .map(|turn: usize| {
            let store = Arc::clone([&fixture.store, &other][turn % 2]);
            let mut links = links.clone();
            links.rotate_left(turn * 15);
            if turn.is_multiple_of(3) {
                links.reverse();
            }
            tokio::spawn(async move {
                let created = store.create_links(links.clone()).await;
                links.len() - created.expect("a store").taken.len()
            })
        })
        .collect();
    let mut kept = 0;
    for task in tasks {
        kept += task.await.expect("no panic");
    }
    assert_eq!(kept, links.len());
}

async fn far_codes_are_kept_listed_and_changed(fixture: Fixture) {
    let store = &*fixture.store;
    let far = ["ABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOQ"];
    create(store, link(far[0])).await;
    create(store, link(far[1])).await;
    let found = store.find_link(&code("ABCDEFGHIJKLMNOR")).await;
    assert_eq!(found.expect("a store"), None);
    let revoked = revoke(store, far[1]).await;
    assert!(matches!(revoked, Some(Edit::Changed(_))));
    let mut waiting = fixture.waiting().await;
    waiting.dedup();
    assert_eq!(waiting, [far[1], far[0]]);
    let listing = Listing {
        after: Some(Position {
            created_at: link("a").created_at,
            code: code(far[0]),
        }),
        limit: 10,
        ..Listing::default()
    };
    let listed = store.list_links(&listing).await.expect("a store");
    assert_eq!(codes(&listed), [far[1]]);
}

async fn many_are_found_together_and_a_scan_sees_each_once(fixture: Fixture) {
    let store = &*fixture.store;
    let mut links: Vec<Link> = (0..50).map(|n| link(&format!("c{n}"))).collect();
    links.extend((0..10).map(|n| link(&format!("ABCDEFGHIJKLMN{n:02}"))));
    store.create_links(links.clone()).await.expect("a store");
    let mut expected = codes(&links);
    expected.sort();
    let mut asked: Vec<Code> = links.iter().map(|link| link.code).collect();
    asked.extend(["nobody", "ABCDEFGHIJKLMNOP"].map(code));
    let mut found = codes(&store.find_links(&asked).await.expect("a store"));
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(store.find_links(&[]).await.expect("a store"), []);
    let mut scanned: Vec<Link> = Vec::new();
    loop {
        let after = scanned.last().map(|link| link.code);
        let page = store.scan_links(after.as_ref(), 7).await.expect("a store");
        if page.is_empty() {
            break;
        }
        scanned.extend(page);
    }
    let mut scanned = codes(&scanned);
    scanned.sort();
    assert_eq!(scanned, expected);
}
