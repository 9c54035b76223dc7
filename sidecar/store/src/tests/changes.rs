//! The history of links, and deduplicated links.

use std::sync::Arc;

use jiff::SignedDuration;
use shortlink_core::link::{Change, Edit, Link};
use shortlink_core::plan::PlanChange;
use shortlink_core::ports::Identity;
use shortlink_core::revised::Revised;
use shortlink_core::target::Target;
use shortlink_core::testing::{changed_by, link, moment};

use crate::in_every_store;
use crate::testing::*;

in_every_store! {
    each_change_keeps_what_was_before,
    concurrent_creations_for_one_request_make_one_link,
    a_window_begins_anew_with_each_request_whatever_the_clock_does,
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
            plan: match number {
                2 => PlanChange::of_text("R29:d=i https://apps.example.com/"),
                _ => PlanChange::default(),
            },
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
    let planned = befores.iter().filter(|link| link.plan.is_some());
    assert_eq!(planned.count(), 2);
    assert_eq!(all[0].changed_by, "key 4");
    assert_eq!(all[0].changed_at, states[4].updated_at);
    let page = history(Some(3), 1).await.expect("a store").expect("a link");
    assert_eq!(page, all[2..3]);
}

async fn concurrent_creations_for_one_request_make_one_link(fixture: Fixture) {
    let identities = [None, Some("1h")].map(|window| Identity {
        within: window.map(|window| window.parse().expect("a window")),
        ..identity(7 + u8::from(window.is_some()))
    });
    for identity in identities {
        one_link_is_made(&fixture, identity).await;
    }
}

async fn one_link_is_made(fixture: &Fixture, identity: Identity) {
    let store = Arc::clone(&fixture.store);
    let prefix = if identity.within.is_some() { "w" } else { "c" };
    let attempts: Vec<_> = (0..50)
        .map(|number| {
            let store = Arc::clone(&store);
            let links = (0..3)
                .map(|of| (link(&format!("{prefix}{number}x{of}")), identity))
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
    let known = store.find_by_digest(&identity.digest).await;
    let known = known.expect("a store").expect("a link");
    assert_eq!(Some(known.link.code), found.first().copied());
    let used_at = identity.within.map(|_window| known.link.created_at);
    assert_eq!(known.used_at, used_at);
}

async fn a_window_begins_anew_with_each_request_whatever_the_clock_does(fixture: Fixture) {
    let store = &*fixture.store;
    let identity = Identity {
        within: Some("1h".parse().expect("a window")),
        ..identity(1)
    };
    let sent = async |code: &str, at: &str| {
        let link = Link {
            created_at: moment(at),
            ..link(code)
        };
        // Of two equal requests that arrive together, one decides for both.
        let links = vec![(link.clone(), identity), (link, identity)];
        let done = store.find_or_create_links(links).await.expect("a store");
        assert_eq!(done.taken, [0; 0]);
        done.found[done.found.len() - 1].1.code.to_string()
    };
    for (code, at, expected) in [
        ("a", "2026-06-01T10:00:00Z", "a"),
        ("b", "2026-06-01T10:59:00Z", "a"),
        // The second request has renewed the window, and so has the third.
        ("c", "2026-06-01T11:58:00Z", "a"),
        ("d", "2026-06-01T12:58:00Z", "a"),
        ("e", "2026-06-01T13:58:00.001Z", "e"),
        ("f", "2026-06-01T13:59:00Z", "e"),
        // The clock of another process is behind, or a clock is set back a little: the window goes with it.
        ("g", "2026-06-01T13:00:00Z", "e"),
        ("h", "2026-06-01T14:00:00Z", "e"),
        ("i", "2026-06-01T15:00:00.001Z", "i"),
        // A clock that was far ahead holds no window open once it is right again.
        ("j", "2027-01-01T00:00:00Z", "j"),
        ("k", "2026-06-01T15:01:00Z", "k"),
    ] {
        assert_eq!(sent(code, at).await, expected, "{code}");
    }
    // A window can be renewed by itself; not once another link has it.
    let last = store.find_by_digest(&identity.digest).await;
    let last = last.expect("a store").expect("a link").link;
    let older = Link {
        code: code("j"),
        ..last.clone()
    };
    let renewed_at = moment("2026-06-01T16:00:00Z");
    for (link, is_renewed) in [(older, false), (last.clone(), true)] {
        let renewed = store.renew_digests(vec![(identity.digest, link); 2], renewed_at);
        let renewed = renewed.await.expect("a store");
        assert_eq!(renewed.contains(&identity.digest), is_renewed);
    }
    let found = store.find_by_digest(&identity.digest).await;
    let found = found.expect("a store").expect("a link");
    assert_eq!((found.link, found.used_at), (last, Some(renewed_at)));
    assert_eq!(sent("l", "2026-06-01T17:00:00Z").await, "k");
}

async fn a_dead_link_is_not_found_again_and_a_taken_code_is_told(fixture: Fixture) {
    let store = &*fixture.store;
    let (one, two) = (identity(1), identity(2));
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
