use std::num::NonZeroU64;

use jiff::Timestamp;
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Destination, Link};
use shortlink_core::ports::{CountQuery, Counted, KeptVisit, VisitListing};
use shortlink_core::testing::{ManualClock, campaign, link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::{Agent, Device, DeviceKind};
use shortlink_core::visit::class::{Class, Words};
use shortlink_core::visit::visitor::VisitorId;
use shortlink_store::in_every_store_of_visits;
use shortlink_store::testing::{Fixture, NOW, code, create, keep, visit};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::jobs::{Outcome, Run};
use crate::reclassify::People;
use crate::testing::claims;

in_every_store_of_visits! {
    a_sweep_of_recipients_links_is_not_human,
    telephones_behind_an_address_stay_human,
    a_killed_run_and_two_at_once_count_nothing_twice,
    windows_reach_across_stretches,
    a_corrected_visit_uses_up_no_link,
    without_a_delay_nothing_is_judged,
}

const DELAY: SignedDuration = SignedDuration::from_mins(2);

/// The agent of all visits.
struct Same(Arc<Agent>);

impl Agents for Same {
    fn agent(&self, user_agent: &str) -> Arc<Agent> {
        Arc::new(Agent {
            words: Words::of(user_agent),
            ..(*self.0).clone()
        })
    }
}

fn agent(kind: DeviceKind) -> Arc<Agent> {
    Arc::new(Agent {
        device: Device {
            kind,
            ..Device::default()
        },
        ..Agent::default()
    })
}

/// The visit of a recipient's link, some milliseconds before [`NOW`].
fn recipient(number: u64, before_ms: i64, kind: DeviceKind, visitor: u64) -> Visit {
    let mut id = [0; 16];
    id[..8].copy_from_slice(
        &(visitor + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_be_bytes(),
    );
    Visit {
        at: moment(NOW) - SignedDuration::from_millis(before_ms),
        visitor: Some(VisitorId(id)),
        agent: agent(kind),
        ..visit(number, &format!("r{number}"), NOW)
    }
}

fn job(store: &Arc<Store>, clock: &Arc<ManualClock>) -> Behaviour {
    let agents = Arc::new(Same(agent(DeviceKind::Desktop)));
    Behaviour::new(
        Arc::clone(store),
        Arc::clone(clock) as _,
        agents,
        Some(DELAY),
        None,
    )
}

/// Runs a job to its end, as two minutes and some later.
async fn judge_all(store: &Arc<Store>) {
    let clock = Arc::new(ManualClock::at("2026-06-01T12:33:00Z"));
    run(job(store, &clock), store, &clock).await;
}

async fn run<J: Job<Error = StoreError> + 'static>(
    job: J,
    store: &Arc<Store>,
    clock: &Arc<ManualClock>,
) {
    let mut run = Run::new(job, &claims(store, clock, "one"));
    let shutdown = CancellationToken::new();
    let done = run
        .finish(Duration::from_secs(60), &shutdown, &mut |_| {})
        .await;
    assert_eq!(done.expect("a store"), Outcome::Done);
}

/// The numbers of human visits and of scanners' visits.
async fn classes(store: &Store, of: Counted) -> (u64, u64) {
    let query = CountQuery {
        of,
        since: moment("2026-05-30T00:00:00Z"),
        until: moment("2026-06-03T00:00:00Z"),
    };
    let counts = store.count_visits(&query).await.expect("a store");
    let of = |class| {
        counts
            .iter()
            .filter(|it| it.class == class)
            .map(|it| it.visits)
            .sum()
    };
    (of(Class::Human), of(Class::Scanner))
}

async fn visitors(store: &Store) -> u64 {
    let query = CountQuery {
        of: Counted::All,
        since: moment("2026-05-30T00:00:00Z"),
        until: moment("2026-06-03T00:00:00Z"),
    };
    let days = store.count_visitors(&query).await.expect("a store");
    days.iter().map(|day| day.visitors).sum()
}

async fn listed(store: &Store) -> Vec<KeptVisit> {
    let listing = VisitListing {
        limit: 100_000,
        ..VisitListing::default()
    };
    store.list_visits(&listing).await.expect("a store").items
}

/// Stores visits as sidecars do: some hundred together.
async fn keep_some(store: &Store, visits: Vec<Visit>) {
    for some in visits.chunks(300) {
        keep(store, some.to_vec()).await;
    }
}

/// 2,000 links in ten seconds, from four addresses with the same browser.
fn sweep() -> Vec<Visit> {
    let visits = (0..2000).map(|number| {
        recipient(
            number,
            (2000 - number.cast_signed()) * 5,
            DeviceKind::Desktop,
            number % 4,
        )
    });
    visits.collect()
}

async fn a_sweep_of_recipients_links_is_not_human(fixture: Fixture) {
    let store = &fixture.store;
    let id = store.create_campaign(&campaign()).await.expect("a store");
    let destination = Destination::Campaign {
        id,
        values: ParameterValues::default(),
    };
    create(
        store,
        Link {
            destination,
            ..link("r7")
        },
    )
    .await;
    let person = Visit {
        user_agent: "another browser".to_owned(),
        ..recipient(5000, 20_000, DeviceKind::Desktop, 77)
    };
    let mut visits = sweep();
    visits.push(person);
    keep_some(store, visits).await;
    assert_eq!(classes(store, Counted::All).await, (2001, 0));
    assert_eq!(visitors(store).await, 5);
    // Too early.
    let clock = Arc::new(ManualClock::at("2026-06-01T12:31:59Z"));
    run(job(store, &clock), store, &clock).await;
    assert_eq!(classes(store, Counted::All).await, (2001, 0));
    judge_all(store).await;
    assert_eq!(classes(store, Counted::All).await, (1, 2000));
    assert_eq!(classes(store, Counted::Campaign(id)).await, (0, 1));
    assert_eq!(classes(store, Counted::Link(code("r7"))).await, (0, 1));
    let totals = store.visit_totals(&[code("r7")]).await.expect("a store");
    assert_eq!((totals[0].visits, totals[0].human), (1, 0));
    run(People::new(Arc::clone(store)), store, &clock).await;
    assert_eq!(visitors(store).await, 1);
    let mut reasons: Vec<_> = listed(store).await;
    reasons.retain(|it| (&*it.class, &*it.reason) == ("scanner", "sweep"));
    assert_eq!(reasons.len(), 2000);
    // Once all windows are over, nothing is left.
    assert!(fixture.count("visit_stretches").await > 0);
    let clock = Arc::new(ManualClock::at("2026-06-01T12:33:01Z"));
    run(job(store, &clock), store, &clock).await;
    assert_eq!(fixture.count("visit_stretches").await, 0);
    assert_eq!(classes(store, Counted::All).await, (1, 2000));
}

async fn telephones_behind_an_address_stay_human(fixture: Fixture) {
    let store = &fixture.store;
    // One user agent, and so one visitor; then as many as there are telephones. One tap each, at
    // random, in three minutes.
    let at =
        |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).cast_signed() % 180_000;
    let same = (0..500).map(|number| recipient(number, at(number), DeviceKind::Phone, 0));
    let others = (500..1000).map(|number| recipient(number, at(number), DeviceKind::Phone, number));
    keep_some(store, same.chain(others).collect()).await;
    judge_all(store).await;
    assert_eq!(classes(store, Counted::All).await, (1000, 0));
}

