use secrecy::ExposeSecret;
use shortlink_core::ports::MAX_TOGETHER;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::*;
use crate::Scheme;
use crate::db::{Statement, unsorted};
use crate::deletion::{LOCK, REMOVED};
use crate::testing::{Fixture, connect};

/// Links as most are, some that have expired and a few that were revoked.
const LINKS: &str = "INSERT INTO links (id, code, target, redirect_status, revision, valid_until, \
     revoked_at, created_at, updated_at, created_by) \
     SELECT number::bigint * 1000003, 'c' || number, 'https://example.com/a', 302, 1, \
     CASE WHEN number % 5 = 0 THEN number END, CASE WHEN number % 50 = 0 THEN number END, \
     number, number, 'key' FROM generate_series(1, 20000) AS numbers (number); \
     INSERT INTO outbox (first_id, last_id, revision, enqueued_at) \
     SELECT id, id, 1, 0 FROM links LIMIT 500; \
     INSERT INTO removed_links (id, code, revision, removed_at) \
     SELECT -number, 'd' || number, 1, number FROM generate_series(1, 20000) AS numbers (number);";

/// The plan that statements of PostgreSQL print, the last of which explains one.
async fn plan(session: &mut PgConnection, explained: String) -> String {
    let rows = sqlx::raw_sql(AssertSqlSafe(explained))
        .fetch_all(session)
        .await
        .expect("a plan");
    let lines = rows.iter().map(|row| row.get::<String, _>(0));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn statements_of_postgres_read_no_more_than_they_need() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    fixture.execute(LINKS).await;
    let mut session = connect(fixture.options.url.expose_secret()).await;
    // As the pool has it, and as it is once a statement was prepared and used often.
    let settings = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan";
    // With statistics, and with none as on the first day.
    for prepare in ["SELECT 1", "ANALYZE"] {
        fixture.execute(prepare).await;
        sqlx::raw_sql(settings)
            .execute(&mut session)
            .await
            .expect("settings");
        for (number, (statement, types, values, index)) in [
            (WALK, "bigint, bigint, bigint", "5, 100, 900", "_pkey"),
            (
                FIND_DEAD,
                "bigint[], bigint, bigint",
                "'{5,6}', 5, 5",
                "_pkey",
            ),
            (FIND_RECORDS, "bigint[], bigint", "'{5,6}', 1000", "_pkey"),
            (FIND_UNLINKED, "bigint[]", "'{5,6}'", "_pkey"),
            (FIND_REMOVED, "bigint[]", "'{5,6}'", "_pkey"),
            (LOCK, "bigint[]", "'{5,6}'", "_pkey"),
        ]
        .into_iter()
        .enumerate()
        {
            let statement = statement.of(Scheme::Postgres);
            let explained = format!(
                "DEALLOCATE ALL; PREPARE upkeep{number} ({types}) AS {statement}; \
                 EXPLAIN EXECUTE upkeep{number} ({values})"
            );
            let plan = plan(&mut session, explained).await;
            assert!(plan.contains(index), "{statement}\n{plan}");
            assert!(!plan.contains("Seq Scan"), "{statement}\n{plan}");
            // Links that are to be locked are sorted, a few hundred of them.
            let is_sorted = plan.contains("Sort  ");
            assert!(
                !is_sorted || statement == LOCK.of(Scheme::Postgres),
                "{statement}\n{plan}"
            );
        }
    }
}

