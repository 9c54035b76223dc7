//! Walking through all links, deleting dead ones, and who does so.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use shortlink_core::link::{Change, Link, Second};
use shortlink_core::plan::Plan;
use shortlink_core::ports::{End, EndPlace, Place, Slice};
use shortlink_core::records::Records;
use shortlink_core::revised::Revised;
use shortlink_core::target::Target;
use shortlink_core::testing::{changed_by, link, moment};
use vocabulary::Code;

use crate::in_every_store;
use crate::testing::*;
use crate::{Claim, Engine};

in_every_store! {
    every_link_is_walked_past_once_whatever_it_is,
    a_link_that_is_not_plain_is_read_as_a_whole,
    a_target_that_nobody_here_has_stored_is_no_link_left_out_in_silence,
    records_are_found_by_code_and_said_to_wait_until_redis_was_told,
    links_whose_ids_are_far_from_each_other_wait_until_redis_was_told,
    what_has_expired_is_walked_past_in_that_order,
    dead_links_are_found_until_they_wait_or_change,
    a_dead_link_is_deleted_with_all_that_is_its_own_and_its_code_is_taken_until_freed,
    a_link_is_deleted_whatever_its_row_and_the_counts_hold,
    a_code_is_not_free_while_its_link_is_being_deleted,
    one_holder_has_a_task_until_its_claim_ends,
    of_many_who_claim_a_task_at_once_one_gets_it,
    a_note_is_kept_until_another_is_taken,
}

const NOW: &str = "2026-06-01T00:00:00Z";

/// The longest codes have no number, and lie before all others.
const FAR: &str = "abcdefghijklmnop";

impl Fixture {
    /// Stores a link that was published long ago.
    async fn keep(&self, link: &Link) {
        let receipt = create(&self.store, link.clone()).await;
        settle(&self.store, vec![receipt], link.updated_at).await;
    }

    /// All records, read so many at a time, by code.
    async fn walk(&self, limit: u32) -> Vec<(String, String)> {
        let (mut place, mut all) = (Some(Place::START), Vec::new());
        while let Some(after) = place {
            let page = self.store.records_after(after, limit, moment(NOW)).await;
            let page = page.expect("a working store");
            all.extend(texts(&page.records));
            place = page.next;
        }
        all.sort_unstable();
        all
    }

    /// The codes of what has been dead for thirty days.
    async fn dead(&self) -> Vec<String> {
        let now = moment(NOW);
        let before = now - SignedDuration::from_hours(24 * 30);
        let mut codes: Vec<String> = Vec::new();
        // One at a time, in three lanes.
        for end in [End::Revocation, End::Expiry] {
            for number in 0..3 {
                let (slice, mut after) = (Slice { number, of: 3 }, EndPlace::START);
                loop {
                    let dead = self
                        .store
                        .records_dead_since(before, (end, after), 1, slice, now);
                    let dead = dead.await.expect("a working store");
                    codes.extend(texts(&dead.records).into_iter().map(|(code, _)| code));
                    match dead.next {
                        Some(next) => after = next,
                        None => break,
                    }
                }
            }
        }
        codes.sort_unstable();
        codes
    }
}

fn texts(records: &Records) -> Vec<(String, String)> {
    let texts = records.iter().map(|wanted| {
        let text = std::str::from_utf8(wanted.text).expect("a readable record");
        (wanted.code.to_string(), text.to_owned())
    });
    texts.collect()
}

fn expiring(code: &str, at: &str) -> Link {
    Link {
        valid_until: Second::at(moment(at)),
        ..link(code)
    }
}

fn revoked(code: &str, at: &str) -> Link {
    Link {
        revoked_at: Some(moment(at)),
        updated_at: moment(at),
        revision: 2,
        ..link(code)
    }
}

fn pair(code: &str, text: &str) -> (String, String) {
    (code.to_owned(), text.to_owned())
}

