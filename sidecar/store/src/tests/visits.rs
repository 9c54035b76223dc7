//! Visits: stored once, counted, listed, forgotten.

use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Destination, Link};
use shortlink_core::ports::{
    CountQuery, Counted, Dimension, KeptVisits, LinkTotal, TimeSpan, ValueCount, VisitListing,
};
use shortlink_core::testing::{campaign, link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::{Class, Classification};
use shortlink_core::visit::visitor::{DayKey, DayKeys, VisitorId};
use vocabulary::CampaignId;
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitId, VisitMethod};

use crate::testing::*;
use crate::{Store, in_every_store_of_visits};

in_every_store_of_visits! {
    a_visit_is_kept_once_however_often_it_comes,
    visits_are_counted_by_hour_and_by_what_they_have_in_common,
    a_link_ends_when_people_have_followed_it_often_enough,
    visits_are_listed_from_the_latest_and_filtered,
    visits_are_forgotten_and_erased_and_their_counts_stay,
    all_are_given_the_same_key_of_a_day_until_it_is_destroyed,
    many_who_store_the_same_visits_at_once_store_each_once,
    people_are_counted_once_a_day,
    the_evidence_of_a_visit_is_read_as_it_was_stored,
}

/// Creates a campaign with the link `member`.
pub(super) async fn create_member(store: &Store) -> CampaignId {
    let id = store.create_campaign(&campaign()).await.expect("room");
    let member = Link {
        destination: Destination::Campaign {
            id,
            values: ParameterValues::default(),
        },
        ..link("member")
    };
    create(store, member).await;
    id
}

pub(super) fn of_class(class: Class, visit: Visit) -> Visit {
    Visit {
        classification: Classification {
            class,
            ..visit.classification
        },
        ..visit
    }
}

pub(super) fn query(of: Counted) -> CountQuery {
    CountQuery {
        of,
        since: moment("2026-06-01T00:00:00Z"),
        until: moment("2026-06-02T00:00:00Z"),
    }
}

async fn total(store: &Store, of: Counted) -> u64 {
    let counts = store.count_visits(&query(of)).await.expect("a store");
    counts.iter().map(|count| count.visits).sum()
}

async fn listed(store: &Store, listing: VisitListing) -> Vec<(String, Timestamp)> {
    let visits = store.list_visits(&listing).await.expect("a store");
    visits
        .items
        .into_iter()
        .map(|visit| (visit.code, visit.at))
        .collect()
}

async fn a_visit_is_kept_once_however_often_it_comes(fixture: Fixture) {
    let store = &*fixture.store;
    let first: Vec<Visit> = (0..700)
        .map(|n| visit(n, "abc", "2026-06-01T12:00:00Z"))
        .collect();
    let kept = keep(store, first.clone()).await;
    assert_eq!(kept.new, (0..700).collect::<Vec<_>>());
    // The same again, one of them twice, and some that are new.
    let mut again = first[600..].to_vec();
    again.push(visit(701, "abc", "2026-06-01T12:00:00Z"));
    again.push(visit(701, "abc", "2026-06-01T12:00:00Z"));
    again.push(visit(700, "abc", "2026-06-01T12:00:00Z"));
    let kept = keep(store, again).await;
    assert_eq!(kept.new, [100, 102]);
    // Another origin's events are others.
    let mut other = visit(0, "abc", "2026-06-01T12:00:00Z");
    other.id.origin = 7;
    assert_eq!(keep(store, vec![other]).await.new, [0]);
    assert_eq!(fixture.count("visits").await, 703);
    assert_eq!(total(store, Counted::Link(code("abc"))).await, 703);
    assert_eq!(total(store, Counted::All).await, 703);
    let origins = fixture.count("visit_origins").await;
    assert_eq!(origins, 2);
    if fixture.options.visits.is_none() {
        assert_eq!(fixture.count("visit_agents").await, 1);
    }
}