#[tokio::test]
async fn what_has_ended_is_read_in_the_order_of_its_index_whatever_statistics_say() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    fixture.execute(LINKS).await;
    let mut session = connect(fixture.options.url.expose_secret()).await;
    // With none, as on the first day; with true ones; and with those from before anything ended.
    let states = [
        &["SET enable_seqscan = off"][..],
        &["ANALYZE"],
        &[
            "UPDATE links SET revoked_at = NULL, valid_until = NULL",
            "DELETE FROM removed_links",
            "VACUUM FULL ANALYZE",
            "UPDATE links SET revoked_at = created_at, valid_until = created_at",
        ],
    ];
    for state in states {
        for statement in state {
            let done = sqlx::raw_sql(*statement).execute(&mut session).await;
            done.expect("a working database");
        }
        for (statement, index) in [
            (WALK_BY_EXPIRY, "_valid_until_id_idx"),
            (WALK_BY_REVOCATION, "_revoked_at_idx"),
            (REMOVED, "removed_links_by_age"),
        ] {
            // Until a moment before which hardly anything had ended, and until one before which all had.
            for until in [6, i64::from(i32::MAX)] {
                let explained = unsorted(statement, &[5, i64::MIN, until, 100]).replacen(
                    "SELECT",
                    "EXPLAIN SELECT",
                    1,
                );
                let plan = plan(&mut session, explained).await;
                assert!(plan.contains(index), "{state:?}\n{plan}");
                // Of an index of times, PostgreSQL sorts those of the same moment.
                let is_sorted = plan.replace("Incremental Sort  ", "").contains("Sort  ");
                assert!(!is_sorted, "{state:?}\n{plan}");
            }
        }
    }
}

#[tokio::test]
async fn dead_links_are_found_by_their_ids_though_statistics_know_no_ended_links() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    fixture.execute(LINKS).await;
    fixture
        .execute("UPDATE links SET revoked_at = NULL, valid_until = NULL")
        .await;
    fixture.execute("VACUUM FULL ANALYZE links").await;
    let mut session = connect(fixture.options.url.expose_secret()).await;
    let ids: Vec<String> = (1..=500)
        .map(|number| (number * 1_000_003).to_string())
        .collect();
    let find = FIND_DEAD.of(Scheme::Postgres);
    let explained = format!(
        "SET enable_seqscan = off; SET plan_cache_mode = force_custom_plan; \
         PREPARE find (bigint[], bigint, bigint) AS {find}; EXPLAIN EXECUTE find ('{{{}}}', 30000, 30000)",
        ids.join(",")
    );
    let plan = plan(&mut session, explained).await;
    assert!(plan.contains("_pkey on links_0"), "{plan}");
    assert!(!plan.contains("Bitmap"), "{plan}");
}

#[tokio::test]
async fn statements_of_sqlite_read_no_more_than_they_need() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let by_id = "SEARCH links USING INTEGER PRIMARY KEY (rowid=?)";
    let removed_by_id = "SEARCH removed_links USING INTEGER PRIMARY KEY (rowid=?)";
    let by_revocation = "USING COVERING INDEX links_by_revocation (revoked_at>?";
    for (sql, index) in [
        (WALK, "SEARCH links USING INTEGER PRIMARY KEY (rowid>?"),
        (WALK_BY_EXPIRY, "USING COVERING INDEX links_by_end"),
        (WALK_BY_REVOCATION, by_revocation),
        (FIND_DEAD, by_id),
        (FIND_RECORDS, by_id),
        (FIND_UNLINKED, by_id),
        (FIND_REMOVED, removed_by_id),
        (LOCK, by_id),
    ] {
        let mut statement = Statement::new(Scheme::Sqlite, sql!("EXPLAIN QUERY PLAN "));
        statement.push(sql);
        let detail = |row: &Row| row.get("detail");
        let plan = fixture.store.all("plan", &statement, &[], detail);
        let plan: Vec<String> = plan.await.expect("a plan");
        assert!(plan.iter().any(|line| line.contains(index)), "{plan:?}");
        for slow in [
            "TEMP B-TREE",
            "SCAN links",
            "SCAN outbox",
            "SCAN removed_links",
        ] {
            assert!(!plan.iter().any(|line| line.contains(slow)), "{plan:?}");
        }
    }
    assert!(LONGEST_SPAN >= MAX_TOGETHER as i64);
}
