//! Results of A/B tests: those that the stored visits of links with variants show, whatever became of them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use shortlink_core::conversion::{Amount, ConversionOutcome, Converted, NewConversion, Refunded};
use shortlink_core::link::{Destination, Link, ParameterValues};
use shortlink_core::plan::{Plan, PlanChange, Variant, variants_text};
use shortlink_core::ports::{Counted, TimeSpan};
use shortlink_core::testing::{campaign, link, moment};
use shortlink_core::variants::VariantResult;
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::StoredVisit;
use vocabulary::{CampaignId, ClickId, Code};

use super::visits::of_class;
use crate::testing::*;
use crate::{Store, in_every_store_of_visits};

in_every_store_of_visits! {
    results_are_those_of_stored_visits,
    conversions_count_for_the_variant_that_led_to_them,
}

const CAMPAIGN: CampaignId = CampaignId::FIRST;
const AT: &str = "2026-06-01T10:00:00Z";

fn variants() -> String {
    let variant = |name: &str| Variant {
        name: name.to_owned(),
        weight: 1.0,
        target: format!("https://{name}.example/"),
    };
    variants_text(&[variant("a"), variant("b")])
}

/// Three links of a campaign with variants, a link with variants of its own, and one without.
async fn links(store: &Store) {
    let mut with_variants = campaign();
    with_variants.plan_anew(&PlanChange {
        variants: Some(variants()),
        ..PlanChange::default()
    });
    let id = store.create_campaign(&with_variants).await.expect("room");
    assert_eq!(id, CAMPAIGN);
    for code in ["m0", "m1", "m2"] {
        create(store, member(code)).await;
    }
    let own = link("own");
    let plan = own
        .destination
        .target()
        .and_then(|it| Plan::of_link(variants(), it));
    create(store, Link { plan, ..own }).await;
    create(store, link("plain")).await;
}

fn member(code: &str) -> Link {
    Link {
        destination: Destination::Campaign {
            id: CAMPAIGN,
            values: ParameterValues::default(),
        },
        ..link(code)
    }
}

fn random(number: u64, random: &mut StdRng) -> Visit {
    let code = ["m0", "m1", "m2", "own", "plain", "nobody"];
    let code = code.choose(random).expect("some");
    let at = moment(AT).as_millisecond() + random.random_range(0..3_600_000);
    let mut visit = visit(number, code, AT);
    visit.at = Timestamp::from_millisecond(at).expect("a time");
    let variants: &[_] = match *code {
        "plain" => &[None],
        _ => &[None, Some("a"), Some("b")],
    };
    visit.variant = variants.choose(random).expect("some").map(str::to_owned);
    let class = [Class::Human, Class::Human, Class::Bot].choose(random);
    of_class(*class.expect("some"), visit)
}

async fn stored(store: &Store) -> Vec<StoredVisit> {
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 10_000);
    page.await.expect("a store").visits
}

/// Links, visits, and the times of the first and the last one, by variant.
type Results = BTreeMap<String, (u64, u64, Timestamp, Timestamp)>;

async fn results(store: &Store, of: Counted) -> Results {
    let found: Vec<VariantResult> = store.variant_results(of).await.expect("a store");
    let found = found.into_iter();
    found
        .map(|it| (it.variant, (it.links, it.visits, it.first_at, it.last_at)))
        .collect()
}