async fn visits_are_counted_by_hour_and_by_what_they_have_in_common(fixture: Fixture) {
    let store = &*fixture.store;
    let id = create_member(store).await;
    create(store, link("plain")).await;
    let mut abroad = visit(2, "member", "2026-06-01T13:59:59.999Z");
    abroad.place.country = Some("DE".to_owned());
    abroad.host = "other.example".to_owned();
    abroad.referrer_host = Some("www.example.com".to_owned());
    abroad.place.isp = Some("Example Mobile".to_owned());
    abroad.status = 307;
    abroad.variant = Some("b".to_owned());
    let visits = vec![
        visit(0, "member", "2026-06-01T12:00:00Z"),
        of_class(Class::Preview, visit(1, "member", "2026-06-01T12:59:59Z")),
        abroad,
        visit(3, "plain", "2026-06-01T12:00:10Z"),
        visit(4, "nobody", "2026-06-01T12:00:10Z"),
    ];
    keep(store, visits.clone()).await;
    // Counts are added up.
    let later = Visit {
        id: VisitId {
            sequence: 9,
            ..visits[0].id
        },
        ..visits[0].clone()
    };
    keep(store, vec![later]).await;
    let of = |of: Counted| async move {
        let counts = store.count_visits(&query(of)).await.expect("a store");
        let text = |count: &shortlink_core::ports::TimeCount| {
            format!("{} {} {}", count.begin, count.class.name(), count.visits)
        };
        counts.iter().map(text).collect::<Vec<_>>()
    };
    let expected = [
        "2026-06-01T12:00:00Z human 2",
        "2026-06-01T12:00:00Z preview 1",
        "2026-06-01T13:00:00Z human 1",
    ];
    assert_eq!(of(Counted::Campaign(id)).await, expected);
    assert_eq!(of(Counted::Link(code("member"))).await, expected);
    assert_eq!(total(store, Counted::All).await, 6);
    let none = CountQuery {
        since: moment("2026-06-01T14:00:00Z"),
        ..query(Counted::All)
    };
    assert_eq!(store.count_visits(&none).await.expect("a store"), []);
    // Both bounds are rounded down: the same visits are in one of two periods that touch.
    for (since, until, visits) in [
        ("11:59:59", "12:30:00", 0),
        ("12:30:00", "13:30:00", 5),
        ("13:30:00", "14:00:00", 1),
    ] {
        let query = CountQuery {
            since: moment(&format!("2026-06-01T{since}Z")),
            until: moment(&format!("2026-06-01T{until}Z")),
            ..query(Counted::All)
        };
        let counts = store.count_visits(&query).await.expect("a store");
        let sum: u64 = counts.iter().map(|count| count.visits).sum();
        assert_eq!(sum, visits, "{since}");
    }

    for counted in [Counted::Campaign(id), Counted::Link(code("member"))] {
        for (dimension, expected) in [
            (
                Dimension::Country,
                ["AT human 2", "AT preview 1", "DE human 1"],
            ),
            (
                Dimension::Domain,
                [
                    "s.example.com human 2",
                    "other.example human 1",
                    "s.example.com preview 1",
                ],
            ),
            (
                Dimension::Referrer,
                [" human 2", " preview 1", "www.example.com human 1"],
            ),
            (
                Dimension::Network,
                [" human 2", " preview 1", "Example Mobile human 1"],
            ),
            (
                Dimension::Status,
                ["302 human 2", "302 preview 1", "307 human 1"],
            ),
            (Dimension::Variant, [" human 2", " preview 1", "b human 1"]),
        ] {
            let counts = store.count_by(&query(counted), dimension).await;
            let text = |it: &ValueCount| format!("{} {} {}", it.value, it.class.name(), it.visits);
            let counts: Vec<String> = counts.expect("a store").iter().map(text).collect();
            assert_eq!(counts, expected, "{dimension:?} {counted:?}");
        }
        for (dimension, value) in [
            (Dimension::Device, "phone"),
            (Dimension::Browser, "Mobile Safari"),
            (Dimension::Os, "iOS"),
        ] {
            let counts = store.count_by(&query(counted), dimension).await;
            let counts = counts.expect("a store");
            assert_eq!((&*counts[0].value, counts[0].visits), (value, 3));
        }
    }
    let mut totals = store
        .visit_totals(&[code("member"), code("plain"), code("unseen")])
        .await
        .expect("a store");
    totals.sort_unstable_by_key(|total| total.visits);
    assert_eq!(
        totals,
        [
            LinkTotal {
                code: code("plain"),
                visits: 1,
                human: 1,
                refused: 0,
                last_at: moment("2026-06-01T12:00:10Z"),
            },
            LinkTotal {
                code: code("member"),
                visits: 4,
                human: 3,
                refused: 0,
                last_at: moment("2026-06-01T13:59:59.999Z"),
            },
        ]
    );
    let domains = store.count_domains(moment("2026-06-01T12:01:00Z")).await;
    let domains: Vec<String> = domains
        .expect("a store")
        .iter()
        .map(|it| format!("{} {} {}", it.minute, it.host, it.visits))
        .collect();
    assert_eq!(
        domains,
        [
            "2026-06-01T12:59:00Z s.example.com 1",
            "2026-06-01T13:59:00Z other.example 1",
        ]
    );
}

