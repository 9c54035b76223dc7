//! Counts after an erasure: they have no value that only erased visits had.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use shortlink_core::link::{Destination, Link, ParameterValues};
use shortlink_core::ports::{
    CountQuery, Counted, Dimension, OTHER, OldCounts, TimeSpan, status_text,
};
use shortlink_core::testing::{link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::{Agent, Versioned};
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::StoredVisit;
use shortlink_core::visit::visitor::VisitorId;
use vocabulary::CampaignId;

use super::visits::query;
use crate::testing::*;
use crate::{Store, in_every_store_of_visits};

in_every_store_of_visits! {
    values_of_erased_visits_are_counted_together,
    counts_that_were_deleted_do_not_come_back,
    days_of_erased_visitors_are_counted_again,
}

const CAMPAIGN: CampaignId = CampaignId::FIRST;

/// The class, and the value in each dimension, of an erased visit.
type Erased = (bool, Class, [String; 10]);

fn dimensions() -> [Dimension; 10] {
    let mut all = [Dimension::Total; 10];
    all[1..].copy_from_slice(&Dimension::ALL);
    all
}

/// Links of a campaign, and one of none.
async fn links(store: &Store) {
    for code in ["m0", "m1", "m2"] {
        let link = Link {
            destination: Destination::Campaign {
                id: CAMPAIGN,
                values: ParameterValues::default(),
            },
            ..link(code)
        };
        create(store, link).await;
    }
    create(store, link("x")).await;
}

fn random(number: u64, random: &mut StdRng) -> Visit {
    let code = ["m0", "m1", "m2", "x"].choose(random).expect("some");
    let at = format!(
        "2026-06-01T{:02}:{:02}:00Z",
        random.random_range(9..12),
        random.random_range(0..60)
    );
    let mut visit = visit(number, code, &at);
    let text = |of: &[&str], random: &mut StdRng| {
        let text = of.choose(random).expect("some");
        (!text.is_empty()).then(|| (*text).to_owned())
    };
    visit.place.country = text(&["AT", "DE", ""], random);
    visit.referrer_host = match random.random_range(0..4) {
        0 => Some(format!("only{number}.example")),
        _ => text(&["a.example", "b.example", ""], random),
    };
    visit.place.isp = match random.random_range(0..4) {
        0 => Some(format!("Only {number}")),
        _ => text(&["Alpha", "Beta", ""], random),
    };
    visit.variant = text(&["a", "b", "", ""], random);
    visit.visitor = Some(VisitorId(random.random()));
    visit.classification.class = *[Class::Human, Class::Human, Class::Scanner]
        .choose(random)
        .expect("some");
    let browser = text(&["Firefox", "Chrome", "Rare"], random);
    visit.agent = Arc::new(Agent {
        browser: browser.map(|name| Versioned {
            name,
            version: None,
        }),
        ..Agent::clone(&visit.agent)
    });
    visit
}

async fn stored(store: &Store) -> Vec<StoredVisit> {
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 10_000);
    page.await.expect("a store").visits
}

/// The counts by a dimension that follow from stored visits and erased ones.
fn expected(
    of_campaign: bool,
    place: usize,
    stored: &[StoredVisit],
    erased: &[Erased],
) -> BTreeMap<(String, &'static str), u64> {
    let mut counts = BTreeMap::new();
    let mut add = |value: &str, class: Class| {
        *counts.entry((value.to_owned(), class.name())).or_default() += 1;
    };
    for visit in stored.iter().filter(|it| !of_campaign || it.campaign != 0) {
        let browser = visit.agent.browser.as_ref().map(|it| &*it.name);
        let os = visit.agent.os.as_ref().map(|it| &*it.name);
        let value = match dimensions()[place] {
            Dimension::Total => None,
            Dimension::Domain => Some(&*visit.host),
            Dimension::Country => visit.country.as_deref(),
            Dimension::Device => Some(&*visit.agent.device),
            Dimension::Browser => browser,
            Dimension::Os => os,
            Dimension::Referrer => visit.referrer_host.as_deref(),
            Dimension::Network => visit.isp.as_deref(),
            Dimension::Status => Some(status_text(visit.status)),
            Dimension::Variant => visit.variant.as_deref(),
        };
        add(value.unwrap_or_default(), visit.class);
    }
    for (is_of_campaign, class, values) in erased {
        if *is_of_campaign || !of_campaign {
            let identifies = !matches!(
                dimensions()[place],
                Dimension::Total | Dimension::Domain | Dimension::Status
            );
            let is_kept = !identifies || values[place].is_empty();
            add(if is_kept { &values[place] } else { OTHER }, *class);
        }
    }
    counts
}

async fn compare(store: &Store, erased: &[Erased]) {
    let stored = stored(store).await;
    for (of_campaign, of) in [(false, Counted::All), (true, Counted::Campaign(CAMPAIGN))] {
        for (place, dimension) in dimensions().into_iter().enumerate() {
            let counts = store.count_by(&query(of), dimension).await;
            let counts: BTreeMap<_, _> = counts
                .expect("a store")
                .into_iter()
                .map(|it| ((it.value, it.class.name()), it.visits))
                .collect();
            let expected = expected(of_campaign, place, &stored, erased);
            assert_eq!(counts, expected, "{dimension:?} {of_campaign}");
        }
    }
}

