//! Conversions and their totals: as all conversions together show them, whatever happened to those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use shortlink_core::conversion::{
    Amount, ConversionOutcome, ConversionTotals, Converted, Currency, NewConversion, Refunded,
};
use shortlink_core::link::{Destination, Link, ParameterValues};
use shortlink_core::ports::{KeptVisit, VisitListing};
use shortlink_core::testing::{campaign, link, moment};
use shortlink_core::visit::Visit;
use vocabulary::visit::VisitId;
use vocabulary::{CampaignId, ClickId, Code};

use crate::testing::*;
use crate::{Store, in_every_store};

in_every_store! {
    totals_are_those_of_all_conversions,
    totals_are_exact_while_several_report_and_erase,
    sums_that_are_too_large_stay_at_the_largest,
    click_ids_lead_to_links_until_they_are_erased_or_old,
    visits_that_are_stored_together_have_their_own_click_ids,
    links_are_found_by_external_ids_among_those_that_a_key_reaches,
}

const FIRST: &str = "2026-05-28T00:00:00Z";
const LINKS: usize = 12;
const CURRENCIES: [&str; 3] = ["EUR", "USD", "JPY"];

type Sums = BTreeMap<String, (u64, i64)>;

/// Links of a campaign and of none, and the conversions that are expected.
struct Scene {
    fixture: Fixture,
    stores: Vec<Arc<Store>>,
    campaign: CampaignId,
    codes: Vec<Code>,
    counted: BTreeMap<(Code, String), NewConversion>,
    /// Until when the conversions of links are erased.
    erased: BTreeMap<Code, Timestamp>,
    deleted: Vec<Code>,
}

fn currency(text: &str) -> Currency {
    text.parse().expect("a currency")
}

fn is_of_campaign(place: usize) -> bool {
    place.is_multiple_of(2)
}

impl Scene {
    async fn new(fixture: Fixture) -> Self {
        let store = &fixture.store;
        let campaign = store.create_campaign(&campaign()).await.expect("room");
        // Codes of sixteen characters have no number.
        let text = |n| match n % 5 {
            0 => format!("ABCDEFGHIJKLMN{n:02}"),
            _ => format!("c{n:02}"),
        };
        let codes: Vec<Code> = (0..LINKS).map(|n| code(&text(n))).collect();
        for (n, code) in codes.iter().enumerate() {
            let mut link = Link {
                external_id: Some(format!("x{n}")),
                ..link(code.as_str())
            };
            if is_of_campaign(n) {
                link.destination = Destination::Campaign {
                    id: campaign,
                    values: ParameterValues::default(),
                };
            }
            create(store, link).await;
        }
        let stores = vec![Arc::clone(store), fixture.open().await];
        Self {
            fixture,
            stores,
            campaign,
            codes,
            counted: BTreeMap::new(),
            erased: BTreeMap::new(),
            deleted: Vec::new(),
        }
    }

    fn random(&self, random: &mut StdRng) -> NewConversion {
        let place = random.random_range(0..LINKS);
        let of = match random.random_bool(0.5) {
            true => Converted::Code(self.codes[place]),
            false => Converted::ExternalId {
                id: format!("x{place}"),
                campaign: is_of_campaign(place).then_some(self.campaign),
            },
        };
        let id = random.random_range(0..40);
        // The same whenever it comes.
        let mut own = StdRng::seed_from_u64(id);
        let value = own.random_bool(0.7).then(|| {
            let amount = Amount(own.random_range(0..1_000_000_000));
            (currency(CURRENCIES.choose(&mut own).expect("some")), amount)
        });
        NewConversion {
            of,
            id: format!("order-{id}"),
            at: moment(FIRST) + SignedDuration::from_mins(own.random_range(0..1000)),
            value,
            refunded: None,
        }
    }

    /// A refund of a conversion that may be there.
    fn random_refund(&self, random: &mut StdRng) -> NewConversion {
        let mut refund = self.random(random);
        let most = refund.value.take().map_or(1000, |(_, amount)| amount.0);
        let refunded = match random.random_range(0..10) {
            0..3 => Refunded::All,
            3 => Refunded::Amount(Amount(most)),
            4 => Refunded::Amount(Amount(most + 1)),
            _ => Refunded::Amount(Amount(random.random_range(0..=most))),
        };
        refund.refunded = Some(refunded);
        refund
    }

    fn code_of(&self, conversion: &NewConversion) -> Code {
        match &conversion.of {
            Converted::Code(code) => *code,
            Converted::ClickId(_) => panic!("none of these"),
            Converted::ExternalId { id, .. } => {
                self.codes[id[1..].parse::<usize>().expect("a place")]
            }
        }
    }

