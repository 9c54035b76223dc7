//! The history of links, and deduplicated links.

use std::sync::Arc;

use jiff::SignedDuration;
use shortlink_core::link::{Change, Edit, Link};
use shortlink_core::ports::RequestDigest;
use shortlink_core::revised::Revised;
use shortlink_core::target::Target;
use shortlink_core::testing::{changed_by, link, moment};

use crate::in_every_store;
use crate::testing::*;

in_every_store! {
    each_change_keeps_what_was_before,
    concurrent_creations_for_one_request_make_one_link,
    a_dead_link_is_not_found_again_and_a_taken_code_is_told,
}

async fn each_change_keeps_what_was_before(fixture: Fixture) {
    let store = &*fixture.store;
    let abc = code("abc");
    let history = |before, limit| store.link_history(&abc, before, limit);
    assert_eq!(history(None, 10).await.expect("a store"), None);
    create(store, link("abc")).await;
    let none = history(None, 10).await.expect("a store");
    assert_eq!(none, Some(Vec::new()));
    let mut states = vec![link("abc")];
    for number in 1..=5u32 {
        let at = moment(REVOKED_AT) + SignedDuration::from_secs(number.into());
        let change = Change {
            target: Some(Target::from_stored(format!("https://example.com/{number}"))),
            note: Some(Some(number.to_string())),
            ..Change::default()
        };
        let editor = Box::new(move |link: Link| match number {
            4 => link.pause(at),
            // Nothing changes, so nothing is stored.
            5 => link.pause(at),
            _ => link.change(&change, at),
        });
        let edited = store
            .edit_link(&abc, &changed_by(&format!("key {number}")), editor)
            .await;
        if let Some(Edit::Changed(link)) = edited.expect("a store").map(|edited| edited.edit) {
            states.push(link);
        }
    }
    let all = history(None, 10).await.expect("a store").expect("a link");
    let befores: Vec<_> = all.iter().map(|change| change.before.clone()).collect();
    let expected: Vec<_> = states[..4].iter().rev().cloned().collect();
    assert_eq!(befores, expected);
    assert_eq!(all[0].changed_by, "key 4");
    assert_eq!(all[0].changed_at, states[4].updated_at);
    let page = history(Some(3), 1).await.expect("a store").expect("a link");
    assert_eq!(page, all[2..3]);
}

async fn concurrent_creations_for_one_request_make_one_link(fixture: Fixture) {
    let store = Arc::clone(&fixture.store);
    let digest = RequestDigest([7; 32]);
    let attempts: Vec<_> = (0..50)
        .map(|number| {
            let store = Arc::clone(&store);
            let links = (0..3)
                .map(|of| (link(&format!("c{number}x{of}")), digest))
                .collect();
            tokio::spawn(async move { store.find_or_create_links(links).await })
        })
        .collect();
    let (mut kept, mut found) = (0, Vec::new());
    for attempt in attempts {
        let done = attempt.await.expect("no panic").expect("a store");
        assert_eq!(done.taken, [0; 0]);
        kept += 3 - done.found.len();
        found.extend(done.found.into_iter().map(|(_, link)| link.code));
    }
    assert_eq!(kept, 1);
    found.dedup();
    assert_eq!(found.len(), 1);
    let known = store.find_by_digest(&digest).await.expect("a store");
    assert_eq!(known.map(|link| link.code), found.first().copied());
}

async fn a_dead_link_is_not_found_again_and_a_taken_code_is_told(fixture: Fixture) {
    let store = &*fixture.store;
    let (one, two) = (RequestDigest([1; 32]), RequestDigest([2; 32]));
    let mut other = link("b");
    other.note = Some("another".to_owned());
    create(store, link("taken")).await;
    let links = vec![
        (link("taken"), one),
        (other.clone(), two),
        (link("a"), one),
        (other.clone(), two),
    ];
    let done = store.find_or_create_links(links).await.expect("a store");
    // The duplicate of the link whose code is taken needs another attempt as well.
    assert_eq!(done.taken, [0, 2]);
    assert_eq!(done.found, [(3, other)]);
    assert_eq!(done.receipt.0.len(), 1);
    for (code, found) in [("a", None), ("c", Some("a")), ("d", Some("a"))] {
        let done = store.find_or_create_links(vec![(link(code), one)]).await;
        let done = done.expect("a store");
        let codes: Vec<_> = done
            .found
            .iter()
            .map(|(_, link)| link.code.as_str())
            .collect();
        assert_eq!(codes.first().copied(), found, "{code}");
    }
    revoke(store, "a").await;
    let done = store.find_or_create_links(vec![(link("e"), one)]).await;
    assert_eq!(done.expect("a store").found, []);
    let done = store.find_or_create_links(vec![(link("f"), one)]).await;
    assert_eq!(done.expect("a store").found, [(0, link("e"))]);
    let done = store.find_or_create_links(Vec::new()).await;
    assert_eq!(done.expect("a store").found, []);
}
