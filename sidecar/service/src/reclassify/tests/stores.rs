//! Visits that are classified again: counted as if they had been so from the beginning.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use secrecy::ExposeSecret;
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Destination, Link};
use shortlink_core::ports::{
    CountQuery, Counted, Dimension, KeptVisit, StaleDay, StoreError, TimeSpan, VisitListing,
};
use shortlink_core::testing::{ManualClock, campaign, link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::Agents;
use shortlink_core::visit::class::networks::Network;
use shortlink_core::visit::class::{Class, Classification, Evidence, Words, classify};
use shortlink_core::visit::sketch::Sketch;
use shortlink_core::visit::visitor::VisitorId;
use shortlink_store::testing::{Fixture, NOW, NewRules, code, create, erase_visits, keep, visit};
use shortlink_store::{Scheme, Store, in_every_store_of_visits};
use tokio_util::sync::CancellationToken;
use vocabulary::CampaignId;
use vocabulary::visit::evidence::VisitEvidence;

use crate::jobs::{Outcome, Run};
use crate::reclassify::{People, Reclassify, Report};
use crate::testing::claims;

in_every_store_of_visits! {
    visits_classified_again_are_counted_as_if_they_always_had_been_so,
    visits_are_classified_again_while_others_come_and_by_several_at_once,
    people_are_counted_again_only_for_days_that_nobody_has_touched,
    a_day_that_goes_on_is_counted_for_a_bounded_share_of_the_time,
}

/// Changes rows of SQL.
mod in_sql {
    use super::visits_that_are_gone_or_another_are_left_alone;
    use shortlink_store::in_every_store;

    in_every_store! {
        visits_that_are_gone_or_another_are_left_alone,
    }
}

const AGENTS: [&str; 5] = [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like \
     Gecko) Version/17.2 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
    "WhatsApp/2.23.20.0 A",
    "Mozilla/5.0 (compatible; examplebot/1.0)",
    "",
];

/// A visit as the newer rules have it.
fn new(number: u64, code: &str) -> Visit {
    let user_agent = AGENTS[number as usize % AGENTS.len()];
    let visit = visit(number, code, NOW);
    let classification = classify(&Evidence {
        method: visit.method,
        purpose: "",
        observed: VisitEvidence::UNKNOWN,
        words: Words::of(user_agent),
        listed: None,
        network: Network::default(),
    });
    let hours = i64::try_from(number % 40).expect("a small number");
    Visit {
        at: visit.at - jiff::SignedDuration::from_hours(hours),
        host: format!("s{}.example.com", number % 2),
        visitor: (!number.is_multiple_of(7)).then_some(VisitorId([(number * 37 % 251) as u8; 16])),
        agent: NewRules.agent(user_agent),
        user_agent: user_agent.to_owned(),
        classification,
        ..visit
    }
}

/// The same as rules before them had it, which were wrong about most.
fn old(number: u64, code: &str) -> Visit {
    let visit = new(number, code);
    let class = match number % 4 {
        0 => Class::Human,
        1 => Class::Unknown,
        2 => Class::Bot,
        _ => visit.classification.class,
    };
    let agent = match number % 3 {
        0 => visit.agent,
        1 => Arc::default(),
        _ => self::visit(0, code, NOW).agent,
    };
    Visit {
        classification: Classification {
            class,
            reason: "old",
            ruleset: 0,
        },
        agent,
        ..visit
    }
}

/// Links with and without a campaign.
async fn links(store: &Store) -> CampaignId {
    let id = store.create_campaign(&campaign()).await.expect("room");
    for slug in ["member", "other"] {
        let member = Link {
            destination: Destination::Campaign {
                id,
                values: ParameterValues::default(),
            },
            ..link(slug)
        };
        create(store, member).await;
    }
    create(store, link("plain")).await;
    id
}

const CODES: [&str; 4] = ["member", "other", "plain", "nobody"];

