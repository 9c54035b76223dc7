use secrecy::ExposeSecret;
use shortlink_core::ports::MAX_TOGETHER;

use super::*;
use crate::Scheme;
use crate::testing::Fixture;

#[tokio::test]
async fn statements_for_upkeep_read_no_more_than_they_need() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let store = SqliteStore::open(fixture.options.url.expose_secret(), 1).await;
    let store = store.expect("a migrated database");
    for (statement, index) in [
        (WALK, "SEARCH links USING INTEGER PRIMARY KEY (rowid>?)"),
        (WALK_BY_EXPIRY, "SEARCH links USING INDEX links_by_end"),
        (
            REVOKED_SINCE,
            "SEARCH links USING INDEX links_by_revocation (revoked_at>?",
        ),
        (EXPIRED_SINCE, "SEARCH links USING INDEX links_by_end"),
        (FIND, "SEARCH links USING INTEGER PRIMARY KEY (rowid=?)"),
    ] {
        let explained = format!("EXPLAIN QUERY PLAN {statement}");
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(sqlx::AssertSqlSafe(explained))
            .fetch_all(&store.readers)
            .await
            .expect("a plan");
        let plan: Vec<String> = plan.into_iter().map(|(.., detail)| detail).collect();
        assert!(plan.iter().any(|line| line.contains(index)), "{plan:?}");
        assert!(
            !plan.iter().any(|line| line.contains("TEMP B-TREE")),
            "{plan:?}"
        );
        assert!(
            !plan.iter().any(|line| line.starts_with("SCAN links")),
            "{plan:?}"
        );
        assert!(
            !plan.iter().any(|line| line.starts_with("SCAN outbox")),
            "{plan:?}"
        );
    }
    assert!(LONGEST_SPAN >= MAX_TOGETHER as i64);
}