async fn every_link_is_walked_past_once_whatever_it_is(fixture: Fixture) {
    for kept in [
        link("abc"),
        revoked("abd", NOW),
        expiring("abe", "2026-05-01T00:00:00Z"),
        expiring("abf", "2026-07-01T00:00:00Z"),
        link(FAR),
        link("abg"),
    ] {
        fixture.keep(&kept).await;
    }
    let expected = [
        pair("abc", "1 302 1 0 https://example.com/a"),
        pair(FAR, "1 302 1 0 https://example.com/a"),
        pair("abd", "1 410 2"),
        pair("abe", "1 410 1"),
        pair("abf", "1 302 1 1782864000 https://example.com/a"),
        pair("abg", "1 302 1 0 https://example.com/a"),
    ];
    for limit in [1, 2, 5, 6, 7, 100] {
        assert_eq!(fixture.walk(limit).await, expected, "{limit}");
    }
    let page = fixture
        .store
        .records_after(Place::START, 100, moment(NOW))
        .await;
    let records = page.expect("a working store").records;
    let ended = records.iter().filter_map(|wanted| {
        let ended_s = wanted.ended_s?;
        Some((wanted.code.to_string(), ended_s))
    });
    let second = |text: &str| shortlink_core::link::since_1970(moment(text));
    let mut ended: Vec<(String, u64)> = ended.collect();
    ended.sort_unstable();
    let expected = [
        ("abd".to_owned(), second(NOW)),
        ("abe".to_owned(), second("2026-05-01T00:00:00Z")),
    ];
    assert_eq!(ended, expected);
}

async fn a_link_that_is_not_plain_is_read_as_a_whole(fixture: Fixture) {
    let paused = Link {
        paused_at: Some(moment(NOW)),
        ..link("abd")
    };
    let forwarding = Link {
        forward_query: true,
        ..link("abe")
    };
    let bounded = Link {
        max_visits: std::num::NonZeroU64::new(5),
        ..link(FAR)
    };
    let mut expected = Vec::new();
    let target = Target::from_stored("https://example.com/a".to_owned());
    let planned = Link {
        plan: Plan::of_link("R29:d=i https://apps.example.com/".to_owned(), &target),
        ..link("abf")
    };
    for kept in [link("abc"), paused, forwarding, bounded, planned] {
        fixture.keep(&kept).await;
        let mut records = Records::at(moment(NOW));
        records.push(&kept);
        expected.extend(texts(&records));
    }
    expected.sort_unstable();
    for limit in [1, 2, 100] {
        assert_eq!(fixture.walk(limit).await, expected, "{limit}");
    }
}

async fn a_target_that_nobody_here_has_stored_is_no_link_left_out_in_silence(fixture: Fixture) {
    fixture.keep(&link("abc")).await;
    fixture.keep(&link("abd")).await;
    fixture
        .execute("UPDATE links SET target = 'a\nb' WHERE code = 'abc'")
        .await;
    let page = fixture.store.records_after(Place::START, 10, moment(NOW));
    page.await.expect_err("an error");
}

async fn records_are_found_by_code_and_said_to_wait_until_redis_was_told(fixture: Fixture) {
    let links: Vec<Link> = (0..3)
        .map(|count| {
            let numbering = fixture.store.numbering();
            let (alphabet, check) = (vocabulary::Alphabet::Base62, vocabulary::Check::Luhn);
            let issued = numbering.issued(alphabet, &check, 7, count);
            Link {
                code: issued.expect("a code"),
                ..link("abc")
            }
        })
        .collect();
    let created = fixture.store.create_links(links.clone()).await;
    let receipt = created.expect("a working store").receipt;
    fixture.keep(&link(FAR)).await;
    let codes = [links[1].code, code("nothere"), code(FAR)];
    let kept = fixture.store.records_of(&codes, moment(NOW)).await;
    let kept = kept.expect("a working store");
    let place = |code: &Code| {
        let place = kept.records.iter().position(|wanted| wanted.code == *code);
        place.expect("a record")
    };
    assert_eq!(kept.records.len(), 2);
    assert!(kept.waiting[place(&codes[0])]);
    assert!(!kept.waiting[place(&codes[2])]);
    settle(&fixture.store, vec![receipt], moment(NOW)).await;
    let kept = fixture.store.records_of(&codes, moment(NOW)).await;
    assert_eq!(kept.expect("a working store").waiting, [false, false]);
    let missing = fixture.store.codes_without_link(&codes).await;
    assert_eq!(missing.expect("a working store"), [1]);
    let unknown = [code("abcdefghijklmnoq")];
    let missing = fixture.store.codes_without_link(&unknown).await;
    assert_eq!(missing.expect("a working store"), [0]);
}

