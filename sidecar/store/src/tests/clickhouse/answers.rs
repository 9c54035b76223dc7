//! Two stores with the same links and random visits, whose answers are compared.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::Destination;
use shortlink_core::ports::{
    CountQuery, Counted, Dimension, Hours, Intervals, KeptVisit, Listing, MAX_VERDICTS, TimeSpan,
    VisitListing,
};
use shortlink_core::receipt::{DeliveryReceipt, ReceiptOf, ReceiptStatus};
use shortlink_core::testing::{campaign, link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::{Agent, Device, DeviceKind, Versioned};
use shortlink_core::visit::class::{Class, Classification, RULESET, Words};
use shortlink_core::visit::visitor::VisitorId;
use vocabulary::visit::VisitMethod;
use vocabulary::{CampaignId, Code};

use crate::testing::*;
use crate::{Scheme, Store};

/// The number of links, of which the first belong to campaigns and the last have a limit.
const LINKS: usize = 120;

pub(super) const FIRST_DAY: &str = "2026-04-01T00:00:00Z";
pub(super) const DAYS: i64 = 40;

/// Both stores with the same links.
pub(super) struct Pair {
    pub(super) sql: Fixture,
    pub(super) clickhouse: Fixture,
    pub(super) codes: Vec<Code>,
    campaigns: Vec<CampaignId>,
}

impl Pair {
    pub(super) async fn new() -> Self {
        let sql = Fixture::new(Scheme::Sqlite).await;
        Self::of(sql, Fixture::with_clickhouse(Scheme::Sqlite).await).await
    }

    pub(super) async fn of(sql: Fixture, clickhouse: Fixture) -> Self {
        let codes: Vec<Code> = (0..LINKS).map(|n| code(&format!("c{n}"))).collect();
        let mut campaigns = Vec::new();
        for store in [&sql.store, &clickhouse.store] {
            campaigns.clear();
            for _ in 0..3 {
                campaigns.push(store.create_campaign(&campaign()).await.expect("room"));
            }
            for (place, text) in codes.iter().enumerate() {
                let mut new = link(text.as_str());
                if place < 60 {
                    new.destination = Destination::Campaign {
                        id: campaigns[place % 3],
                        values: ParameterValues::default(),
                    };
                }
                new.max_visits = (place >= 80)
                    .then_some(())
                    .and_then(|()| (place as u64).try_into().ok());
                create(store, new).await;
            }
            let receipts = codes.iter().take(40).map(|code| DeliveryReceipt {
                of: ReceiptOf::Code(*code),
                at: moment(FIRST_DAY),
                is_timed: true,
                status: ReceiptStatus::Delivered,
                network: String::new(),
            });
            let kept = store.keep_receipts(receipts.collect(), None).await;
            assert_eq!(kept.expect("a store").len(), 40);
        }
        Self {
            sql,
            clickhouse,
            codes,
            campaigns,
        }
    }

    pub(super) fn stores(&self) -> [&Store; 2] {
        [&self.sql.store, &self.clickhouse.store]
    }

    /// Asks both stores something, and compares the answers.
    pub(super) async fn same<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        ask: impl AsyncFn(&Store) -> T,
    ) {
        let [sql, clickhouse] = self.stores();
        assert_eq!(ask(sql).await, ask(clickhouse).await, "{what}");
    }

    /// Compares the answers to all questions, those on links for some of them.
    pub(super) async fn compare(&self, random: &mut StdRng) {
        let mut of = vec![Counted::All];
        of.extend(self.campaigns.iter().map(|id| Counted::Campaign(*id)));
        let links: Vec<Code> = self.codes.sample(random, 12).copied().collect();
        of.extend(links.iter().map(|code| Counted::Link(*code)));
        for of in of {
            let (since, until) = period(random);
            let query = CountQuery { of, since, until };
            self.compare_counts(&query, random).await;
        }
        self.same("totals", async |store| {
            let mut totals = store.visit_totals(&self.codes).await.expect("a store");
            totals.sort_by_key(|total| total.code.to_string());
            totals
        })
        .await;
        self.same("clicks", async |store| {
            let mut clicks = store.link_clicks(&self.codes).await.expect("a store");
            clicks.sort_by_key(|(code, _)| code.to_string());
            clicks
        })
        .await;
        for id in &self.campaigns {
            self.same("first clicks", async |store| {
                store.first_clicks(*id).await.expect("a store")
            })
            .await;
            self.same("receipts", async |store| {
                store.count_receipts(*id).await.expect("a store")
            })
            .await;
            self.same("recipients", async |store| {
                store.recipients(*id, None, 15).await.expect("a store")
            })
            .await;
        }
        let campaigns = self.campaigns.iter().copied().map(Some);
        for campaign in campaigns.chain([None]) {
            self.same("most clicked", async |store| {
                store.most_clicked(campaign, 1000).await.expect("a store")
            })
            .await;
            // Those behind equal ones are in another order.
            self.same("most clicks", async |store| {
                let top = store.most_clicked(campaign, 7).await.expect("a store");
                top.links.iter().map(|it| it.clicks).collect::<Vec<_>>()
            })
            .await;
        }
        for clicked in [true, false] {
            let campaign = self.campaigns.choose(random).copied();
            let listing = Listing {
                campaign: campaign.filter(|_| random.random_bool(0.5)),
                clicked: Some(clicked),
                limit: random.random_range(1..60),
                ..Listing::default()
            };
            self.same(&format!("{listing:?}"), async |store| {
                codes(&store.list_links(&listing).await.expect("a store"))
            })
            .await;
        }
        for code in [None, Some(links[0]), Some(links[1])] {
            for class in [None, Some(Class::Human), Some(Class::Scanner)] {
                let (since, until) = period(random);
                let listing = VisitListing {
                    code,
                    class,
                    since: random.random_bool(0.5).then_some(since),
                    until: random.random_bool(0.5).then_some(until),
                    before: None,
                    limit: random.random_range(50..2000),
                };
                self.same(&format!("{listing:?}"), async |store| {
                    pages(store, &listing).await
                })
                .await;
            }
        }
        let since = moment(FIRST_DAY);
        self.same("domains", async |store| {
            store.count_domains(since).await.expect("a store")
        })
        .await;
        let days = (
            since.as_millisecond() / 86_400_000,
            since.as_millisecond() / 86_400_000 + 9,
        );
        self.same("people", async |store| {
            let mut people = Vec::new();
            let numbers = store.numbers_of_days(days).await.expect("a store");
            let mut after = numbers.map_or(0, |(first, _)| first.saturating_sub(1));
            loop {
                let page = store.people_after(after, days, 500).await.expect("a store");
                people.extend(page.people);
                let Some(last) = page.last else {
                    people.sort_unstable_by_key(|it| (it.0, it.1, it.2.0));
                    return people;
                };
                after = last;
            }
        })
        .await;
    }

    async fn compare_counts(&self, query: &CountQuery, random: &mut StdRng) {
        let dimensions: Vec<Dimension> = Dimension::ALL
            .into_iter()
            .chain([Dimension::Total])
            .collect();
        self.same(&format!("{query:?}"), async |store| {
            store.count(query, &dimensions).await.expect("a store")
        })
        .await;
        self.same(&format!("minutes {query:?}"), async |store| {
            store.count_minutes(query).await.expect("a store")
        })
        .await;
        let by = Intervals {
            length: *[Hours::One, Hours::Day].choose(random).expect("some"),
            ahead: random.random_range(-14..=14),
        };
        for dimension in dimensions {
            let what = format!("{dimension:?} {query:?}");
            let values = [
                "",
                "DE",
                "phone",
                "iOS",
                "s0.example",
                "www.example.com",
                "b",
            ]
            .map(str::to_owned);
            self.same(&format!("{by:?} {what}"), async |store| {
                store
                    .count_over_time(query, dimension, &values, by)
                    .await
                    .expect("a store")
            })
            .await;
        }
    }

    /// Applies other rules to all visits.
    pub(super) async fn reclassify(&self) {
        for store in self.stores() {
            let (first, _) = store
                .visit_numbers()
                .await
                .expect("a store")
                .expect("visits");
            let mut after = first - 1;
            loop {
                let page = store
                    .visits_after(after, TimeSpan::default(), 2000)
                    .await
                    .expect("a store");
                let Some(last) = page.last else {
                    break;
                };
                after = last;
                let verdicts = page.visits.into_iter().filter_map(|visit| {
                    let verdict = visit.reclassified(&NewRules)?;
                    Some((visit, verdict))
                });
                let verdicts: Vec<_> = verdicts.collect();
                for some in verdicts.chunks(MAX_VERDICTS) {
                    let done = store
                        .reclassify_visits(some.to_vec(), None, moment(NOW))
                        .await;
                    assert_eq!(done.expect("a store"), some.len() as u64);
                    // As it was read no more.
                    let again = store
                        .reclassify_visits(some.to_vec(), None, moment(NOW))
                        .await;
                    assert_eq!(again.expect("a store"), 0);
                }
            }
        }
    }
}