    /// Notes what reports of conversions should do; returns the outcomes.
    fn note(&mut self, conversions: &[NewConversion]) -> Vec<ConversionOutcome> {
        let outcome = |it: &NewConversion| {
            let code = self.code_of(it);
            let key = (code, it.id.clone());
            if self.deleted.contains(&code) {
                return ConversionOutcome::Unknown;
            }
            if let Some(refunded) = it.refunded {
                let Some(kept) = self.counted.get_mut(&key) else {
                    return ConversionOutcome::NoConversion(code);
                };
                let value = kept.value.map(|(_, amount)| amount);
                let part = match refunded {
                    Refunded::All => value.unwrap_or_default(),
                    Refunded::Amount(part) if value.is_some_and(|it| it.0 >= part.0) => part,
                    Refunded::Amount(_) => return ConversionOutcome::TooMuch(code),
                };
                if refunded_of(kept).is_some_and(|before| before >= part.0) {
                    return ConversionOutcome::Repeated(code);
                }
                kept.refunded = Some(Refunded::Amount(part));
                return ConversionOutcome::New(code);
            }
            if self.erased.get(&code).is_some_and(|until| it.at <= *until) {
                return ConversionOutcome::Erased(code);
            }
            if self.counted.contains_key(&key) {
                return ConversionOutcome::Repeated(code);
            }
            self.counted.insert(key, it.clone());
            ConversionOutcome::New(code)
        };
        conversions.iter().map(outcome).collect()
    }

    fn erase(&mut self, code: Code, until: Timestamp) {
        let known = self.erased.entry(code).or_insert(until);
        *known = until.max(*known);
        self.counted
            .retain(|(of, _), it| *of != code || it.at > until);
    }

    fn sums<'a>(conversions: impl Iterator<Item = &'a NewConversion>) -> (u64, Sums) {
        let (mut all, mut sums) = (0, Sums::new());
        for it in conversions.filter(|it| counts(it)) {
            all += 1;
            if let Some((currency, amount)) = it.value {
                let sum = sums.entry(currency.as_str().to_owned()).or_default();
                let rest = amount.0 - refunded_of(it).unwrap_or_default();
                *sum = (sum.0 + 1, sum.1 + rest);
            }
        }
        (all, sums)
    }

    async fn check(&self) {
        let store = &self.fixture.store;
        let shown = |totals: ConversionTotals| {
            let values = totals.values.iter();
            let sums: Sums = values
                .map(|it| {
                    (
                        it.currency.as_str().to_owned(),
                        (it.conversions, it.value.0),
                    )
                })
                .collect();
            (totals.conversions, sums)
        };
        for code in &self.codes {
            let totals = store.link_conversions(code).await.expect("a store");
            let own = self.counted.iter().filter(|((of, _), _)| of == code);
            let own = own.filter(|_| !self.deleted.contains(code));
            assert_eq!(shown(totals), Self::sums(own.map(|(_, it)| it)), "{code}");
        }
        let totals = store
            .campaign_conversions(self.campaign)
            .await
            .expect("a store");
        let place = |code: &Code| self.codes.iter().position(|it| it == code).expect("one");
        let own = self
            .counted
            .iter()
            .filter(|((of, _), _)| is_of_campaign(place(of)));
        let counted = own.clone().filter(|(_, it)| counts(it));
        let mut links: Vec<Code> = counted.map(|((of, _), _)| *of).collect();
        links.dedup();
        assert_eq!(totals.links, links.len() as u64);
        assert_eq!(shown(totals), Self::sums(own.map(|(_, it)| it)));
        let exist = self
            .counted
            .keys()
            .filter(|(of, _)| !self.deleted.contains(of));
        assert_eq!(
            self.fixture.count("conversions").await,
            exist.count() as i64
        );
    }
}

/// The refunded part of a noted conversion.
fn refunded_of(it: &NewConversion) -> Option<i64> {
    it.refunded.map(|refunded| match refunded {
        Refunded::Amount(part) => part.0,
        Refunded::All => panic!("noted as an amount"),
    })
}

/// Reports whether a noted conversion counts: not if it was refunded as a whole.
fn counts(it: &NewConversion) -> bool {
    let value = it.value.map_or(0, |(_, amount)| amount.0);
    refunded_of(it).is_none_or(|part| part < value)
}

async fn report(store: &Store, conversions: Vec<NewConversion>) -> Vec<ConversionOutcome> {
    let reported = store.report_conversions(conversions, None).await;
    reported.expect("a store")
}