/// Compares the numbers with those of stored visits of links that exist; the times as well if no visit was corrected.
async fn compare(store: &Store, existing: &[&str], with_times: bool) {
    let stored = stored(store).await;
    let codes = |of: Counted| match of {
        Counted::Link(code) => vec![code.to_string()],
        _ => ["m0", "m1", "m2"].map(str::to_owned).to_vec(),
    };
    let of = ["m0", "m1", "m2", "own", "plain"].map(|text| Counted::Link(code(text)));
    for of in of.into_iter().chain([Counted::Campaign(CAMPAIGN)]) {
        let codes = codes(of);
        let mut expected = Results::new();
        let mut followed: BTreeSet<(String, String)> = BTreeSet::new();
        for visit in &stored {
            let is_counted = visit.class == Class::Human
                && codes.contains(&visit.code)
                && visit.code != "plain"
                && existing.contains(&&*visit.code);
            if !is_counted {
                continue;
            }
            let variant = visit.variant.clone().unwrap_or_default();
            let of = expected.entry(variant.clone());
            let of = of.or_insert((0, 0, visit.at, visit.at));
            of.0 += u64::from(followed.insert((variant, visit.code.clone())));
            *of = (of.0, of.1 + 1, of.2.min(visit.at), of.3.max(visit.at));
        }
        let mut found = results(store, of).await;
        if !with_times {
            for all in [&mut found, &mut expected] {
                all.values_mut()
                    .for_each(|it| (it.2, it.3) = (moment(AT), moment(AT)));
            }
        }
        assert_eq!(found, expected, "{of:?}");
    }
}

async fn results_are_those_of_stored_visits(fixture: Fixture) {
    let store = &*fixture.store;
    links(store).await;
    let mut chance = StdRng::seed_from_u64(32);
    let visits: Vec<Visit> = (0..500).map(|number| random(number, &mut chance)).collect();
    let mut existing = vec!["m0", "m1", "m2", "own", "plain"];
    for some in visits.chunks(170) {
        keep(store, some.to_vec()).await;
        compare(store, &existing, true).await;
    }
    // Again, nothing is new.
    keep(store, visits[..50].to_vec()).await;
    compare(store, &existing, true).await;

    // Some become of another class.
    let verdicts = stored(store).await.into_iter().filter_map(|visit| {
        let mut verdict = visit.reclassified(&NewRules)?;
        let class = [Class::Human, Class::Scanner].choose(&mut chance);
        verdict.classification.class = *class.expect("some");
        Some((visit, verdict))
    });
    let verdicts: Vec<_> = verdicts.take(300).collect();
    let done = store.reclassify_visits(verdicts, None, moment(NOW));
    assert_eq!(done.await.expect("a store"), 300);
    compare(store, &existing, false).await;

    assert!(erase_visits(store, &[code("m1")], moment(NOW)).await > 0);
    compare(store, &existing, false).await;
    // Those of the seconds until an erasure is done stay.
    keep(store, vec![visit(900, "m1", "2026-06-01T12:40:00Z")]).await;
    compare(store, &existing, false).await;

    let deleted = store.delete_links(vec![(code("m2"), 1)], moment(NOW)).await;
    assert_eq!(deleted.expect("a store"), 1);
    existing.retain(|it| *it != "m2");
    compare(store, &existing, false).await;
    // Every visit of one is no human one any more.
    let verdicts = stored(store)
        .await
        .into_iter()
        .filter(|it| it.code == "own");
    let verdicts = verdicts.filter_map(|visit| {
        let mut verdict = visit.reclassified(&NewRules)?;
        verdict.classification.class = Class::Preview;
        Some((visit, verdict))
    });
    let verdicts = verdicts.collect();
    let done = store.reclassify_visits(verdicts, None, moment(NOW)).await;
    assert!(done.expect("a store") > 0);
    compare(store, &existing, false).await;
}

/// A conversion of value 2.
fn conversion(of: Converted, id: &str) -> NewConversion {
    NewConversion {
        of,
        id: id.to_owned(),
        at: moment(NOW),
        value: Some(("EUR".parse().expect("a currency"), Amount(20_000))),
        refunded: None,
    }
}