async fn links_whose_ids_are_far_from_each_other_wait_until_redis_was_told(fixture: Fixture) {
    let store = &fixture.store;
    let links: Vec<Link> = (0..50).map(|n| link(&format!("c{n}"))).collect();
    let created = store.create_links(links.clone()).await;
    let created = created.expect("a working store");
    create(store, link("other")).await;
    // A change has a row of its own.
    let revoke = Box::new(|link: Link| link.revoke(moment(NOW)));
    let edited = store
        .edit_link(&code("c7"), &changed_by("key"), revoke)
        .await;
    edited.expect("a working store").expect("a link");
    let waiting = waiting(store).await;
    assert_eq!(waiting.links[0].code, code("c7"));
    let mut codes: Vec<String> = fixture.waiting().await;
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), 51);
    let asked: Vec<Code> = ["c7", "c8", "other"].map(code).into();
    let is_waiting = async || {
        let kept = store.records_of(&asked, moment(NOW)).await;
        let kept = kept.expect("a working store");
        let of = kept.records.iter().map(|wanted| wanted.code.to_string());
        of.zip(kept.waiting).collect::<BTreeMap<String, bool>>()
    };
    let expected = |values: [bool; 3]| {
        let codes = asked.iter().map(Code::to_string);
        codes.zip(values).collect::<BTreeMap<String, bool>>()
    };
    assert_eq!(is_waiting().await, expected([true, true, true]));
    settle(store, vec![created.receipt], moment(NOW)).await;
    assert_eq!(is_waiting().await, expected([true, false, true]));
    settle(store, vec![waiting.receipt], moment(NOW)).await;
    assert_eq!(is_waiting().await, expected([false, false, false]));
    assert_eq!(fixture.waiting().await, Vec::<String>::new());
}

async fn what_has_expired_is_walked_past_in_that_order(fixture: Fixture) {
    for kept in [
        expiring("abc", "2026-05-03T00:00:00Z"),
        expiring("abd", "2026-05-01T00:00:00Z"),
        expiring("abe", "2026-05-01T00:00:00Z"),
        expiring("abf", "2026-06-01T00:00:01Z"),
        link("abg"),
    ] {
        fixture.keep(&kept).await;
    }
    let mut after = EndPlace::START;
    let mut seen = Vec::new();
    loop {
        let now = moment(NOW);
        let page = fixture
            .store
            .records_expired(after, now, 1, Slice::default())
            .await;
        let page = page.expect("a working store");
        seen.extend(texts(&page.records));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[2], pair("abc", "1 410 1"));
}

async fn dead_links_are_found_until_they_wait_or_change(fixture: Fixture) {
    fixture.keep(&revoked(FAR, "2026-01-02T00:00:00Z")).await;
    fixture.keep(&expiring("abd", "2026-01-02T00:00:00Z")).await;
    fixture.keep(&expiring("abh", "2026-01-02T00:00:00Z")).await;
    fixture.keep(&revoked("abe", "2026-05-31T00:00:00Z")).await;
    fixture.keep(&link("abf")).await;
    assert_eq!(fixture.dead().await, [FAR, "abd", "abh"]);
    // One waits, and the other was changed lately.
    let revoke = Box::new(|link: Link| link.revoke(moment("2026-01-02T00:00:00Z")));
    let told_again = fixture
        .store
        .edit_link(&code(FAR), &changed_by("key"), revoke)
        .await;
    told_again.expect("a working store");
    let change = Change {
        target: Some(Target::from_stored("https://example.com/b".to_owned())),
        ..Change::default()
    };
    let lately = moment("2026-05-31T00:00:00Z");
    let change = Box::new(move |link: Link| link.change(&change, lately));
    let changed = fixture
        .store
        .edit_link(&code("abd"), &changed_by("key"), change)
        .await;
    let changed = changed.expect("a working store").expect("a link");
    settle(&fixture.store, vec![changed.receipt], lately).await;
    assert_eq!(fixture.dead().await, ["abh"]);
}

