//! Outcomes of idempotent requests.

use std::sync::Arc;

use jiff::SignedDuration;
use shortlink_core::ports::{Chunk, ChunkCreated, ChunkKey, Created, NewChunk, RowOutcome};
use shortlink_core::testing::{link, moment};

use crate::in_every_store;
use crate::testing::*;

in_every_store! {
    a_chunk_is_kept_with_its_links_and_what_is_pending_is_settled_later,
    of_the_same_chunk_at_the_same_time_one_is_kept,
    chunks_are_forgotten_when_they_are_old,
}

fn key(chunk: u32) -> ChunkKey {
    ChunkKey {
        key_id: "key".to_owned(),
        idempotency_key: "once".to_owned(),
        chunk,
    }
}

/// A new chunk with a row that is a problem, and then a link for each of these codes.
fn new_chunk(number: u32, codes: &[&str]) -> NewChunk {
    let links: Vec<_> = codes.iter().map(|code| link(code)).collect();
    let mut rows = vec![RowOutcome::Problem("{\"a\":[\"\u{fc}\"]}".to_owned())];
    rows.extend(links.iter().map(|link| RowOutcome::Link(link.code)));
    NewChunk {
        key: key(number),
        chunk: Chunk {
            digest: [5; 32],
            rows,
        },
        before: None,
        places: (1..=links.len()).collect(),
        links,
        now: moment(REVOKED_AT),
    }
}

async fn a_chunk_is_kept_with_its_links_and_what_is_pending_is_settled_later(fixture: Fixture) {
    let store = &*fixture.store;
    assert_eq!(store.find_chunk(&key(0)).await.expect("a store"), None);
    create(store, link("taken")).await;
    let new = new_chunk(0, &["a", "taken", "b"]);
    let created = store.create_chunk(new.clone()).await.expect("a store");
    let ChunkCreated::Created(Created { taken, receipt, .. }) = created else {
        panic!("it is new");
    };
    assert_eq!(taken, [1]);
    assert!(!receipt.0.is_empty());
    let mut expected = new.chunk.clone();
    expected.rows[2] = RowOutcome::Pending;
    let found = store.find_chunk(&key(0)).await.expect("a store");
    assert_eq!(found.as_ref(), Some(&expected));
    assert_eq!(store.find_chunk(&key(1)).await.expect("a store"), None);

    // A caller with another earlier state, or none, changes nothing.
    for before in [None, Some(new.chunk.clone())] {
        let again = NewChunk {
            before,
            ..new_chunk(0, &["x", "y", "z"])
        };
        let created = store.create_chunk(again).await.expect("a store");
        assert_eq!(created, ChunkCreated::Exists(expected.clone()));
    }
    assert_eq!(store.find_link(&code("x")).await.expect("a store"), None);

    let mut settled = expected.clone();
    settled.rows[2] = RowOutcome::Link(code("c"));
    let later = NewChunk {
        chunk: settled.clone(),
        before: Some(expected),
        links: vec![link("c")],
        places: vec![2],
        ..new
    };
    let created = store.create_chunk(later).await.expect("a store");
    assert!(matches!(created, ChunkCreated::Created(created) if created.taken.is_empty()));
    let found = store.find_chunk(&key(0)).await.expect("a store");
    assert_eq!(found, Some(settled));
}

async fn of_the_same_chunk_at_the_same_time_one_is_kept(fixture: Fixture) {
    let other = fixture.open().await;
    let attempts: Vec<_> = (0..20)
        .map(|number: usize| {
            let store = Arc::clone([&fixture.store, &other][number % 2]);
            let codes = [format!("a{number}"), format!("b{number}")];
            let new = new_chunk(0, &codes.each_ref().map(String::as_str));
            let mine = new.chunk.clone();
            tokio::spawn(async move { (store.create_chunk(new).await, mine) })
        })
        .collect();
    let (mut kept, mut told) = (Vec::new(), Vec::new());
    for attempt in attempts {
        let (created, mine) = attempt.await.expect("no panic");
        match created.expect("a store") {
            ChunkCreated::Created(_) => kept.push(mine),
            ChunkCreated::Exists(chunk) => told.push(chunk),
        }
    }
    assert_eq!(kept.len(), 1);
    assert!(told.iter().all(|chunk| *chunk == kept[0]));
    let links = fixture.store.scan_links(None, 100).await;
    assert_eq!(links.expect("a store").len(), 2);
}

async fn chunks_are_forgotten_when_they_are_old(fixture: Fixture) {
    let store = &*fixture.store;
    let now = moment(REVOKED_AT);
    let new = new_chunk(0, &["a"]);
    store.create_chunk(new).await.expect("a store");
    assert_eq!(store.forget_chunks(now).await.expect("a store"), 0);
    let later = now + SignedDuration::from_millis(1);
    assert_eq!(store.forget_chunks(later).await.expect("a store"), 1);
    assert_eq!(store.find_chunk(&key(0)).await.expect("a store"), None);
    // Its links stay.
    let found = store.find_link(&code("a")).await.expect("a store");
    assert!(found.is_some());
}