/// Reads all pages of a listing. Numbers differ between stores.
async fn pages(store: &Store, listing: &VisitListing) -> Vec<KeptVisit> {
    let mut listing = listing.clone();
    let mut visits = Vec::new();
    loop {
        let page = store.list_visits(&listing).await.expect("a store");
        let last = page.items.last().map(|visit| visit.number);
        let is_full = page.items.len() == listing.limit as usize;
        visits.extend(
            page.items
                .into_iter()
                .map(|visit| KeptVisit { number: 0, ..visit }),
        );
        match page.read_to.or(last.filter(|_| is_full)) {
            Some(before) => listing.before = Some(before),
            None => return visits,
        }
    }
}

/// A period within the days of the visits.
fn period(random: &mut StdRng) -> (Timestamp, Timestamp) {
    let hours = random.random_range(0..DAYS * 24);
    let since = moment(FIRST_DAY) + SignedDuration::from_hours(hours);
    (
        since,
        since + SignedDuration::from_mins(random.random_range(1..60 * 24 * DAYS)),
    )
}

/// A visit with random properties. Some times are at the begin or the end of an hour.
pub(super) fn random_visit(random: &mut StdRng, sequence: u64) -> Visit {
    let mut at = moment(FIRST_DAY).as_millisecond() + random.random_range(0..DAYS * 86_400_000);
    if random.random_bool(0.1) {
        at = at / 3_600_000 * 3_600_000 - random.random_range(0..2);
    }
    let pick = |random: &mut StdRng, most: u32| random.random_range(0..most);
    let versioned = |random: &mut StdRng, name: &str| {
        random.random_bool(0.8).then(|| Versioned {
            name: format!("{name}{}", pick(random, 4)),
            version: random
                .random_bool(0.7)
                .then(|| pick(random, 20).to_string()),
        })
    };
    let class = *[
        Class::Human,
        Class::Human,
        Class::Preview,
        Class::Scanner,
        Class::Refused,
    ]
    .choose(random)
    .expect("some");
    let mut visit = visit(
        sequence,
        &format!("c{}", pick(random, LINKS as u32 + 5)),
        FIRST_DAY,
    );
    visit.id.origin = u64::from(pick(random, 3));
    visit.at = Timestamp::from_millisecond(at).expect("a time");
    visit.host = format!("s{}.example", pick(random, 3));
    visit.client = random
        .random_bool(0.9)
        .then(|| IpAddr::from([192, 0, pick(random, 200) as u8, 0]));
    visit.visitor = random
        .random_bool(0.9)
        .then(|| VisitorId([pick(random, 250) as u8 + 1; 16]));
    visit.user_agent = "Mozilla ü".repeat(pick(random, 5) as usize);
    visit.referrer_host = random
        .random_bool(0.3)
        .then(|| "www.example.com".to_owned());
    visit.referrer = "https://www.example.com/?".repeat(pick(random, 2) as usize);
    visit.language = random.random_bool(0.9).then(|| "de".to_owned());
    visit.method = *[VisitMethod::Get, VisitMethod::Head, VisitMethod::Other]
        .choose(random)
        .expect("some");
    visit.status = if class == Class::Refused { 410 } else { 302 };
    visit.purpose = "prefetch".repeat(pick(random, 2) as usize);
    visit.place.country = [None, Some("DE"), Some("AT")]
        .choose(random)
        .expect("some")
        .map(str::to_owned);
    visit.place.city = [None, Some("Wien"), Some("Köln")]
        .choose(random)
        .expect("some")
        .map(str::to_owned);
    visit.place.isp = random.random_bool(0.5).then(|| "A?b'c\\d".to_owned());
    visit.place.asn = random.random_bool(0.5).then_some(64_500);
    visit.variant = [None, None, Some("a"), Some("b")]
        .choose(random)
        .expect("some")
        .map(str::to_owned);
    visit.agent = Arc::new(Agent {
        browser: versioned(random, "Safari"),
        os: versioned(random, "iOS"),
        device: Device {
            kind: *[DeviceKind::Phone, DeviceKind::Desktop]
                .choose(random)
                .expect("some"),
            ..Device::default()
        },
        app: random.random_bool(0.2).then_some("WeChat"),
        listed: None,
        words: Words::default(),
    });
    visit.classification = Classification {
        class,
        reason: "browser",
        ruleset: RULESET - 1,
    };
    visit
}