async fn a_dead_link_is_deleted_with_all_that_is_its_own_and_its_code_is_taken_until_freed(
    fixture: Fixture,
) {
    let (store, now) = (&fixture.store, moment(NOW));
    let before = now - SignedDuration::from_hours(24 * 30);
    let dead = Link {
        tags: vec!["a".to_owned(), "b".to_owned()],
        ..link(FAR)
    };
    let digested = vec![(dead.clone(), identity(7))];
    let created = store.find_or_create_links(digested).await;
    let created = created.expect("a working store").receipt;
    settle(store, vec![created], now).await;
    let revoke = Box::new(|link: Link| link.revoke(moment("2026-01-02T00:00:00Z")));
    let edited = store
        .edit_link(&dead.code, &changed_by("key"), revoke)
        .await;
    let edited = edited.expect("a working store").expect("a link");
    settle(store, vec![edited.receipt], before).await;
    fixture.keep(&link("abf")).await;
    for table in ["link_tags", "link_digests", "link_history"] {
        assert!(fixture.count(table).await > 0, "{table}");
    }
    // Another revision is another link than was looked at.
    let deleted = store.delete_links(vec![(dead.code, 1)], now).await;
    assert_eq!(deleted.expect("a working store"), 0);
    let links = vec![(code("nobody"), 1), (dead.code, 2)];
    let deleted = store.delete_links(links, now).await;
    assert_eq!(deleted.expect("a working store"), 1);
    assert_eq!(store.find_link(&dead.code).await.expect("a store"), None);
    for table in ["link_tags", "link_digests", "link_history", "outbox"] {
        assert_eq!(fixture.count(table).await, 0, "{table}");
    }
    let usage = store.code_usage(0).await.expect("a working store");
    assert_eq!(usage.iter().map(|it| it.links).sum::<u64>(), 1);
    // The others of the same call are stored and wait for publication.
    let some = vec![link("abh"), dead.clone(), link("abi")];
    let created = store.create_links(some).await.expect("a working store");
    assert_eq!(created.taken, [1]);
    let mut waiting = fixture.waiting().await;
    waiting.sort_unstable();
    assert_eq!(waiting, ["abh", "abi"]);
    let usage = store.code_usage(0).await.expect("a working store");
    assert_eq!(usage.iter().map(|it| it.links).sum::<u64>(), 3);
    let known = store.codes_without_link(&[dead.code]).await;
    assert_eq!(known.expect("a working store"), Vec::<usize>::new());
    let deleted = async |before| {
        let mut codes = Vec::new();
        for number in 0..2 {
            let slice = Slice { number, of: 2 };
            let found = store
                .deleted_links(before, EndPlace::START, 10, slice)
                .await;
            let (own, next) = found.expect("a working store");
            codes.extend(own);
            if let Some(next) = next {
                let rest = store.deleted_links(before, next, 10, slice).await;
                assert_eq!(rest.expect("a working store"), (vec![], None));
            }
        }
        codes
    };
    assert_eq!(deleted(before).await, []);
    assert_eq!(deleted(now).await, [dead.code]);
    store.free_codes(vec![dead.code]).await.expect("a store");
    fixture.keep(&dead).await;
}