async fn totals_are_those_of_all_conversions(fixture: Fixture) {
    let mut scene = Scene::new(fixture).await;
    for seed in 0..40 {
        let random = &mut StdRng::seed_from_u64(seed);
        let store = Arc::clone(&scene.stores[random.random_range(0..2)]);
        match random.random_range(0..20) {
            0..16 => {
                let some = random.random_range(1..20);
                let some = (0..some).map(|_| match random.random_bool(0.4) {
                    true => scene.random_refund(random),
                    false => scene.random(random),
                });
                let some: Vec<_> = some.collect();
                let expected = scene.note(&some);
                assert_eq!(report(&store, some).await, expected);
            }
            16..19 => {
                let code = *scene.codes.choose(random).expect("some");
                let until = moment(FIRST) + SignedDuration::from_mins(random.random_range(0..600));
                erase_visits(&store, &[code], until).await;
                scene.erase(code, until);
            }
            _ => {
                let code = *scene.codes.choose(random).expect("some");
                let deleted = store.delete_links(vec![(code, 1)], moment(NOW)).await;
                if deleted.expect("a store") == 1 {
                    store.free_codes(vec![code]).await.expect("a store");
                    scene.deleted.push(code);
                }
            }
        }
        scene.check().await;
    }
    let other = NewConversion {
        refunded: None,
        value: None,
        ..scene
            .counted
            .values()
            .find(|it| it.value.is_some() && !scene.deleted.contains(&scene.code_of(it)))
            .expect("one with a value")
            .clone()
    };
    let code = scene.code_of(&other);
    let outcomes = report(&scene.fixture.store, vec![other]).await;
    assert_eq!(outcomes, [ConversionOutcome::Different(code)]);
    scene.check().await;
}