async fn a_killed_run_and_two_at_once_count_nothing_twice(fixture: Fixture) {
    let store = &fixture.store;
    keep_some(store, sweep()).await;
    let clock = Arc::new(ManualClock::at("2026-06-01T12:33:00Z"));
    // Killed behind the second transaction.
    let mut killed = job(store, &clock);
    killed.begin().await.expect("a store");
    for _ in 0..3 {
        killed.step().await.expect("a store");
    }
    drop(killed);
    assert_eq!(classes(store, Counted::All).await, (1000, 1000));
    // Two that both believe to hold the claim.
    let other = fixture.open().await;
    let mut jobs = [job(store, &clock), job(&other, &clock)];
    for job in &mut jobs {
        job.begin().await.expect("a store");
    }
    for _ in 0..10 {
        let [one, two] = &mut jobs;
        let (one, two) = tokio::join!(one.step(), two.step());
        one.and(two).expect("a store");
    }
    assert_eq!(classes(store, Counted::All).await, (0, 2000));
    assert_eq!(listed(store).await.len(), 2000);
    let days = store
        .count_domains(Timestamp::UNIX_EPOCH)
        .await
        .expect("a store");
    assert_eq!(days.iter().map(|it| it.visits).sum::<u64>(), 2000);
    other.close().await;
}

async fn windows_reach_across_stretches(fixture: Fixture) {
    let store = &fixture.store;
    // None of the batches has enough links by itself, nor do those that are due first.
    let all = |from: u64, to: u64| {
        (from..to)
            .map(|number| recipient(number, 3000, DeviceKind::Desktop, 0))
            .collect()
    };
    keep(store, all(0, 12)).await;
    let clock = Arc::new(ManualClock::at("2026-06-01T12:32:10Z"));
    let mut first = job(store, &clock);
    first.begin().await.expect("a store");
    while first.step().await.expect("a store") != Next::Idle {}
    assert_eq!(classes(store, Counted::All).await, (12, 0));
    let later = moment(NOW) + SignedDuration::from_secs(20);
    store
        .keep_visits(all(12, 24), later)
        .await
        .expect("a store");
    clock.advance(SignedDuration::from_secs(20));
    while first.step().await.expect("a store") != Next::Idle {}
    assert_eq!(classes(store, Counted::All).await, (0, 24));
}

async fn a_corrected_visit_uses_up_no_link(fixture: Fixture) {
    let store = &fixture.store;
    let limited = Link {
        max_visits: NonZeroU64::new(2),
        ..link("r7")
    };
    create(store, limited).await;
    let swept: Vec<Visit> = sweep().into_iter().take(200).collect();
    assert_eq!(keep(store, swept).await.ended, []);
    judge_all(store).await;
    let person = |number| Visit {
        user_agent: "another".to_owned(),
        ..visit(number, "r7", NOW)
    };
    assert_eq!(keep(store, vec![person(3000)]).await.ended, []);
    assert_eq!(keep(store, vec![person(3001)]).await.ended, [code("r7")]);
}

async fn without_a_delay_nothing_is_judged(fixture: Fixture) {
    let store = &fixture.store;
    keep_some(store, sweep()).await;
    let clock = Arc::new(ManualClock::at(NOW));
    let mut off = job(store, &clock);
    off.delay = None;
    run(off, store, &clock).await;
    assert_eq!(classes(store, Counted::All).await, (2000, 0));
    assert_eq!(fixture.count("visit_stretches").await, 0);
}

#[test]
fn visits_are_judged_not_long_after_they_are_due() {
    let seconds = |delay| every(Some(SignedDuration::from_secs(delay))).as_secs_f64();
    assert_eq!([1, 120, 3600].map(seconds), [0.25, 30.0, 60.0]);
    assert_eq!(every(None).as_secs(), 15);
}