async fn a_link_ends_when_people_have_followed_it_often_enough(fixture: Fixture) {
    let store = &*fixture.store;
    for (slug, most) in [("three", 3), ("many", 100)] {
        let link = Link {
            max_visits: NonZeroU64::new(most),
            ..link(slug)
        };
        create(store, link).await;
    }
    let at = "2026-06-01T12:00:00Z";
    let some = vec![
        visit(0, "three", at),
        visit(9, "three", at),
        of_class(Class::Unknown, visit(1, "three", at)),
        of_class(Class::Preview, visit(2, "three", at)),
        of_class(Class::Scanner, visit(3, "three", at)),
        of_class(Class::Bot, visit(4, "three", at)),
        visit(5, "many", at),
    ];
    assert_eq!(keep(store, some).await.ended, []);
    let last = vec![visit(6, "three", at), visit(7, "many", at)];
    assert_eq!(keep(store, last.clone()).await.ended, [code("three")]);
    // The next visit reports the end again, in case the process crashed after the first report.
    assert_eq!(
        keep(store, vec![visit(8, "three", at)]).await.ended,
        [code("three")]
    );
    assert_eq!(keep(store, last).await, KeptVisits::default());
}

async fn visits_are_listed_from_the_latest_and_filtered(fixture: Fixture) {
    let store = &*fixture.store;
    let mut odd = visit(3, "abc", "2026-06-01T12:00:03Z");
    odd.client = None;
    odd.visitor = None;
    odd.agent = Arc::default();
    odd.user_agent = String::new();
    odd.referrer = "https://www.example.com/?q=\u{fffd}".to_owned();
    odd.purpose = "prefetch".to_owned();
    odd.method = VisitMethod::Head;
    keep(
        store,
        vec![
            visit(0, "abc", "2026-06-01T12:00:00Z"),
            of_class(Class::Bot, visit(1, "abd", "2026-06-01T12:00:01Z")),
            // Stored later, though it was earlier.
            visit(2, "abc", "2026-05-31T12:00:02Z"),
            odd,
        ],
    )
    .await;
    let all = VisitListing {
        limit: 10,
        ..VisitListing::default()
    };
    let visits = store.list_visits(&all).await.expect("a store").items;
    let codes: Vec<&str> = visits.iter().map(|visit| visit.code.as_str()).collect();
    assert_eq!(codes, ["abc", "abc", "abd", "abc"]);
    let odd = &visits[0];
    assert_eq!(
        (&odd.client, &odd.visitor, &odd.browser),
        (&None, &None, &None)
    );
    assert_eq!(
        (&*odd.method, &*odd.purpose, &*odd.device),
        ("HEAD", "prefetch", "other")
    );
    let plain = &visits[3];
    assert_eq!(plain.client.as_deref(), Some("192.0.2.0"));
    assert_eq!(plain.visitor.as_deref(), Some("07".repeat(16).as_str()));
    assert_eq!(plain.browser.as_deref(), Some("Mobile Safari 17.2"));
    assert_eq!(plain.os.as_deref(), Some("iOS 17.2"));
    assert_eq!((plain.status, plain.ruleset), (302, 1));
    assert_eq!((&*plain.referrer, &*plain.purpose), ("", ""));
    assert_eq!(
        (plain.city.as_deref(), plain.app.as_deref()),
        (Some("Wien"), Some("WeChat"))
    );
    for (listing, count) in [
        (
            VisitListing {
                code: Some(code("abc")),
                ..all.clone()
            },
            3,
        ),
        (
            VisitListing {
                class: Some(Class::Bot),
                ..all.clone()
            },
            1,
        ),
        (
            VisitListing {
                since: Some(moment("2026-06-01T00:00:00Z")),
                ..all.clone()
            },
            3,
        ),
        (
            VisitListing {
                until: Some(moment("2026-06-01T00:00:00Z")),
                ..all.clone()
            },
            1,
        ),
        (
            VisitListing {
                before: Some(visits[1].number),
                ..all.clone()
            },
            2,
        ),
        (
            VisitListing {
                limit: 1,
                ..all.clone()
            },
            1,
        ),
    ] {
        assert_eq!(
            listed(store, listing.clone()).await.len(),
            count,
            "{listing:?}"
        );
    }
}