fn code_of(number: u64) -> &'static str {
    CODES[number as usize / 3 % CODES.len()]
}

fn reclassify(store: &Arc<Store>) -> Reclassify {
    Reclassify {
        store: Arc::clone(store),
        agents: Arc::new(NewRules),
        time: TimeSpan::default(),
        hours_since: None,
        is_rehearsal: false,
    }
}

async fn run(reclassify: Reclassify, holder: &str) -> Report {
    let shutdown = CancellationToken::new();
    let claims = claims(&reclassify.store, &Arc::new(ManualClock::at(NOW)), holder);
    let done = reclassify.run(&claims, &shutdown, &mut |_report| {}).await;
    let (outcome, report) = done.expect("a working store");
    assert_eq!(outcome, Outcome::Done);
    report
}

fn query(of: Counted) -> CountQuery {
    CountQuery {
        of,
        since: moment("2026-05-20T00:00:00Z"),
        until: moment("2026-06-10T00:00:00Z"),
    }
}

/// Everything that is counted by class, as text.
async fn counted(store: &Store, id: CampaignId) -> Vec<String> {
    let mut all = Vec::new();
    let whose = [Counted::All, Counted::Campaign(id)];
    let links = CODES.map(|slug| Counted::Link(code(slug)));
    for of in whose.into_iter().chain(links) {
        let query = query(of);
        let counts = store.count_visits(&query).await.expect("a store");
        all.extend(counts.iter().map(|it| format!("{of:?} {it:?}")));
        for dimension in Dimension::ALL {
            let counts = store.count_by(&query, dimension).await.expect("a store");
            all.extend(
                counts
                    .iter()
                    .map(|it| format!("{of:?} {dimension:?} {it:?}")),
            );
        }
        let visitors = store.count_visitors(&query).await.expect("a store");
        let visitors = visitors.iter().filter(|day| day.visitors > 0);
        all.extend(visitors.map(|it| format!("{of:?} {it:?}")));
    }
    let mut totals = store.visit_totals(&CODES.map(code)).await.expect("a store");
    totals.sort_unstable_by_key(|total| total.code.to_string());
    all.extend(totals.iter().map(|it| format!("{it:?}")));
    all
}

async fn listed(store: &Store) -> Vec<KeptVisit> {
    let listing = VisitListing {
        limit: 100_000,
        ..VisitListing::default()
    };
    store.list_visits(&listing).await.expect("a store").items
}

async fn beside(fixture: &Fixture) -> Fixture {
    let url = fixture.options.url.expose_secret();
    Fixture::new(Scheme::of(url).expect("a scheme")).await
}

async fn visits_classified_again_are_counted_as_if_they_always_had_been_so(fixture: Fixture) {
    let fresh = beside(&fixture).await;
    let mut ids = Vec::new();
    for (store, make) in [
        (&fixture.store, old as fn(u64, &str) -> Visit),
        (&fresh.store, new),
    ] {
        ids.push(links(store).await);
        for part in 0..3 {
            let visits = (part * 900..part * 900 + 900).map(|n| make(n, code_of(n)));
            keep(store, visits.collect()).await;
        }
    }
    let wanted = counted(&fresh.store, ids[1]).await;
    assert_ne!(counted(&fixture.store, ids[0]).await, wanted);
    let report = run(reclassify(&fixture.store), "one").await;
    assert_eq!((report.visits, report.written), (2700, 2700));
    assert_eq!(report.changes(), 2700);
    assert!(report.days > 0);
    assert_eq!(counted(&fixture.store, ids[0]).await, wanted);
    for (table, rows) in [
        ("visit_link_hours", fresh.count("visit_link_hours").await),
        ("visit_hours", fresh.count("visit_hours").await),
        ("visit_stale_sketches", 0),
    ] {
        // ClickHouse has the hours of links, as contributions.
        if fixture.options.visits.is_none() || table != "visit_link_hours" {
            assert_eq!(fixture.count(table).await, rows, "{table}");
        }
    }
    let (mut found, mut fresh) = (listed(&fixture.store).await, listed(&fresh.store).await);
    for visits in [&mut found, &mut fresh] {
        for visit in &mut *visits {
            visit.number = 0;
        }
        // Sessions of PostgreSQL take numbers in advance, so those of two batches may be in any order.
        visits.sort_by_cached_key(|visit| format!("{visit:?}"));
    }
    assert_eq!(found, fresh);
    // And then there is nothing left to be done.
    let report = run(reclassify(&fixture.store), "one").await;
    assert_eq!((report.changes(), report.written, report.days), (0, 0, 0));
}