async fn conversions_count_for_the_variant_that_led_to_them(fixture: Fixture) {
    let store = &*fixture.store;
    links(store).await;
    let clicked = |number: u8, code: &str, variant: Option<&str>| {
        let mut visit = visit(number.into(), code, AT);
        visit.variant = variant.map(str::to_owned);
        visit.click = Some(ClickId([number; 16]));
        visit
    };
    let visits = vec![
        clicked(1, "m0", Some("a")),
        clicked(2, "m1", Some("a")),
        clicked(3, "m1", Some("b")),
        clicked(4, "m2", None),
        clicked(5, "plain", None),
    ];
    keep(store, visits).await;
    let by_code = |text: &str| Converted::Code(code(text));
    let by_click = |number: u8| Converted::ClickId(ClickId([number; 16]));
    let reported = vec![
        // The only variant of the link, that of the visit, an unknown one, that of no rule, and no test.
        conversion(by_code("m0"), "1"),
        conversion(by_click(3), "2"),
        conversion(by_code("m1"), "3"),
        conversion(by_code("m2"), "4"),
        conversion(by_click(4), "5"),
        conversion(by_click(5), "6"),
        conversion(by_click(1), "7"),
    ];
    let outcomes = store.report_conversions(reported.clone(), None).await;
    let outcomes = outcomes.expect("a store");
    let is_new = |it: &ConversionOutcome| matches!(it, ConversionOutcome::New(_));
    assert!(outcomes.iter().all(is_new), "{outcomes:?}");
    let again = store.report_conversions(reported, None).await;
    assert!(!again.expect("a store").iter().any(is_new));
    let counted = async |of: Counted| {
        let found = store.variant_results(of).await.expect("a store");
        let of = |it: VariantResult| {
            let values: Vec<_> = it.values.iter().map(|it| it.value.to_string()).collect();
            (it.variant, it.converted, it.conversions, values.join(" "))
        };
        found.into_iter().map(of).collect::<Vec<_>>()
    };
    let row = |variant: &str, converted, conversions, value: &str| {
        (variant.to_owned(), converted, conversions, value.to_owned())
    };
    let all = [row("", 1, 2, "4"), row("a", 1, 2, "4"), row("b", 1, 1, "2")];
    assert_eq!(counted(Counted::Campaign(CAMPAIGN)).await, all);
    let of_m1 = [row("a", 0, 0, ""), row("b", 1, 1, "2")];
    assert_eq!(counted(Counted::Link(code("m1"))).await, of_m1);
    assert_eq!(counted(Counted::Link(code("plain"))).await, []);
    assert_eq!(counted(Counted::All).await, []);

    // Refunds count for the variant of their conversion, however they name the link.
    let refund = |of, id, refunded| NewConversion {
        value: None,
        refunded: Some(refunded),
        ..conversion(of, id)
    };
    let refunds = vec![
        refund(by_code("m1"), "2", Refunded::Amount(Amount(5_000))),
        refund(by_code("m2"), "4", Refunded::All),
        refund(by_click(1), "1", Refunded::All),
        refund(by_click(1), "7", Refunded::All),
    ];
    let outcomes = store.report_conversions(refunds, None).await;
    assert!(outcomes.expect("a store").iter().all(is_new));
    let all = [
        row("", 1, 1, "2"),
        row("a", 0, 0, ""),
        row("b", 1, 1, "1.5"),
    ];
    assert_eq!(counted(Counted::Campaign(CAMPAIGN)).await, all);

    let erased: [Code; 1] = [code("m0")];
    erase_visits(store, &erased, moment(NOW)).await;
    let left = [
        row("", 1, 1, "2"),
        row("a", 0, 0, ""),
        row("b", 1, 1, "1.5"),
    ];
    assert_eq!(counted(Counted::Campaign(CAMPAIGN)).await, left);
    for table in ["variant_clicks", "variant_conversions"] {
        let of_m0 = format!("{table} WHERE code = 'm0'");
        assert_eq!(fixture.count(&of_m0).await, 0);
    }
    let deleted = vec![(code("m1"), 1), (code("m2"), 1)];
    let deleted = store.delete_links(deleted, moment(NOW)).await;
    assert_eq!(deleted.expect("a store"), 2);
    assert_eq!(fixture.count("variant_clicks").await, 0);
    assert_eq!(fixture.count("variant_conversions").await, 0);
}
