use shortlink_core::testing::moment;

use super::*;
use crate::Scheme;
use crate::testing::{Fixture, NOW};

#[tokio::test]
async fn visits_of_a_link_are_found_by_it_and_listed_without_being_sorted() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let listing = VisitListing {
        before: Some(7),
        since: Some(moment(NOW)),
        limit: 10,
        ..VisitListing::default()
    };
    let explain = || Statement::new(Scheme::Sqlite, sql!("EXPLAIN QUERY PLAN "));
    let list = |of| {
        let mut statement = explain();
        statement.push(SELECT);
        push_filters(&mut statement, &listing, of);
        statement
    };
    let mut erase = explain();
    erase.push(ERASE);
    erase.values.push("[5]".into());
    for (statement, search) in [
        (
            list(Some(5_i64.into())),
            "SEARCH visits USING INDEX visits_by_link (link_id=? AND rowid<?)",
        ),
        (
            list(None),
            "SEARCH visits USING INTEGER PRIMARY KEY (rowid<?)",
        ),
        (
            erase,
            "SEARCH visits USING COVERING INDEX visits_by_link (link_id=?)",
        ),
    ] {
        let detail = |row: &Row| row.get("detail");
        let plan = fixture
            .store
            .all("plan", &statement, &statement.values, detail);
        let plan: Vec<String> = plan.await.expect("a plan");
        assert!(plan.iter().any(|line| line == search), "{plan:?}");
        let sorts = plan.iter().any(|line| line.contains("TEMP B-TREE"));
        assert!(!sorts, "{plan:?}");
    }
}
