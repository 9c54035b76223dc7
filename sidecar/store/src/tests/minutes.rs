//! Visits by the minute: a recount after random visits, corrections and erasure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use shortlink_core::link::{Destination, ParameterValues};
use shortlink_core::ports::{BY_MINUTE, CountQuery, Counted, TimeCount, TimeSpan};
use shortlink_core::testing::{campaign, link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::{Class, Classification};
use vocabulary::CampaignId;

use super::visits::of_class;
use crate::testing::*;
use crate::{Scheme, Store, in_every_store, in_every_store_of_visits};

in_every_store_of_visits! {
    minutes_are_those_of_a_recount_after_corrections_and_erasure,
    old_minutes_are_forgotten_and_do_not_come_back,
}

/// Of visits in SQL.
mod in_sql {
    use super::the_migration_counts_the_visits_of_the_last_days;

    super::in_every_store! {
        the_migration_counts_the_visits_of_the_last_days,
    }
}

const CLASSES: [Class; 4] = [Class::Human, Class::Preview, Class::Bot, Class::Refused];

/// Links: the first two of each campaign, the last two of none.
const CODES: [&str; 6] = ["a0", "a1", "b0", "b1", "n0", "n1"];

/// Two campaigns with their links, and links of none.
async fn create_links(store: &Store) -> [CampaignId; 2] {
    let mut campaigns = [CampaignId::FIRST; 2];
    for id in &mut campaigns {
        *id = store.create_campaign(&campaign()).await.expect("room");
    }
    for (place, text) in CODES.into_iter().enumerate() {
        let mut new = link(text);
        if let Some(id) = campaigns.get(place / 2) {
            let (id, values) = (*id, ParameterValues::default());
            new.destination = Destination::Campaign { id, values };
        }
        create(store, new).await;
    }
    campaigns
}

/// The condition that a subject counts the visits of a code.
type Counts = fn(&str) -> bool;

/// All subjects, each with the condition that it counts a link.
fn subjects([a, b]: [CampaignId; 2]) -> Vec<(Counted, Counts)> {
    vec![
        (Counted::All, |_| true),
        (Counted::Campaign(a), |code| code.starts_with('a')),
        (Counted::Campaign(b), |code| code.starts_with('b')),
        (Counted::Link(code("a0")), |code| code == "a0"),
        (Counted::Link(code("n1")), |code| code == "n1"),
    ]
}

/// The most that can be asked for at [`NOW`], and the hour that has begun.
fn latest(of: Counted) -> CountQuery {
    let hour = moment("2026-06-01T12:00:00Z");
    CountQuery {
        of,
        since: hour - BY_MINUTE,
        until: hour + SignedDuration::from_hours(1),
    }
}

/// The start of a unit of time, which is a divisor of an hour.
fn floor(at: Timestamp, unit: SignedDuration) -> Timestamp {
    let unit = unit.as_millis() as i64;
    Timestamp::from_millisecond(at.as_millisecond().div_euclid(unit) * unit).expect("a time")
}

type Numbers = BTreeMap<(Timestamp, &'static str), u64>;

fn added(
    counts: impl IntoIterator<Item = (Timestamp, Class, u64)>,
    unit: SignedDuration,
) -> Numbers {
    let mut numbers = Numbers::new();
    for (at, class, visits) in counts {
        *numbers.entry((floor(at, unit), class.name())).or_default() += visits;
    }
    numbers
}

fn read(counts: Vec<TimeCount>, unit: SignedDuration) -> Numbers {
    added(
        counts.into_iter().map(|it| (it.begin, it.class, it.visits)),
        unit,
    )
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Compares the minutes of every subject with a recount of visits, and with the counts by the hour.
async fn check(store: &Store, campaigns: [CampaignId; 2], visits: &[(Timestamp, String, Class)]) {
    for (of, counts) in subjects(campaigns) {
        let query = latest(of);
        let found = store.count_minutes(&query).await.expect("a store");
        let wanted = visits
            .iter()
            .filter(|(at, code, _)| counts(code) && (query.since..query.until).contains(at));
        let wanted = added(wanted.map(|(at, _, class)| (*at, *class, 1)), MINUTE);
        assert!(!wanted.is_empty());
        assert_eq!(read(found.clone(), MINUTE), wanted, "{of:?}");
        let hours = store.count_visits(&query).await.expect("a store");
        assert_eq!(read(found, HOUR), read(hours, HOUR), "{of:?}");
        // Bounds are whole hours.
        let until = query.since + SignedDuration::from_hours(7);
        let part = CountQuery { until, ..query };
        let part = store.count_minutes(&part).await.expect("a store");
        let wanted: Numbers = wanted
            .into_iter()
            .filter(|((at, _), _)| *at < until)
            .collect();
        assert_eq!(read(part, MINUTE), wanted, "{of:?}");
    }
}

async fn minutes_are_those_of_a_recount_after_corrections_and_erasure(fixture: Fixture) {
    let mut random = StdRng::seed_from_u64(5);
    let stores = [fixture.open().await, fixture.open().await];
    let store = &*fixture.store;
    let campaigns = create_links(store).await;
    let mut all = Vec::new();
    for batch in 0..6 {
        let visits = (0..random.random_range(1..250)).map(|n| {
            let code = *CODES.choose(&mut random).expect("some");
            let mut new = visit(batch * 1000 + n, code, NOW);
            // Some are too old, many in the same minutes, and some at the begin or the end of one.
            let ago = match random.random_range(0..4) {
                0 => random.random_range(0..180_000),
                1 => random.random_range(0..60 * 60_000),
                _ => random.random_range(0..72 * 60 * 60_000),
            };
            let at = new.at.as_millisecond() - ago;
            let at = if random.random_bool(0.1) {
                at / 60_000 * 60_000 - ago % 2
            } else {
                at
            };
            new.at = Timestamp::from_millisecond(at).expect("a time");
            new.host = format!("s{}.example", ago % 3);
            of_class(*CLASSES.choose(&mut random).expect("some"), new)
        });
        let visits: Vec<Visit> = visits.collect();
        let of = |it: &Visit| (it.at, it.code.clone(), it.classification.class);
        all.extend(visits.iter().map(of));
        keep(&stores[batch as usize % 2], visits.clone()).await;
        // Delivered again, they are not counted.
        keep(store, visits).await;
    }
    check(store, campaigns, &all).await;
    // A second judgement moves some of them.
    let page = store
        .visits_after(i64::MIN, TimeSpan::default(), 10_000)
        .await;
    let page = page.expect("a store").visits;
    assert_eq!(page.len(), all.len());
    all.clear();
    let mut verdicts = Vec::new();
    for stored in page {
        let mut class = stored.class;
        if random.random_bool(0.5) {
            class = *CLASSES.choose(&mut random).expect("some");
            let mut verdict = stored.reclassified(&NewRules).expect("another agent");
            verdict.classification = Classification {
                class,
                ..verdict.classification
            };
            verdicts.push((stored.clone(), verdict));
        }
        all.push((stored.at, stored.code, class));
    }
    let done = store
        .reclassify_visits(verdicts.clone(), None, moment(NOW))
        .await;
    assert_eq!(done.expect("a store"), verdicts.len() as u64);
    let again = store.reclassify_visits(verdicts, None, moment(NOW)).await;
    assert_eq!(again.expect("a store"), 0);
    check(store, campaigns, &all).await;
    assert_eq!(fixture.count("visit_minutes WHERE visits <= 0").await, 0);
    // Erased visits stay in the counts of campaigns, as in those by the hour; those of the link are gone.
    assert!(erase_visits(store, &[code("n1")], moment(NOW)).await > 0);
    let of_link = latest(Counted::Link(code("n1")));
    assert_eq!(store.count_minutes(&of_link).await.expect("a store"), []);
    for (of, counts) in &subjects(campaigns)[..4] {
        let query = latest(*of);
        let wanted = all
            .iter()
            .filter(|(at, code, _)| counts(code) && *at >= query.since);
        let wanted = added(wanted.map(|(at, _, class)| (*at, *class, 1)), MINUTE);
        let found = store.count_minutes(&query).await.expect("a store");
        assert_eq!(read(found.clone(), MINUTE), wanted, "{of:?}");
        let hours = store.count_visits(&query).await.expect("a store");
        assert_eq!(read(found, HOUR), read(hours, HOUR), "{of:?}");
    }
}

async fn old_minutes_are_forgotten_and_do_not_come_back(fixture: Fixture) {
    let store = &*fixture.store;
    let campaigns = create_links(store).await;
    let at = ["2026-05-29T12:30:00Z", "2026-05-30T12:00:00Z", NOW];
    let visits = at.into_iter().zip(0..);
    keep(store, visits.map(|(at, n)| visit(n, "a0", at)).collect()).await;
    // The first one is too old.
    assert_eq!(fixture.count("visit_minutes").await, 4);
    let forget = async |hours, limit| {
        let now = moment(NOW) + SignedDuration::from_hours(hours);
        store.forget_minutes(now, limit).await.expect("a store")
    };
    assert_eq!(forget(0, 10).await, 0);
    assert_eq!((forget(2, 1).await, forget(2, 10).await), (1, 1));
    assert_eq!(fixture.count("visit_minutes").await, 2);
    // Neither late visits nor corrections bring them back.
    let later = moment(NOW) + SignedDuration::from_hours(2);
    let late = vec![visit(10, "a0", "2026-05-30T12:00:00Z")];
    assert_eq!(
        store.keep_visits(late, later).await.expect("a store").new,
        [0]
    );
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 10).await;
    let verdicts = page.expect("a store").visits.into_iter().map(|stored| {
        let mut verdict = stored.reclassified(&NewRules).expect("another agent");
        verdict.classification.class = Class::Bot;
        (stored, verdict)
    });
    let done = store
        .reclassify_visits(verdicts.collect(), None, later)
        .await;
    assert_eq!(done.expect("a store"), 4);
    let counts = store
        .count_minutes(&latest(Counted::Campaign(campaigns[0])))
        .await;
    let last = TimeCount {
        begin: moment(NOW),
        class: Class::Bot,
        visits: 1,
    };
    assert_eq!(counts.expect("a store"), [last]);
    assert_eq!(fixture.count("visit_minutes").await, 2);
    assert_eq!(forget(24 * 3, 10).await, 2);
}

async fn the_migration_counts_the_visits_of_the_last_days(fixture: Fixture) {
    let store = &*fixture.store;
    let campaigns = create_links(store).await;
    // The clock of the database counts.
    let now = shortlink_core::clock::Clock::now(&shortlink_core::clock::SystemClock);
    let hours_ago = [0, 1, 1, 26, 47, 60];
    let visits = hours_ago.into_iter().zip(0..).map(|(hours, n)| {
        let at = (now - SignedDuration::from_hours(hours)).to_string();
        visit(n, CODES[n as usize % 4 * 2 % 6], &at)
    });
    let kept = store.keep_visits(visits.collect(), now).await;
    assert_eq!(kept.expect("a store").new.len(), 6);
    let counts = async || {
        let mut counts = Vec::new();
        for of in [Counted::All, Counted::Campaign(campaigns[0])] {
            let query = CountQuery {
                of,
                since: now - SignedDuration::from_hours(100),
                until: now + HOUR,
            };
            counts.push(store.count_minutes(&query).await.expect("a store"));
        }
        counts
    };
    let before = counts().await;
    assert_eq!(before[0].iter().map(|it| it.visits).sum::<u64>(), 5);
    let migration = match Scheme::of(secrecy::ExposeSecret::expose_secret(&fixture.options.url)) {
        Some(Scheme::Sqlite) => {
            include_str!("../../../../migrations/sqlite/0051_visit_minutes.sql")
        }
        _ => include_str!("../../../../migrations/postgres/0046_visit_minutes.sql"),
    };
    fixture
        .execute(&format!("DROP TABLE visit_minutes; {migration}"))
        .await;
    assert_eq!(counts().await, before);
}