fn erased(visits: &[Visit], code: &str, until: &str) -> Vec<Erased> {
    let gone = visits.iter();
    let gone = gone.filter(|visit| visit.code == code && visit.at <= moment(until));
    gone.map(|visit| {
        let values = dimensions().map(|dimension| dimension.value(visit).to_owned());
        (code != "x", visit.classification.class, values)
    })
    .collect()
}

async fn values_of_erased_visits_are_counted_together(fixture: Fixture) {
    let store = &*fixture.store;
    links(store).await;
    let mut chance = StdRng::seed_from_u64(19);
    let visits: Vec<Visit> = (0..400).map(|number| random(number, &mut chance)).collect();
    for some in visits.chunks(150) {
        keep(store, some.to_vec()).await;
    }
    compare(store, &[]).await;

    let until = "2026-06-01T10:30:00Z";
    let mut gone = erased(&visits, "m1", until);
    let number = erase_visits(store, &[code("m1")], moment(until)).await;
    assert_eq!(number, gone.len() as u64);
    compare(store, &gone).await;
    let only = visits.iter().find(|visit| {
        let host = visit.referrer_host.as_deref().unwrap_or_default();
        host.starts_with("only") && visit.code == "m1" && visit.at <= moment(until)
    });
    let host = only.and_then(|visit| visit.referrer_host.clone());
    let named = format!("visit_values WHERE value = '{}'", host.expect("a host"));
    assert_eq!(fixture.count(&named).await, 0);
    assert!(
        fixture
            .count("visit_values WHERE value = 'a.example'")
            .await
            > 0
    );

    // The visits that are left are judged again, and erased in part.
    let verdicts = stored(store).await.into_iter().take(100);
    let verdicts = verdicts.filter_map(|visit| {
        let mut verdict = visit.reclassified(&NewRules)?;
        verdict.classification.class = Class::Preview;
        Some((visit, verdict))
    });
    let done = store.reclassify_visits(verdicts.collect(), None, moment(NOW));
    assert_eq!(done.await.expect("a store"), 100);
    compare(store, &gone).await;
    let before = stored(store).await;
    let left = before.iter().filter(|visit| visit.code == "x");
    gone.extend(left.map(|visit| {
        let text = |it: &Option<Versioned>| it.as_ref().map(|it| it.name.clone());
        let values = [
            None,
            Some(visit.host.clone()),
            visit.country.clone(),
            Some(visit.agent.device.clone()),
            text(&visit.agent.browser),
            text(&visit.agent.os),
            visit.referrer_host.clone(),
            visit.isp.clone(),
            Some(status_text(visit.status).to_owned()),
            visit.variant.clone(),
        ];
        (false, visit.class, values.map(Option::unwrap_or_default))
    }));
    erase_visits(store, &[code("x")], moment(NOW)).await;
    compare(store, &gone).await;
}

async fn counts_that_were_deleted_do_not_come_back(fixture: Fixture) {
    let store = &*fixture.store;
    links(store).await;
    let visits = ["2026-06-01T09:00:00Z", "2026-06-01T12:00:00Z"];
    let visits = visits.iter().zip(0..);
    keep(store, visits.map(|(at, n)| visit(n, "m0", at)).collect()).await;
    let old = OldCounts {
        hours_before: Some(moment("2026-06-01T11:00:00Z")),
        minutes_before: None,
    };
    while store.forget_counts(old, 100).await.expect("a store") > 0 {}
    let rows = async || fixture.count("visit_hours WHERE hour % 24 < 11").await;
    assert_eq!(rows().await, 0);
    assert_eq!(erase_visits(store, &[code("m0")], moment(NOW)).await, 2);
    assert_eq!(rows().await, 0);
    let all = query(Counted::All);
    let countries = store.count_by(&all, Dimension::Country).await;
    let countries = countries.expect("a store");
    let countries: Vec<_> = countries.iter().map(|it| (&*it.value, it.visits)).collect();
    assert_eq!(countries, [(OTHER, 1)]);
}

async fn days_of_erased_visitors_are_counted_again(fixture: Fixture) {
    let store = &*fixture.store;
    links(store).await;
    let scanner = |number, code, at| {
        let mut visit = visit(number, code, at);
        visit.classification.class = Class::Scanner;
        visit
    };
    keep(
        store,
        vec![
            visit(0, "m0", "2026-06-01T09:00:00Z"),
            visit(1, "m1", "2026-06-02T09:00:00Z"),
            scanner(2, "m0", "2026-06-03T09:00:00Z"),
        ],
    )
    .await;
    let until = moment("2026-06-04T00:00:00Z");
    assert_eq!(erase_visits(store, &[code("m0")], until).await, 2);
    let days = store.stale_days(i64::MAX, (i64::MIN, 0), 10).await;
    let days: Vec<_> = days
        .expect("a store")
        .iter()
        .map(|it| (it.campaign, it.day))
        .collect();
    let day = moment("2026-06-01T00:00:00Z").as_second() / 86_400;
    let campaign = 1;
    assert_eq!(days, [(0, day), (campaign, day)]);
    let range = CountQuery {
        since: moment("2026-06-01T00:00:00Z"),
        until: moment("2026-06-04T00:00:00Z"),
        of: Counted::All,
    };
    let classes = store.count_visits(&range).await.expect("a store");
    assert_eq!(classes.iter().map(|it| it.visits).sum::<u64>(), 3);
}
