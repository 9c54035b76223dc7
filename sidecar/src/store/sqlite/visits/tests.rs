use secrecy::ExposeSecret;
use sqlx::QueryBuilder;

use super::*;
use crate::core::link::tests::moment;
use crate::store::Scheme;
use crate::store::sqlite::SqliteStore;
use crate::store::tests::Fixture;
use crate::store::tests::visits::NOW;

#[tokio::test]
async fn visits_of_a_link_are_found_by_it_and_listed_without_being_sorted() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let store = SqliteStore::open(fixture.options.url.expose_secret(), 1).await;
    let store = store.expect("a migrated database");
    let explain = "EXPLAIN QUERY PLAN ";
    let listing = VisitListing {
        before: Some(7),
        since: Some(moment(NOW)),
        limit: 10,
        ..VisitListing::default()
    };
    for (mut query, search) in [
        (
            listing_query(explain, &listing, Some(5)),
            "SEARCH visits USING INDEX visits_by_link (link_id=? AND rowid<?)",
        ),
        (
            listing_query(explain, &listing, None),
            "SEARCH visits USING INTEGER PRIMARY KEY (rowid<?)",
        ),
        (
            QueryBuilder::new(format!("{explain}{ERASE}")),
            "SEARCH visits USING COVERING INDEX visits_by_link (link_id=?)",
        ),
    ] {
        let plan: Vec<(i64, i64, i64, String)> = query
            .build_query_as()
            .fetch_all(&store.readers)
            .await
            .expect("a plan");
        let plan: Vec<String> = plan.into_iter().map(|(.., detail)| detail).collect();
        assert!(plan.iter().any(|line| line == search), "{plan:?}");
        let sorts = plan.iter().any(|line| line.contains("TEMP B-TREE"));
        assert!(!sorts, "{plan:?}");
    }
}