async fn visits_are_classified_again_while_others_come_and_by_several_at_once(fixture: Fixture) {
    let fresh = beside(&fixture).await;
    let (id, fresh_id) = (links(&fixture.store).await, links(&fresh.store).await);
    let visits = (0..3000).map(|n| old(n, code_of(n)));
    keep(&fixture.store, visits.collect()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, is_over) = (fixture.open().await, Arc::clone(&is_over));
        async move {
            let mut number = 3000;
            while !is_over.load(Ordering::SeqCst) || number < 4000 {
                let visits = (number..number + 50).map(|n| new(n, code_of(n)));
                keep(&store, visits.collect()).await;
                number += 50;
            }
            store.close().await;
            number
        }
    });
    let tasks: Vec<_> = ["one", "two"]
        .map(|holder| {
            let reclassify = reclassify(&fixture.store);
            tokio::spawn(async move { run(reclassify, holder).await.written })
        })
        .into();
    let mut written = 0;
    for task in tasks {
        written += task.await.expect("no panic");
    }
    is_over.store(true, Ordering::SeqCst);
    let last = writer.await.expect("no panic");
    assert_eq!(written, 3000);
    for first in (0..last).step_by(1000) {
        let visits = (first..last.min(first + 1000)).map(|n| new(n, code_of(n)));
        keep(&fresh.store, visits.collect()).await;
    }
    let wanted = counted(&fresh.store, fresh_id).await;
    assert_eq!(counted(&fixture.store, id).await, wanted);
    assert_eq!(fixture.count("visit_stale_sketches").await, 0);
}

async fn visits_that_are_gone_or_another_are_left_alone(fixture: Fixture) {
    let store = &*fixture.store;
    links(store).await;
    let visits = (0..120).map(|n| old(n, code_of(n)));
    keep(store, visits.collect()).await;
    fixture
        .execute("UPDATE visits SET class = 'oracle' WHERE code = 'other'")
        .await;
    let page = store
        .visits_after(i64::MIN, TimeSpan::default(), 1000)
        .await;
    let page = page.expect("a store");
    assert_eq!(page.visits.len(), 90);
    let verdicts: Vec<_> = page
        .visits
        .into_iter()
        .filter_map(|visit| Some((visit.reclassified(&NewRules)?, visit)))
        .map(|(verdict, visit)| (visit, verdict))
        .collect();
    assert_eq!(verdicts.len(), 90);
    assert_eq!(erase_visits(store, &[code("plain")], moment(NOW)).await, 30);
    let before = store
        .count_visits(&query(Counted::Link(code("plain"))))
        .await;
    let mut written = Vec::new();
    for _ in 0..2 {
        let done = store
            .reclassify_visits(verdicts.clone(), None, moment(NOW))
            .await;
        written.push(done.expect("a store"));
    }
    assert_eq!(written, [60, 0]);
    let after = store
        .count_visits(&query(Counted::Link(code("plain"))))
        .await;
    assert_eq!(after.expect("a store"), before.expect("a store"));
    let all = store.count_visits(&query(Counted::All)).await;
    let all: u64 = all.expect("a store").iter().map(|it| it.visits).sum();
    assert_eq!(all, 120);
    // Pages are those of a time.
    let half = TimeSpan {
        since: Some(moment("2026-06-01T00:00:00Z")),
        until: Some(moment("2026-06-01T12:00:00Z")),
    };
    let page = store
        .visits_after(i64::MIN, half, 1000)
        .await
        .expect("a store");
    let listed = listed(store).await;
    let wanted = listed
        .iter()
        .filter(|it| half.has(it.at) && it.class != "oracle");
    let mut wanted: Vec<i64> = wanted.map(|visit| visit.number).collect();
    wanted.sort_unstable();
    assert!(!wanted.is_empty());
    let found: Vec<i64> = page.visits.iter().map(|visit| visit.number).collect();
    assert_eq!(found, wanted);
}

