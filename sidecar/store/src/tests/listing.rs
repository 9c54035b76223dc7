//! Listings and their filters.

use jiff::{SignedDuration, Timestamp};
use shortlink_core::link::{Change, Destination, Link, Second, State, UploadId};
use shortlink_core::ports::{Listing, Position};
use shortlink_core::target::Target;
use shortlink_core::testing::{changed_by, link, moment};

use crate::testing::*;
use crate::{Store, in_every_store};

in_every_store! {
    listings_go_from_the_latest_to_the_first_without_gaps,
    links_are_found_by_the_tags_that_they_have_now,
    a_search_goes_on_where_it_has_come_to,
}

/// All codes of a listing, page by page.
async fn listed(store: &Store, listing: &Listing) -> Vec<String> {
    let mut listing = listing.clone();
    let mut listed = Vec::new();
    loop {
        let page = store.list_links(&listing).await.expect("a store");
        let Some(last) = page.last() else {
            return listed;
        };
        listing.after = Some(Position {
            created_at: last.created_at,
            code: last.code,
        });
        assert!(page.len() <= listing.limit as usize);
        listed.extend(codes(&page));
    }
}

/// Every filter, by itself and with others.
pub(crate) fn filters(now: Timestamp) -> Vec<Listing> {
    let states = [
        None,
        Some(State::Live),
        Some(State::Scheduled),
        Some(State::Paused),
        Some(State::Expired),
        Some(State::Revoked),
    ];
    let mut filters = Vec::new();
    for state in states {
        for tag in [None, Some("spring"), Some("nobody")] {
            for external_id in [None, Some("order")] {
                let key = |id: &str| id.to_owned();
                let creators = [
                    None,
                    Some(vec![key("key")]),
                    Some(vec![key("other")]),
                    Some(vec![key("other"), key("key"), key("nobody")]),
                    Some(Vec::new()),
                ];
                for created_by in creators {
                    for upload in [None, Some(UploadId::new(1))] {
                        filters.push(Listing {
                            upload,
                            state: state.map(|state| (state, now)),
                            tag: tag.map(str::to_owned),
                            external_id: external_id.map(str::to_owned),
                            created_by: created_by.clone(),
                            ..Listing::default()
                        });
                    }
                }
            }
        }
    }
    for state in [None, Some(State::Live), Some(State::Revoked)] {
        for tag in [None, Some("spring")] {
            for external_id in [None, Some("order")] {
                filters.push(Listing {
                    target: Some(target("b")),
                    state: state.map(|state| (state, now)),
                    tag: tag.map(str::to_owned),
                    external_id: external_id.map(str::to_owned),
                    ..Listing::default()
                });
            }
        }
    }
    filters
}

fn target(path: &str) -> Target {
    Target::from_stored(format!("https://example.com/{path}"))
}

async fn listings_go_from_the_latest_to_the_first_without_gaps(fixture: Fixture) {
    let store = &*fixture.finding_targets().await;
    let start = moment("2026-01-01T00:00:00Z");
    let now = moment("2026-06-01T00:00:00Z");
    let every = |number: i64, step| number % step == 0;
    // Three links a millisecond.
    for number in 0..120i64 {
        let created_at = start + SignedDuration::from_millis(number / 3);
        let link = Link {
            created_at,
            updated_at: created_at,
            destination: Destination::Target(target(if every(number, 9) { "b" } else { "a" })),
            valid_until: Second::at(moment(REVOKED_AT)).filter(|_| every(number, 5)),
            valid_since: Second::at(moment("2027-01-01T00:00:00Z")).filter(|_| every(number, 4)),
            paused_at: Some(now).filter(|_| every(number, 3)),
            tags: ["all", "spring"][..if every(number, 2) { 2 } else { 1 }]
                .iter()
                .map(|&tag| tag.to_owned())
                .collect(),
            external_id: Some("order".to_owned()).filter(|_| every(number, 11)),
            created_by: if every(number, 13) { "other" } else { "key" }.to_owned(),
            upload: [None, Some(UploadId::new(1)), Some(UploadId::new(2))][number as usize % 3],
            ..link(&format!("c{number:03}"))
        };
        let code = link.code;
        create(store, link).await;
        if every(number, 7) {
            revoke(store, code.as_str()).await;
        }
    }
    let mut all = Vec::new();
    for number in 0..120 {
        let found = store.find_link(&code(&format!("c{number:03}"))).await;
        all.push(found.expect("a store").expect("a link"));
    }
    // The number of the code decides among the links of a millisecond.
    all.sort_by_key(|link| (link.created_at, store.numbering().number(&link.code)));
    all.reverse();
    for listing in filters(now) {
        let expected: Vec<String> = all
            .iter()
            .filter(|link| {
                let Listing {
                    target,
                    state,
                    tag,
                    external_id,
                    created_by,
                    upload,
                    ..
                } = &listing;
                state.is_none_or(|(state, now)| link.state(now) == state)
                    && tag.as_ref().is_none_or(|tag| link.tags.contains(tag))
                    && (external_id.is_none() || *external_id == link.external_id)
                    && created_by
                        .as_ref()
                        .is_none_or(|keys| keys.contains(&link.created_by))
                    && (upload.is_none() || *upload == link.upload)
                    && (target.is_none() || target.as_ref() == link.destination.target())
            })
            .map(|link| link.code.to_string())
            .collect();
        for limit in [7, 1000] {
            let listing = Listing {
                limit,
                ..listing.clone()
            };
            assert_eq!(listed(store, &listing).await, expected, "{listing:?}");
        }
    }
}