async fn visits_are_forgotten_and_erased_and_their_counts_stay(fixture: Fixture) {
    let store = &*fixture.store;
    let old = (0..20).map(|n| visit(n, "old", "2026-05-20T12:00:00Z"));
    let young = (20..30).map(|n| visit(n, "young", "2026-05-31T12:00:00Z"));
    // The clock of the reporting nginx was wrong.
    let mut visits: Vec<Visit> = old.chain(young).collect();
    visits.push(visit(30, "odd", "1999-01-01T00:00:00Z"));
    visits.insert(0, visit(31, "odd", "1999-01-01T00:00:00Z"));
    keep(store, visits).await;
    let before = moment(NOW) - SignedDuration::from_hours(24 * 7);
    let mut forgotten = 0;
    loop {
        match store.forget_visits(before, 8).await.expect("a store") {
            0 => break,
            some => forgotten += some,
        }
    }
    // In the order in which they were stored: what is behind a younger one waits for that. ClickHouse deletes them itself.
    let by_itself = fixture.options.visits.is_some();
    assert!(forgotten >= 21 || by_itself, "{forgotten}");
    assert_eq!(
        erase_visits(store, &[code("young"), code("nobody")], moment(NOW)).await,
        10
    );
    assert!(fixture.count("visits").await <= 1 || by_itself);
    let totals = store.visit_totals(&[code("old"), code("young")]).await;
    let totals: u64 = totals.expect("a store").iter().map(|it| it.visits).sum();
    assert_eq!(totals, 30);
    // Earlier visits are not stored twice.
    assert_eq!(
        keep(store, vec![visit(5, "old", "2026-05-20T12:00:00Z")])
            .await
            .new,
        [0; 0]
    );
}

async fn all_are_given_the_same_key_of_a_day_until_it_is_destroyed(fixture: Fixture) {
    let store = &*fixture.store;
    let day = |text: &str| text.parse().expect("a day");
    let (first, second) = (day("2026-06-01"), day("2026-06-02"));
    let known = async |day| {
        let key = store.known_day_key(day).await.expect("a store");
        key.map(|key| *key.expose())
    };
    assert_eq!(known(first).await, None);
    let key = store.day_key(first, DayKey::new([1; 32])).await;
    let key = key.expect("a store");
    assert_eq!(key.expose(), &[1; 32]);
    let again = store.day_key(first, DayKey::new([2; 32])).await;
    assert_eq!(again.expect("a store").expose(), &[1; 32]);
    let other = store.day_key(second, DayKey::new([3; 32])).await;
    assert_eq!(other.expect("a store").expose(), &[3; 32]);
    assert_eq!(known(first).await, Some([1; 32]));
    assert_eq!(store.destroy_day_keys(second).await.expect("a store"), 1);
    assert_eq!(known(first).await, None);
    assert_eq!(known(second).await, Some([3; 32]));
    assert_eq!(store.destroy_day_keys(second).await.expect("a store"), 0);
    let new = store.day_key(first, DayKey::new([4; 32])).await;
    assert_eq!(new.expect("a store").expose(), &[4; 32]);
}

