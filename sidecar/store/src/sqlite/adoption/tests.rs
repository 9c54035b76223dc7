use jiff::Timestamp;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::ports::{LinkTotal, VisitListing};
use shortlink_core::testing::{link, moment};
use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use vocabulary::Code;

use super::{Left, adopt_some, code_key, is_finished, visits};
use crate::Store;
use crate::sqlite::schema::MIGRATOR;
use crate::sqlite::{SqliteStore, options};
use crate::testing::{KEY, NOW, code, count_waiting, erase_visits, keep, visit};

async fn open(url: &str) -> Store {
    let store = SqliteStore::open(url, 2).await;
    store.expect("a migrated database")
}

/// A database as so many migrations leave it, and its URL.
async fn old_database(directory: &TempDir, migrations: usize) -> (String, SqliteConnection) {
    let url = format!("sqlite:{}/old.db", directory.path().display());
    let options = options(&url).expect("a URL").create_if_missing(true);
    let mut connection = options.connect().await.expect("a place");
    apply(&mut connection, migrations).await;
    (url, connection)
}

async fn apply(connection: &mut SqliteConnection, migrations: usize) {
    let first = MIGRATOR.iter().take(migrations).cloned().collect();
    Migrator::with_migrations(first)
        .run(connection)
        .await
        .expect("a good file");
}

/// A database of the first schema, as the first version made it.
#[tokio::test]
async fn links_that_were_kept_without_numbers_are_adopted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (url, mut connection) = old_database(&directory, 1).await;
    for number in 0..1500 {
        sqlx::query(
            "INSERT INTO links (code, target, redirect_status, revision, expires_at, revoked_at, \
             created_at, updated_at, created_by) \
             VALUES (?1, 'https://example.com/a', 302, 1, NULL, NULL, ?2, ?2, 'key')",
        )
        .bind(format!("old{number}"))
        .bind(link("a").created_at.as_millisecond())
        .execute(&mut connection)
        .await
        .expect("room");
    }
    connection.close().await.expect("a good file");
    let applied = SqliteStore::migrate(&url, &KEY).await;
    assert!(applied.expect("a good file") > 0);
    let store = open(&url).await;
    for number in 0..1500 {
        let link = link(&format!("old{number}"));
        let found = store.find_link(&link.code).await.expect("a store");
        assert_eq!(found, Some(link));
    }
    // All of them are published.
    assert!(count_waiting(&store, 2000).await > 0);
}

/// Codes that visits were kept of by their texts: most have numbers, one has a row in `far_codes`,
/// one has none, and one is no code.
const FAR: &str = "ABCDEFGHIJKLMNOP";
const FARTHER: &str = "ABCDEFGHIJKLMNOQ";
const VISITS_BY_CODE: &str = "
    INSERT INTO far_codes (code) VALUES ('ABCDEFGHIJKLMNOP');
    INSERT INTO visit_agents VALUES (1, 'agent', NULL, NULL, NULL, NULL, 'other', NULL);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000)
    INSERT INTO visits (id, at, code, host, agent_id, method, status, class, reason, ruleset)
    SELECT 100 + i, 1700000000000 + i * 60000, CASE i % 3100 WHEN 7 THEN 'ABCDEFGHIJKLMNOP'
        WHEN 8 THEN 'ABCDEFGHIJKLMNOQ' WHEN 9 THEN 'no code!' ELSE 'c' || (i % 3100) END,
        's.example.com', 1, 'GET', 302, iif(i % 2, 'human', 'bot'), 'test', 1 FROM n;
    INSERT INTO visit_link_hours SELECT code, at / 3600000, class, count(*), max(at) FROM visits
        GROUP BY 1, 2, 3;
    -- Some are gone, and what was counted of them is not.
    DELETE FROM visits WHERE id < 1000;";

async fn number(connection: &mut SqliteConnection, statement: &'static str) -> i64 {
    let number = sqlx::query_scalar(statement).fetch_one(connection).await;
    number.expect("a number")
}

