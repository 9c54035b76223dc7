//! Visits by what they have in common and when they were.

use shortlink_core::ports::{CountQuery, Counted, Dimension, Hours, Intervals, ValueTimeCount};
use shortlink_core::testing::moment;
use shortlink_core::visit::class::Class;

use super::visits::{create_member, of_class, query};
use crate::in_every_store_of_visits;
use crate::testing::*;

in_every_store_of_visits! {
    values_are_counted_by_hour_and_by_day,
}

async fn values_are_counted_by_hour_and_by_day(fixture: Fixture) {
    let store = &*fixture.store;
    let id = create_member(store).await;
    let mut abroad = visit(2, "member", "2026-06-01T13:59:59.999Z");
    abroad.place.country = Some("DE".to_owned());
    abroad.referrer_host = Some("www.example.com".to_owned());
    let visits = vec![
        visit(0, "member", "2026-06-01T12:00:00Z"),
        of_class(Class::Preview, visit(1, "member", "2026-06-01T12:59:59Z")),
        abroad,
        visit(3, "member", "2026-06-01T23:59:59Z"),
        visit(4, "member", "2026-06-02T00:00:00Z"),
    ];
    keep(store, visits).await;
    for of in [
        Counted::All,
        Counted::Campaign(id),
        Counted::Link(code("member")),
    ] {
        let query = CountQuery {
            until: moment("2026-06-02T01:00:00Z"),
            ..query(of)
        };
        let counted = async |dimension, names: &[&str], (length, ahead)| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let by = Intervals { length, ahead };
            let counts = store.count_over_time(&query, dimension, &names, by);
            let counts = counts.await.expect("a store");
            let text = |it: &ValueTimeCount| {
                let at = it.begin.strftime("%dT%H");
                format!("{at} {} {} {}", it.value, it.class.name(), it.visits)
            };
            counts.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(
            counted(Dimension::Country, &["AT", "DE", "FR"], (Hours::One, 0)).await,
            [
                "01T12 AT human 1",
                "01T12 AT preview 1",
                "01T13 DE human 1",
                "01T23 AT human 1",
                "02T00 AT human 1",
            ],
            "{of:?}"
        );
        assert_eq!(
            counted(Dimension::Country, &["AT"], (Hours::Day, 0)).await,
            ["01T00 AT human 2", "01T00 AT preview 1", "02T00 AT human 1"],
            "{of:?}"
        );
        let shifted = counted(Dimension::Country, &["AT"], (Hours::Day, -13)).await;
        assert_eq!(
            shifted,
            ["31T13 AT human 1", "31T13 AT preview 1", "01T13 AT human 2"],
            "{of:?}"
        );
        // Unknown is a value like others.
        assert_eq!(
            counted(
                Dimension::Referrer,
                &["", "www.example.com"],
                (Hours::Day, 0)
            )
            .await,
            [
                "01T00  human 2",
                "01T00  preview 1",
                "01T00 www.example.com human 1",
                "02T00  human 1",
            ],
            "{of:?}"
        );
        let none = counted(Dimension::Os, &[], (Hours::Day, 0)).await;
        assert_eq!(none, [""; 0]);
    }
}
