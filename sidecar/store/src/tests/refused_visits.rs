//! Visits that were answered with 410.

use std::num::NonZeroU64;

use shortlink_core::link::Link;
use shortlink_core::ports::{Counted, Dimension, TimeSpan};
use shortlink_core::testing::{link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::visitor::VisitorId;

use super::visits::{create_member, of_class, query};
use crate::testing::*;
use crate::{Store, in_every_store_of_visits};

in_every_store_of_visits! {
    refused_visits_count_neither_as_persons_nor_as_visitors_nor_towards_a_limit,
    persons_who_were_refused_are_counted_apart_once_their_visits_are_judged_again,
}

const AT: &str = "2026-06-01T12:00:00Z";

/// A visit of a person of their own.
fn tap(number: u8, slug: &str, status: u16) -> Visit {
    let visit = visit(number.into(), slug, AT);
    Visit {
        visitor: Some(VisitorId([number.wrapping_mul(37); 16])),
        status,
        classification: visit.classification.answered(status),
        ..visit
    }
}

/// The numbers of human and of refused visits, and of unique visitors.
async fn counted(store: &Store, of: Counted) -> (u64, u64, u64) {
    let counts = store.count_visits(&query(of)).await.expect("a store");
    let sum = |class| {
        let counts = counts.iter().filter(|count| count.class == class);
        counts.map(|count| count.visits).sum()
    };
    let days = store.count_visitors(&query(of)).await.expect("a store");
    let visitors = days.iter().map(|day| day.visitors).sum();
    (sum(Class::Human), sum(Class::Refused), visitors)
}

async fn refused_visits_count_neither_as_persons_nor_as_visitors_nor_towards_a_limit(
    fixture: Fixture,
) {
    let store = &*fixture.store;
    let id = create_member(store).await;
    let limited = Link {
        max_visits: NonZeroU64::new(2),
        ..link("limited")
    };
    create(store, limited).await;
    let mut visits = vec![tap(0, "member", 302), tap(1, "limited", 302)];
    visits.extend((10..60).map(|number| tap(number, "member", 410)));
    visits.extend((60..70).map(|number| tap(number, "limited", 410)));
    assert_eq!(keep(store, visits).await.ended, []);
    for (of, expected) in [
        (Counted::All, (2, 60, 2)),
        (Counted::Campaign(id), (1, 50, 1)),
        (Counted::Link(code("member")), (1, 50, 1)),
    ] {
        assert_eq!(counted(store, of).await, expected, "{of:?}");
    }
    let of_campaign = query(Counted::Campaign(id));
    let by = store.count_by(&of_campaign, Dimension::Domain).await;
    let by = by.expect("a store");
    assert_eq!((by[0].class, by[0].visits), (Class::Refused, 50));
    let totals = store.visit_totals(&[code("member")]).await.expect("it");
    let total = totals[0];
    assert_eq!((total.visits, total.human, total.refused), (51, 1, 50));
    let last = vec![tap(2, "limited", 302)];
    assert_eq!(keep(store, last).await.ended, [code("limited")]);
}

async fn persons_who_were_refused_are_counted_apart_once_their_visits_are_judged_again(
    fixture: Fixture,
) {
    let store = &*fixture.store;
    let id = create_member(store).await;
    // As an earlier version has counted them.
    let visits = (0..20).map(|number| Visit {
        user_agent: format!("Mozilla/5.0 (X11; Linux x86_64; rv:12{number}.0) Gecko/20100101"),
        ..of_class(Class::Human, tap(number, "member", 410))
    });
    keep(store, visits.chain([tap(20, "member", 302)]).collect()).await;
    assert_eq!(counted(store, Counted::Campaign(id)).await, (21, 0, 21));
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 100);
    let visits = page.await.expect("a store").visits;
    let gone = visits.into_iter().filter(|visit| visit.status == 410);
    let verdicts = gone.filter_map(|visit| {
        let verdict = visit.reclassified(&NewRules)?;
        Some((visit, verdict))
    });
    let verdicts: Vec<_> = verdicts.collect();
    assert_eq!(verdicts.len(), 20);
    assert!(
        verdicts
            .iter()
            .all(|(_, verdict)| verdict.classification.reason == "browser")
    );
    let done = store.reclassify_visits(verdicts, None, moment(NOW)).await;
    assert_eq!(done.expect("a store"), 20);
    let (human, refused, _) = counted(store, Counted::Campaign(id)).await;
    assert_eq!((human, refused), (1, 20));
    // Their days wait for being counted again.
    let stale = store
        .stale_days(i64::MAX, (i64::MIN, i64::MIN), 10)
        .await
        .expect("a store");
    assert_eq!(stale.len(), 2, "{stale:?}");
}