async fn many_who_store_the_same_visits_at_once_store_each_once(fixture: Fixture) {
    let visits: Vec<Visit> = (0..200)
        .map(|n| {
            let mut visit = visit(n, &format!("c{}", n % 40), "2026-06-01T12:00:00Z");
            visit.id.origin = n % 3;
            visit.user_agent = format!("agent {}", n % 7);
            visit
        })
        .collect();
    let tasks: Vec<_> = (0..6)
        .map(|shift| {
            let store = Arc::clone(&fixture.store);
            let mut visits = visits.clone();
            visits.rotate_left(shift * 31);
            tokio::spawn(async move { keep(&store, visits).await.new.len() })
        })
        .collect();
    let mut new = 0;
    for task in tasks {
        new += task.await.expect("no panic");
    }
    assert_eq!(new, 200);
    assert_eq!(fixture.count("visits").await, 200);
    assert_eq!(total(&fixture.store, Counted::All).await, 200);
}

async fn people_are_counted_once_a_day(fixture: Fixture) {
    let store = &*fixture.store;
    let id = create_member(store).await;
    let by = |sequence: u64, who: u8, at: &str| Visit {
        // Spread over all registers, as keyed hashes are.
        visitor: Some(VisitorId([who.wrapping_mul(37); 16])),
        ..visit(sequence, "member", at)
    };
    let unseen = Visit {
        visitor: None,
        ..visit(90, "member", "2026-06-01T12:00:00Z")
    };
    let visits = vec![
        by(0, 1, "2026-05-31T23:59:59Z"),
        by(1, 1, "2026-06-01T00:00:00Z"),
        by(2, 2, "2026-06-01T12:00:00Z"),
        by(3, 2, "2026-06-01T13:00:00Z"),
        of_class(Class::Bot, by(4, 3, "2026-06-01T13:00:00Z")),
        unseen,
    ];
    keep(store, visits).await;
    keep(
        store,
        vec![
            by(5, 1, "2026-06-01T23:00:00Z"),
            by(6, 4, "2026-06-01T23:00:00Z"),
        ],
    )
    .await;
    for of in [
        Counted::All,
        Counted::Campaign(id),
        Counted::Link(code("member")),
    ] {
        let query = CountQuery {
            since: moment("2026-05-31T00:00:00Z"),
            ..query(of)
        };
        let days = store.count_visitors(&query).await.expect("a store");
        let days: Vec<String> = days
            .iter()
            .map(|day| format!("{} {}", day.day, day.visitors))
            .collect();
        assert_eq!(
            days,
            ["2026-05-31T00:00:00Z 1", "2026-06-01T00:00:00Z 3"],
            "{of:?}"
        );
    }
    let hour = CountQuery {
        since: moment("2026-06-01T12:30:00Z"),
        until: moment("2026-06-01T13:59:59Z"),
        ..query(Counted::Link(code("member")))
    };
    let days = store.count_visitors(&hour).await.expect("a store");
    let visitors: Vec<u64> = days.iter().map(|day| day.visitors).collect();
    assert_eq!(visitors, [1]);
}

async fn the_evidence_of_a_visit_is_read_as_it_was_stored(fixture: Fixture) {
    let store = &*fixture.store;
    let most = VisitEvidence::from_number(u64::MAX);
    let given = [
        (VisitEvidence::UNKNOWN, None),
        (VisitEvidence::from_number(1), Some(0)),
        (most, Some(u32::MAX)),
    ];
    let visits = given.iter().zip(0..).map(|((evidence, asn), number)| {
        let mut visit = visit(number, "abc", "2026-06-01T12:00:00Z");
        visit.evidence = *evidence;
        visit.place.asn = *asn;
        visit
    });
    keep(store, visits.collect()).await;
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 10).await;
    let visits = page.expect("a store").visits.into_iter();
    let read: Vec<_> = visits.map(|visit| (visit.evidence, visit.asn)).collect();
    assert_eq!(read, given);
    if fixture.options.visits.is_none() {
        let unknown = "visits WHERE evidence IS NULL AND asn IS NULL";
        assert_eq!(fixture.count(unknown).await, 1);
    }
}