#[tokio::test]
async fn visits_that_were_kept_by_codes_are_found_by_links_also_after_an_interruption() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (url, mut connection) = old_database(&directory, 7).await;
    sqlx::query("INSERT INTO settings (name, value) VALUES ('code_key', ?1)")
        .bind(KEY.bytes().as_slice())
        .execute(&mut connection)
        .await
        .expect("room");
    let filled = sqlx::raw_sql(VISITS_BY_CODE).execute(&mut connection);
    filled.await.expect("room");
    let expected: Vec<(String, i64, i64, i64)> = sqlx::query_as(
        "SELECT code, sum(visits), sum(iif(class = 'human', visits, 0)), max(last_at) \
         FROM visit_link_hours GROUP BY code",
    )
    .fetch_all(&mut connection)
    .await
    .expect("counts");
    assert_eq!(expected.len(), 3100);
    let rows = number(&mut connection, "SELECT count(*) FROM visit_link_hours").await;

    // A part of each is moved when the process is killed.
    apply(&mut connection, 8).await;
    let key = code_key(&mut connection).await.expect("a good file");
    let numbering = Numbering::new(&key.expect("a key"));
    for _ in 0..2 {
        for left in [Left::LinkHours, Left::Visits] {
            let done = adopt_some(&mut connection, left, &numbering).await;
            done.expect("a good file");
        }
    }
    let moved = number(&mut connection, "SELECT count(*) FROM visit_link_hours").await;
    assert_eq!(moved, 2 * visits::TOGETHER);
    let left = "SELECT count(*) FROM visits WHERE link_id IS NULL";
    assert_eq!(number(&mut connection, left).await, 24_101 - moved);
    connection.close().await.expect("a good file");
    let refused = SqliteStore::open(&url, 1).await.err().expect("an error");
    let message = refused.to_string();
    assert!(message.contains("run `shortlink migrate`"), "{message}");

    let applied = SqliteStore::migrate(&url, &KEY).await;
    // The migrations after it.
    let later = MIGRATOR.iter().count() - 8;
    assert_eq!(applied.expect("a good file"), later);
    let mut connection = options(&url).expect("a URL").connect().await.expect("it");
    assert_eq!(number(&mut connection, left).await, 0);
    let kept = number(&mut connection, "SELECT count(*) FROM visit_link_hours").await;
    assert_eq!(kept, rows);
    let is_finished = is_finished(&mut connection).await;
    assert!(is_finished.expect("a good file"));
    connection.close().await.expect("a good file");

    let store = open(&url).await;
    let codes: Vec<Code> = expected
        .iter()
        .filter_map(|(code, ..)| code.parse().ok())
        .collect();
    let mut totals = store.visit_totals(&codes).await.expect("a store");
    totals.sort_unstable_by_key(|total| total.code.to_string());
    let expected: Vec<LinkTotal> = expected
        .into_iter()
        .filter_map(|(code, visits, human, last_at)| {
            Some(LinkTotal {
                code: code.parse().ok()?,
                visits: visits.unsigned_abs(),
                human: human.unsigned_abs(),
                refused: 0,
                last_at: Timestamp::from_millisecond(last_at).expect("a moment"),
            })
        })
        .collect();
    assert_eq!((totals.len(), &totals), (3099, &expected));
    for (place, text) in [FAR, FARTHER, "c10", "c3099"].into_iter().enumerate() {
        let listing = VisitListing {
            code: Some(code(text)),
            limit: 100,
            ..VisitListing::default()
        };
        let of_link = store.list_visits(&listing).await.expect("a store").items;
        // There were nine of the first, of which one is gone, and eight of the last.
        assert_eq!(of_link.len(), 8, "{text}");
        assert!(of_link.iter().all(|visit| visit.code == text), "{text}");
        // New visits are added to the moved ones.
        let before = expected.iter().find(|total| total.code == code(text));
        keep(&store, vec![visit(place as u64, text, NOW)]).await;
        let after = store.visit_totals(&[code(text)]).await.expect("a store");
        assert_eq!(after[0].visits, before.expect("a total").visits + 1);
        assert_eq!(erase_visits(&store, &[code(text)], moment(NOW)).await, 9);
        let left = store.list_visits(&listing).await.expect("a store");
        assert_eq!(left.items, []);
    }
}