async fn a_link_is_deleted_whatever_its_row_and_the_counts_hold(fixture: Fixture) {
    let dead = [link("abd"), link("abe"), link("abf")];
    for link in &dead {
        fixture.keep(link).await;
    }
    let delete = async |number: usize| {
        let links = vec![(dead[number].code, 1)];
        let deleted = fixture.store.delete_links(links, moment(NOW)).await;
        assert_eq!(deleted.expect("a working store"), 1);
    };
    fixture.execute("UPDATE links SET tags = 'x'").await;
    delete(0).await;
    fixture.execute("UPDATE code_usage SET links = 0").await;
    delete(1).await;
    fixture
        .execute("DELETE FROM code_usage WHERE links = 0")
        .await;
    delete(2).await;
    // In PostgreSQL, counts are sums of rows.
    if matches!(fixture.store.engine, Engine::Sqlite(_)) {
        assert_eq!(fixture.count("code_usage").await, 0);
    }
    let usage = fixture.store.code_usage(0).await.expect("a store");
    assert_eq!(usage.iter().map(|it| it.links).sum::<u64>(), 0);
}

async fn a_code_is_not_free_while_its_link_is_being_deleted(fixture: Fixture) {
    let other = fixture.open().await;
    for number in 0..40 {
        let dead = revoked(&format!("c{number}"), "2026-01-02T00:00:00Z");
        fixture.keep(&dead).await;
        let store = Arc::clone(&fixture.store);
        let links = vec![(dead.code, 2)];
        let deletion = tokio::spawn(async move { store.delete_links(links, moment(NOW)).await });
        let creations: Vec<_> = (0..3)
            .map(|_| {
                let (store, link) = (Arc::clone(&other), link(dead.code.as_str()));
                tokio::spawn(async move { try_create(&store, link).await })
            })
            .collect();
        let deleted = deletion.await.expect("no panic");
        assert_eq!(deleted.expect("a working store"), 1);
        for creation in creations {
            assert_eq!(creation.await.expect("no panic"), None, "{}", dead.code);
        }
    }
    assert_eq!(fixture.count("links").await, 0);
    assert_eq!(fixture.waiting().await, Vec::<String>::new());
}

async fn one_holder_has_a_task_until_its_claim_ends(fixture: Fixture) {
    let store = &fixture.store;
    let claim = async |holder: &str, stamp, expired| {
        let claimed = store.claim("task", holder, stamp, expired).await;
        claimed.expect("a working store")
    };
    assert_eq!(claim("one", 1, None).await, Claim::Ours);
    assert_eq!(claim("two", 2, None).await, Claim::Others(Some(1)));
    // It was renewed since the other has seen it.
    assert_eq!(claim("one", 3, None).await, Claim::Ours);
    assert_eq!(claim("two", 4, Some(1)).await, Claim::Others(Some(3)));
    assert_eq!(claim("two", 5, Some(3)).await, Claim::Ours);
    store.release("task", "one").await.expect("a working store");
    assert_eq!(claim("one", 6, None).await, Claim::Others(Some(5)));
    store.release("task", "two").await.expect("a working store");
    assert_eq!(claim("one", 6, None).await, Claim::Ours);
}

async fn of_many_who_claim_a_task_at_once_one_gets_it(fixture: Fixture) {
    let other = fixture.open().await;
    let claims: Vec<_> = (0..20)
        .map(|number: usize| {
            let store = Arc::clone([&fixture.store, &other][number % 2]);
            tokio::spawn(async move { store.claim("task", &number.to_string(), 1, None).await })
        })
        .collect();
    let mut claimed = 0;
    for claim in claims {
        let claim = claim.await.expect("no panic").expect("a working store");
        claimed += usize::from(claim == Claim::Ours);
    }
    assert_eq!(claimed, 1);
}

async fn a_note_is_kept_until_another_is_taken(fixture: Fixture) {
    let store = &fixture.store;
    assert_eq!(store.note("task").await.expect("a store"), None);
    for text in [Some("text"), Some("more"), None] {
        let text = text.map(str::to_owned);
        let taken = store.take_note("task", text.clone()).await;
        taken.expect("a working store");
        assert_eq!(store.note("task").await.expect("a store"), text);
        assert_eq!(store.note("other").await.expect("a store"), None);
    }
}