async fn totals_are_exact_while_several_report_and_erase(fixture: Fixture) {
    let mut scene = Scene::new(fixture).await;
    let random = &mut StdRng::seed_from_u64(7);
    for round in 0..6 {
        let mut tasks = Vec::new();
        let code = *scene.codes.choose(random).expect("some");
        // All are of a time after those of reports, so that the order does not matter.
        let until = moment(FIRST) + SignedDuration::from_mins(2000);
        let before: BTreeSet<_> = scene.counted.keys().cloned().collect();
        for lane in 0..6 {
            let store = Arc::clone(&scene.stores[lane % 2]);
            let mut some: Vec<_> = (0..30).map(|_| scene.random(random)).collect();
            // Of those that were reported before, so that the order does not matter here either.
            let known = |it: &NewConversion| {
                let key = (scene.code_of(it), it.id.clone());
                before.contains(&key)
            };
            let refunds = (0..30).map(|_| scene.random_refund(random));
            some.extend(refunds.filter(known));
            some.retain(|it| scene.code_of(it) != code);
            scene.note(&some);
            let mut of_code: Vec<_> = (0..5).map(|_| scene.random(random)).collect();
            of_code
                .iter_mut()
                .for_each(|it| it.of = Converted::Code(code));
            some.extend(of_code);
            tasks.push(tokio::spawn(async move {
                if lane == 3 && round % 2 == 0 {
                    erase_visits(&store, &[code], until).await;
                }
                report(&store, some).await;
            }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        // Whatever was reported before or after it.
        erase_visits(&scene.fixture.store, &[code], until).await;
        scene.erase(code, until);
        scene.check().await;
    }
}

async fn click_ids_lead_to_links_until_they_are_erased_or_old(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    let store = &scene.fixture.store;
    let visits = scene.codes.iter().take(4).zip(0..).map(|(code, n)| Visit {
        click: Some(ClickId([n; 16])),
        ..visit(n.into(), code.as_str(), FIRST)
    });
    let unknown = Visit {
        click: Some(ClickId([9; 16])),
        ..visit(9, "nothing", FIRST)
    };
    keep(store, visits.chain([unknown]).collect()).await;
    let listed = async || {
        let listing = VisitListing {
            limit: 100,
            ..VisitListing::default()
        };
        let listed = store.list_visits(&listing).await.expect("a store");
        let exported = store.exported_visits(i64::MIN, i64::MAX, 100).await;
        let exported = exported.expect("a store").into_iter().rev();
        let exported: Vec<KeptVisit> = exported.map(|it| it.visit).collect();
        assert_eq!(exported, listed.items);
        let ids = listed.items.into_iter().map(|it| (it.code, it.click_id));
        ids.collect::<BTreeMap<_, _>>()
    };
    let mut with_ids: BTreeMap<String, Option<String>> = (0..4)
        .map(|n| {
            (
                scene.codes[usize::from(n)].to_string(),
                Some(ClickId([n; 16]).to_string()),
            )
        })
        .collect();
    // A code without a link has no conversions.
    with_ids.insert("nothing".to_owned(), None);
    assert_eq!(listed().await, with_ids);
    let outcomes = async |id: &str| {
        let conversion = |n| NewConversion {
            of: Converted::ClickId(ClickId([n; 16])),
            id: id.to_owned(),
            at: moment(NOW),
            value: None,
            refunded: None,
        };
        report(store, [0, 1, 2, 3, 8, 9].map(conversion).to_vec()).await
    };
    let found = |place: usize| ConversionOutcome::New(scene.codes[place]);
    let none = ConversionOutcome::Unknown;
    let all = [found(0), found(1), found(2), found(3), none, none];
    assert_eq!(outcomes("a").await, all);
    erase_visits(store, &scene.codes[..1], moment(FIRST)).await;
    let deleted = store.delete_links(vec![(scene.codes[1], 1)], moment(NOW));
    assert_eq!(deleted.await.expect("a store"), 1);
    let (ids, conversions) = (
        scene.fixture.count("visit_clicks").await,
        scene.fixture.count("conversions").await,
    );
    let freed = store.free_codes(vec![scene.codes[1]]).await;
    freed.expect("a store");
    assert_eq!(scene.fixture.count("visit_clicks").await, ids - 1);
    assert_eq!(scene.fixture.count("conversions").await, conversions - 1);
    assert_eq!(
        outcomes("b").await,
        [none, none, found(2), found(3), none, none]
    );
    let forget = async |before| store.forget_click_ids(before, 1).await.expect("a store");
    assert_eq!(forget(moment(FIRST)).await, 0);
    let after = moment(FIRST) + SignedDuration::from_secs(1);
    assert_eq!(
        [
            forget(after).await,
            forget(after).await,
            forget(after).await
        ],
        [1, 1, 0]
    );
    assert_eq!(outcomes("c").await, [none; 6]);
}

async fn visits_that_are_stored_together_have_their_own_click_ids(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    let tasks = (0..8u64).map(|origin| {
        let store = Arc::clone(&scene.stores[origin as usize % scene.stores.len()]);
        let visits = (0..40).map(|sequence| {
            let code = &scene.codes[sequence as usize % scene.codes.len()];
            let mut bytes = [1; 16];
            (bytes[0], bytes[1]) = (origin as u8, sequence as u8);
            let click = Some(ClickId(bytes)).filter(|_| sequence % 3 > 0);
            Visit {
                id: VisitId { origin, sequence },
                click,
                referrer: click.map(|id| id.to_string()).unwrap_or_default(),
                ..visit(sequence, code.as_str(), FIRST)
            }
        });
        let visits: Vec<Visit> = visits.collect();
        tokio::spawn(async move {
            for some in visits.chunks(8) {
                keep(&store, some.to_vec()).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    let listing = VisitListing {
        limit: 1000,
        ..VisitListing::default()
    };
    let listed = scene.fixture.store.list_visits(&listing).await;
    let listed = listed.expect("a store").items;
    assert_eq!(listed.len(), 320);
    for it in listed {
        assert_eq!(it.click_id.unwrap_or_default(), it.referrer);
    }
}

async fn sums_that_are_too_large_stay_at_the_largest(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    let store = &scene.fixture.store;
    let conversion = |id: &str, amount| NewConversion {
        of: Converted::Code(scene.codes[0]),
        id: id.to_owned(),
        at: moment(FIRST),
        value: Some((currency("IRR"), Amount(amount))),
        refunded: None,
    };
    for (id, amount) in [("a", i64::MAX - 1), ("b", 1), ("c", 9_999_999_999_999)] {
        report(store, vec![conversion(id, amount)]).await;
    }
    let of_link = store
        .link_conversions(&scene.codes[0])
        .await
        .expect("a store");
    let of_campaign = store
        .campaign_conversions(scene.campaign)
        .await
        .expect("a store");
    for totals in [of_link, of_campaign] {
        assert_eq!(totals.values[0].value, Amount(i64::MAX));
        assert_eq!(totals.conversions, 3);
    }
}

async fn links_are_found_by_external_ids_among_those_that_a_key_reaches(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    let store = &scene.fixture.store;
    let other = Link {
        external_id: Some("x1".to_owned()),
        created_by: "other".to_owned(),
        ..link("other")
    };
    create(store, other).await;
    let conversion = |id: &str| NewConversion {
        of: Converted::ExternalId {
            id: id.to_owned(),
            campaign: None,
        },
        id: "one".to_owned(),
        at: moment(FIRST),
        value: None,
        refunded: None,
    };
    let asked = || vec![conversion("x1"), conversion("x2"), conversion("nothing")];
    let own = |id: &str| Some(vec![id.to_owned()]);
    for (own, expected) in [
        (
            None,
            [
                ConversionOutcome::Ambiguous,
                ConversionOutcome::New(scene.codes[2]),
                ConversionOutcome::Unknown,
            ],
        ),
        (
            own("other"),
            [
                ConversionOutcome::New(code("other")),
                ConversionOutcome::Unknown,
                ConversionOutcome::Unknown,
            ],
        ),
        (own("nobody"), [ConversionOutcome::Unknown; 3]),
    ] {
        let outcomes = store.report_conversions(asked(), own).await;
        assert_eq!(outcomes.expect("a store"), expected);
    }
}