/// All codes of a listing for which no more than `most` links are looked at at once, and how often
/// it was gone on with.
async fn searched(store: &Store, listing: &Listing, most: u32) -> (Vec<String>, u32) {
    let mut listing = listing.clone();
    let (mut found, mut steps) = (Vec::new(), 0);
    loop {
        let reach = store.listing_reach(&listing, most).await.expect("a store");
        listing.until = reach;
        let page = store.list_links(&listing).await.expect("a store");
        found.extend(codes(&page));
        let is_full = page.len() == listing.limit as usize;
        let last = page.last().filter(|_| is_full);
        let last = last.map(|last| Position {
            created_at: last.created_at,
            code: last.code,
        });
        let Some(next) = last.or(reach) else {
            return (found, steps);
        };
        listing.after = Some(next);
        steps += 1;
    }
}

async fn a_search_goes_on_where_it_has_come_to(fixture: Fixture) {
    let store = &*fixture.finding_targets().await;
    let now = moment("2026-06-01T00:00:00Z");
    let start = moment("2026-01-01T00:00:00Z");
    let later = moment("2027-01-01T00:00:00Z");
    for number in 0..60i64 {
        let created_at = start + SignedDuration::from_millis(number / 4);
        let is_one_of = |step| number % step == 0;
        let link = Link {
            created_at,
            updated_at: created_at,
            destination: Destination::Target(target(if is_one_of(2) { "b" } else { "a" })),
            // All of them have an end, and few have had it.
            valid_until: Second::at(if is_one_of(20) { now } else { later }),
            valid_since: Second::at(created_at).filter(|_| is_one_of(2)),
            paused_at: Some(now).filter(|_| is_one_of(15)),
            tags: vec!["spring".to_owned()],
            external_id: Some("order".to_owned()).filter(|_| is_one_of(3)),
            created_by: if is_one_of(7) { "other" } else { "key" }.to_owned(),
            upload: Some(UploadId::new(1)).filter(|_| is_one_of(2)),
            ..link(&format!("c{number:03}"))
        };
        create(store, link).await;
    }
    let mut is_gone_on_with = false;
    for listing in filters(now) {
        let listing = Listing {
            limit: 5,
            ..listing
        };
        let expected = listed(store, &listing).await;
        for most in [1, 4, 7, 1000] {
            let (found, steps) = searched(store, &listing, most).await;
            assert_eq!(found, expected, "{most} {listing:?}");
            is_gone_on_with |= steps > 10;
        }
    }
    assert!(is_gone_on_with);
    let expired = Listing {
        state: Some((State::Expired, now)),
        limit: 5,
        ..Listing::default()
    };
    assert!(expired.is_searched() && !Listing::default().is_searched());
    // Each link with an end is looked at once.
    let (found, steps) = searched(store, &expired, 10).await;
    assert_eq!((found.len(), steps), (3, 6));
}

async fn links_are_found_by_the_tags_that_they_have_now(fixture: Fixture) {
    let store = &*fixture.store;
    let tags = |tags: &[&str]| tags.iter().map(|&tag| tag.to_owned()).collect::<Vec<_>>();
    for (code, its) in [("a", &["x", "y"][..]), ("b", &["y"])] {
        let link = Link {
            tags: tags(its),
            ..link(code)
        };
        create(store, link).await;
    }
    let change = Change {
        tags: Some(tags(&["y", "z"])),
        ..Change::default()
    };
    let editor = Box::new(move |link: Link| link.change(&change, moment(REVOKED_AT)));
    store
        .edit_link(&code("a"), &changed_by("key"), editor)
        .await
        .expect("a store");
    for (tag, expected) in [("x", &[][..]), ("y", &["a", "b"]), ("z", &["a"])] {
        let listing = Listing {
            tag: Some(tag.to_owned()),
            limit: 10,
            ..Listing::default()
        };
        let mut found = listed(store, &listing).await;
        found.sort();
        assert_eq!(found, expected, "{tag}");
    }
}
