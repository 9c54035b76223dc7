//! Visits are exported in the order in which they were stored, each once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shortlink_core::link::Link;
use shortlink_core::ports::{ExportedVisit, VisitsToExport};
use shortlink_core::testing::{link, moment};
use vocabulary::visit::VisitId;

use super::visits::create_member;
use crate::testing::*;
use crate::{Store, in_every_store_of_visits};

in_every_store_of_visits! {
    an_export_misses_no_visit_that_is_stored_meanwhile,
    visits_have_what_a_warehouse_joins_them_by,
    an_export_waits_for_the_second_judgement,
    numbers_of_erased_visits_are_not_used_again,
}

/// Number of sessions that store visits at once, of transactions of each, and of visits in each of those.
const SESSIONS: u64 = 4;
const TRANSACTIONS: u64 = 25;
const VISITS: u64 = 7;

async fn to_export(store: &Store) -> VisitsToExport {
    store.visits_to_export().await.expect("a store")
}

/// The visits behind a number up to another one, in pages.
async fn export(store: &Store, mut after: i64, last: i64) -> Vec<ExportedVisit> {
    let mut visits = Vec::new();
    loop {
        let page = store.exported_visits(after, last, 10).await;
        let page = page.expect("a store");
        let Some(latest) = page.last() else {
            return visits;
        };
        after = latest.visit.number;
        visits.extend(page);
    }
}

async fn an_export_misses_no_visit_that_is_stored_meanwhile(fixture: Fixture) {
    let stored = Arc::new(AtomicU64::new(0));
    let sessions = (0..SESSIONS).map(|origin| {
        let (store, stored) = (Arc::clone(&fixture.store), Arc::clone(&stored));
        tokio::spawn(async move {
            for transaction in 0..TRANSACTIONS {
                let visits = (0..VISITS).map(|n| {
                    let sequence = transaction * VISITS + n;
                    let code = format!("x{origin}x{sequence}");
                    // Some are late.
                    let day = 1 + sequence % 3;
                    let mut visit = visit(sequence, &code, &format!("2026-06-0{day}T12:00:00Z"));
                    visit.id = VisitId { origin, sequence };
                    visit
                });
                keep(&store, visits.collect()).await;
                stored.fetch_add(VISITS, Ordering::Relaxed);
            }
        })
    });
    let sessions: Vec<_> = sessions.collect();
    let store = &*fixture.store;
    let all = SESSIONS * TRANSACTIONS * VISITS;
    let mut parts = Vec::new();
    let mut after = 0;
    loop {
        let is_last = stored.load(Ordering::Relaxed) == all;
        let last = to_export(store).await.stored;
        assert!(last >= after);
        parts.push((after, last, export(store, after, last).await));
        after = last;
        if is_last {
            break;
        }
    }
    for session in sessions {
        session.await.expect("a session");
    }
    // A repeated export of a part finds the same visits.
    for (after, last, visits) in &parts {
        let again = export(store, *after, *last).await;
        assert!(
            again == *visits,
            "{} visits, and {} before",
            again.len(),
            visits.len()
        );
    }
    let visits = parts.iter().flat_map(|(_, _, visits)| visits);
    let codes: Vec<&str> = visits.clone().map(|it| it.visit.code.as_str()).collect();
    let numbers: Vec<i64> = visits.map(|it| it.visit.number).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next));
    assert_eq!(codes.len() as u64, all);
    assert_eq!(codes.iter().collect::<BTreeSet<_>>().len() as u64, all);
    assert!(parts.len() > 2, "nothing was stored meanwhile");
}

async fn visits_have_what_a_warehouse_joins_them_by(fixture: Fixture) {
    let store = &*fixture.store;
    let campaign = create_member(store).await;
    let own = |code: &str, created_at: &str| Link {
        external_id: Some(format!("customer of {code}")),
        created_at: moment(created_at),
        ..link(code)
    };
    create(store, own("abc", "2026-06-01T11:00:00Z")).await;
    // The code had another link before.
    create(store, own("again", "2026-06-01T13:00:00Z")).await;
    let visits = ["member", "abc", "again", "unknown", "no code at all"];
    let visits = visits.iter().zip(0..);
    let visits = visits.map(|(code, n)| visit(n, code, "2026-06-01T12:00:00Z"));
    keep(store, visits.collect()).await;
    let last = to_export(store).await.stored;
    let visits = export(store, 0, last).await;
    let found: Vec<_> = visits
        .iter()
        .map(|it| (&*it.visit.code, it.campaign, it.external_id.as_deref()))
        .collect();
    assert_eq!(
        found,
        [
            ("member", Some(campaign), None),
            ("abc", None, Some("customer of abc")),
            ("again", None, None),
            ("unknown", None, None),
            ("no code at all", None, None),
        ]
    );
    assert_eq!(visits[0].visit.os.as_deref(), Some("iOS 17.2"));
}

async fn an_export_waits_for_the_second_judgement(fixture: Fixture) {
    let store = &*fixture.store;
    assert_eq!(to_export(store).await.judged, 0);
    let one = |n| vec![visit(n, "abc", "2026-06-01T12:00:00Z")];
    for n in 0..3 {
        keep(store, one(n)).await;
    }
    let stretches = store.stretches(9).await.expect("a store");
    assert!(to_export(store).await.judged < stretches[0].numbers.1);
    // The second is judged before the first.
    for (judged, expected) in [(1, 0), (0, 2)] {
        let ids = vec![stretches[judged].id];
        store.remove_stretches(ids).await.expect("a store");
        let VisitsToExport { stored, judged } = to_export(store).await;
        assert_eq!(export(store, 0, judged).await.len(), expected);
        assert_eq!(export(store, 0, stored).await.len(), 3);
    }
    let ids = vec![stretches[2].id];
    store.remove_stretches(ids).await.expect("a store");
    let VisitsToExport { stored, judged } = to_export(store).await;
    assert_eq!(stored, judged);
}

async fn numbers_of_erased_visits_are_not_used_again(fixture: Fixture) {
    let store = &*fixture.store;
    let one = |n| vec![visit(n, "abc", "2026-06-01T12:00:00Z")];
    keep(store, one(0)).await;
    let before = to_export(store).await.stored;
    erase_visits(store, &[code("abc")], moment("2026-06-01T13:00:00Z")).await;
    assert_eq!(export(store, 0, before).await, []);
    keep(store, vec![visit(1, "abc", "2026-06-01T14:00:00Z")]).await;
    let after = to_export(store).await.stored;
    assert!(after > before);
    assert_eq!(export(store, before, after).await.len(), 1);
}
