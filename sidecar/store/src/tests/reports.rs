//! Sources of reports: visits by network and status, and the links with the most clicks.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use secrecy::ExposeSecret;
use shortlink_core::ports::{Counted, Dimension, OTHER, OldCounts};
use shortlink_core::testing::{link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use vocabulary::CampaignId;

use super::visits::{create_member, of_class, query};
use crate::testing::*;
use crate::{Scheme, Store, in_every_store};

in_every_store! {
    visits_of_before_are_counted_by_network_and_status_by_the_migration,
    links_are_ranked_by_clicks,
}

fn random_visit(random: &mut StdRng, sequence: u64) -> Visit {
    let class = [Class::Human, Class::Bot].choose(random).expect("some");
    let code = ["member", "plain"].choose(random).expect("some");
    let hour = random.random_range(10..13);
    let mut visit = visit(sequence, code, &format!("2026-06-01T{hour}:00:00Z"));
    let network = [None, Some("Alpha"), Some("Beta")]
        .choose(random)
        .expect("some");
    visit.place.isp = network.map(str::to_owned);
    visit.status = *[302, 307].choose(random).expect("some");
    of_class(*class, visit)
}

/// Everything that is counted by network and by status, as text.
async fn counted(store: &Store, id: CampaignId) -> Vec<String> {
    let mut all = Vec::new();
    for of in [Counted::All, Counted::Campaign(id)] {
        for dimension in [Dimension::Network, Dimension::Status] {
            let counts = store.count_by(&query(of), dimension).await;
            let counts = counts.expect("a store").into_iter();
            all.extend(counts.map(|it| format!("{of:?} {dimension:?} {it:?}")));
        }
    }
    all
}

async fn visits_of_before_are_counted_by_network_and_status_by_the_migration(fixture: Fixture) {
    let store = &*fixture.store;
    let id = create_member(store).await;
    create(store, link("plain")).await;
    let random = &mut StdRng::seed_from_u64(26);
    let visits = (0..400).map(|sequence| random_visit(random, sequence));
    keep(store, visits.collect()).await;
    let wanted = counted(store, id).await;
    assert!(wanted.iter().any(|it| it.contains("Alpha")), "{wanted:?}");
    let named = "visit_values WHERE dimension = 'network'";
    // Two networks, of all links and of the campaign.
    assert_eq!(fixture.count(named).await, 4);
    let number = match Scheme::of(fixture.options.url.expose_secret()).expect("a scheme") {
        Scheme::Sqlite => 31,
        Scheme::Postgres => 26,
    };
    let undo = format!(
        "DROP TABLE visit_network_minutes; \
         DELETE FROM visit_hours WHERE dimension IN ('network', 'status'); \
         DELETE FROM visit_values WHERE dimension = 'network'; \
         DELETE FROM _sqlx_migrations WHERE version = {number}"
    );
    fixture.execute(&undo).await;
    assert_eq!(counted(store, id).await, Vec::<String>::new());
    let applied = crate::migrate(&fixture.options, &KEY).await;
    assert_eq!(applied.expect("a good database"), 1);
    assert_eq!(counted(store, id).await, wanted);
    assert_eq!(fixture.count(named).await, 4);

    // Visits that are not stored any more are of an unknown network.
    fixture.execute(&undo).await;
    fixture
        .execute("DELETE FROM visits WHERE isp = 'Alpha'")
        .await;
    let applied = crate::migrate(&fixture.options, &KEY).await;
    assert_eq!(applied.expect("a good database"), 1);
    for of in [Counted::All, Counted::Campaign(id)] {
        let total = store.count_by(&query(of), Dimension::Total).await;
        let total: u64 = total.expect("a store").iter().map(|it| it.visits).sum();
        for dimension in [Dimension::Network, Dimension::Status] {
            let counts = store
                .count_by(&query(of), dimension)
                .await
                .expect("a store");
            assert_eq!(counts.iter().map(|it| it.visits).sum::<u64>(), total);
            assert!(
                counts
                    .iter()
                    .all(|it| it.value != "Alpha" && it.value != OTHER)
            );
        }
    }
    // Retention deletes them with the others.
    let old = OldCounts {
        hours_before: Some(moment("2026-06-02T00:00:00Z")),
        ..OldCounts::default()
    };
    while store.forget_counts(old, 1000).await.expect("a store") > 0 {}
    assert_eq!(fixture.count("visit_hours").await, 0);
}

async fn links_are_ranked_by_clicks(fixture: Fixture) {
    let store = &*fixture.store;
    let id = create_member(store).await;
    for slug in ["one", "two", "three", "bots"] {
        create(store, link(slug)).await;
    }
    let visits = [
        ("member", Class::Human),
        ("one", Class::Human),
        ("two", Class::Human),
        ("two", Class::Human),
        ("three", Class::Human),
        ("three", Class::Human),
        ("three", Class::Human),
        ("bots", Class::Bot),
        // A code without a link.
        ("nobody", Class::Human),
    ];
    let visits = visits.iter().zip(0..);
    let visits = visits.map(|((slug, class), sequence)| {
        of_class(*class, visit(sequence, slug, "2026-06-01T12:00:00Z"))
    });
    keep(store, visits.collect()).await;
    let top = async |campaign, most| {
        let found = store.most_clicked(campaign, most).await.expect("a store");
        assert!(found.is_complete);
        let links = found.links.into_iter();
        links
            .map(|it| (it.code.to_string(), it.clicks.map_or(0, |it| it.visits)))
            .collect::<Vec<_>>()
    };
    let named = |code: &str, visits| (code.to_owned(), visits);
    assert_eq!(
        top(None, 1000).await,
        [named("three", 3), named("two", 2), named("one", 1)]
    );
    assert_eq!(top(None, 1).await, [named("three", 3)]);
    assert_eq!(top(Some(id), 1000).await, [named("member", 1)]);
}