async fn stale_days(store: &Store) -> Result<Vec<StaleDay>, StoreError> {
    store.stale_days(i64::MAX, (i64::MIN, i64::MIN), 10).await
}

/// The day of [`NOW`] is counted at most once an hour, and passes are nine times as far apart as they take long.
async fn a_day_that_goes_on_is_counted_for_a_bounded_share_of_the_time(fixture: Fixture) {
    let store = &fixture.store;
    let clock = Arc::new(ManualClock::at("2026-06-01T12:30:00Z"));
    let visits = (0..40_u64).map(|number| {
        // The first ten are of the day before.
        let at = if number < 10 {
            "2026-05-31T12:00:00Z"
        } else {
            NOW
        };
        Visit {
            visitor: Some(VisitorId([(number as u8).wrapping_mul(37); 16])),
            ..visit(number, "abc", at)
        }
    });
    keep(store, visits.collect()).await;
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 100).await;
    let visits = page.expect("a store").visits;
    let lose = async |place: usize| {
        let mut verdict = visits[place]
            .reclassified(&NewRules)
            .expect("another agent");
        verdict.classification.class = Class::Bot;
        let lost = vec![(visits[place].clone(), verdict)];
        let done = store.reclassify_visits(lost, None, moment(NOW)).await;
        assert_eq!(done.expect("a store"), 1);
    };
    // Another process each time: what it must know is in SQL.
    let count = async || {
        let people = People::in_background(Arc::clone(store), Arc::clone(&clock) as _);
        let mut run = Run::new(people, &claims(store, &clock, "one"));
        let shutdown = CancellationToken::new();
        let done = run
            .finish(Duration::from_secs(60), &shutdown, &mut |_| {})
            .await;
        assert_eq!(done.expect("a store"), Outcome::Done);
        run.job.days
    };
    let advance = |seconds| clock.advance(jiff::SignedDuration::from_secs(seconds));
    // One that has ended keeps no other one from being counted.
    lose(9).await;
    assert_eq!(count().await, 1);
    lose(20).await;
    assert_eq!(count().await, 1);
    for (place, minutes) in [(21, 10), (22, 10), (23, 39)] {
        lose(place).await;
        advance(minutes * 60);
        assert_eq!(count().await, 0, "{place}");
    }
    // A day that has ended does not wait.
    lose(0).await;
    assert_eq!(count().await, 1);
    advance(60);
    assert_eq!(count().await, 1);
    assert_eq!(stale_days(store).await.expect("a store"), []);
    // A pass of three seconds, after which the claim is still valid.
    lose(1).await;
    let people = People::in_background(Arc::clone(store), Arc::clone(&clock) as _);
    let mut run = Run::new(people, &claims(store, &clock, "one"));
    let shutdown = CancellationToken::new();
    let mut steps = 0;
    let mut slow = |_: Option<&People>| {
        steps += 1;
        if steps == 2 {
            advance(3);
        }
    };
    let done = run
        .finish(Duration::from_secs(60), &shutdown, &mut slow)
        .await;
    assert_eq!(done.expect("a store"), Outcome::Done);
    assert_eq!(run.job.days, 1);
    lose(2).await;
    advance(26);
    assert_eq!(count().await, 0);
    advance(1);
    assert_eq!(count().await, 1);
    // A day that has ended meanwhile does not wait for the hour.
    lose(30).await;
    advance(24 * 3600);
    assert_eq!(count().await, 1);
    // A note of a clock that was ahead holds nothing up.
    lose(31).await;
    let ahead = format!("{0} {0}", i64::MAX / 2);
    let noted = store.take_note("people", Some(ahead)).await;
    noted.expect("a store");
    assert_eq!(count().await, 1);
}

async fn people_are_counted_again_only_for_days_that_nobody_has_touched(fixture: Fixture) {
    let store = &*fixture.store;
    let person = |who: u8| VisitorId([who.wrapping_mul(37); 16]);
    let by = |number: u64, who: u8| Visit {
        visitor: Some(person(who)),
        ..visit(number, "abc", NOW)
    };
    let visits = (0..3).map(|n| by(n, n as u8 + 1));
    keep(store, visits.collect()).await;
    let people = async || -> BTreeMap<Timestamp, u64> {
        let days = store.count_visitors(&query(Counted::All)).await;
        let days = days.expect("a store");
        days.into_iter().map(|it| (it.day, it.visitors)).collect()
    };
    let day = moment("2026-06-01T00:00:00Z");
    assert_eq!(people().await, BTreeMap::from([(day, 3)]));
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 10).await;
    let verdict = |class: Class, visit: &shortlink_core::visit::stored::StoredVisit| {
        let mut verdict = visit.reclassified(&NewRules).expect("another agent");
        verdict.classification.class = class;
        (visit.clone(), verdict)
    };
    let visits = page.expect("a store").visits;
    let lost = vec![verdict(Class::Bot, &visits[0])];
    let done = store.reclassify_visits(lost, None, moment(NOW)).await;
    assert_eq!(done.expect("a store"), 1);
    let stale = stale_days(store).await.expect("a store");
    assert_eq!(stale.len(), 1);
    let sketch = |who: &[u8]| {
        let mut sketch = Sketch::default();
        who.iter().for_each(|who| sketch.add(person(*who)));
        sketch
    };
    let found = vec![(stale[0], sketch(&[2, 3]))];
    let replaced = store.replace_people(found.clone()).await.expect("a store");
    assert_eq!(replaced.len(), 1);
    assert_eq!(people().await, BTreeMap::from([(day, 2)]));
    // The process that stores new visits adds their visitors.
    keep(store, vec![by(3, 4)]).await;
    assert_eq!(people().await, BTreeMap::from([(day, 3)]));
    // Another is done with what was read before the replacement.
    assert_eq!(
        store.replace_people(found.clone()).await.expect("a store"),
        []
    );
    assert_eq!(store.settle_people(found).await.expect("a store"), 0);
    // Another visitor is removed meanwhile.
    let lost = vec![verdict(Class::Bot, &visits[1])];
    store
        .reclassify_visits(lost, None, moment(NOW))
        .await
        .expect("a store");
    let late = vec![(replaced[0], sketch(&[2, 3, 4]))];
    assert_eq!(store.settle_people(late).await.expect("a store"), 0);
    let stale = stale_days(store).await.expect("a store");
    let replaced = store.replace_people(vec![(stale[0], sketch(&[3]))]).await;
    let replaced = replaced.expect("a store");
    assert_eq!(people().await, BTreeMap::from([(day, 1)]));
    let both = vec![(replaced[0], sketch(&[3, 4]))];
    assert_eq!(store.settle_people(both).await.expect("a store"), 1);
    assert_eq!(people().await, BTreeMap::from([(day, 2)]));
    assert_eq!(stale_days(store).await.expect("a store"), []);
    let read = store
        .people_after(i64::MIN, (0, i64::MAX / DAY_MS - 1), 10)
        .await;
    let mut read = read.expect("a store").people;
    read.sort_unstable();
    let mut wanted = [3, 4].map(|who| (0, day.as_millisecond() / DAY_MS, person(who)));
    wanted.sort_unstable();
    assert_eq!(read, wanted);
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
