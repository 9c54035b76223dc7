use jiff::Timestamp;
use sqlx::{ConnectOptions, Connection};

use super::{OpenError, SqliteStore};
use crate::domain::link::tests::link;
use crate::domain::ports::{LinkStore, OutboxStore, Store};
use crate::store::Scheme;
use crate::store::tests::{Fixture, KEY, create};

async fn open(url: &str) -> SqliteStore {
    SqliteStore::open(url, 2)
        .await
        .expect("a migrated database")
}

/// A database of the first schema, as the first version made it.
#[tokio::test]
async fn links_that_were_kept_without_numbers_are_adopted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}/old.db", directory.path().display());
    let options = super::options(&url).expect("a URL").create_if_missing(true);
    let mut connection = options.connect().await.expect("a place");
    let first = sqlx::migrate::Migrator {
        migrations: sqlx::migrate!("../migrations/sqlite").migrations[..1]
            .to_vec()
            .into(),
        ..sqlx::migrate!("../migrations/sqlite")
    };
    first.run(&mut connection).await.expect("an empty file");
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
    // Redis is told of all of them.
    let count = store.count_waiting(Timestamp::MAX, 2000).await;
    assert!(count.expect("a store") > 0);
}

#[tokio::test]
async fn the_outbox_outlives_the_process() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    create(&*fixture.store, link("abc")).await;
    // As after a kill: the database's files at this moment, opened elsewhere.
    let copy = fixture.directory.path().join("copy");
    std::fs::create_dir(&copy).expect("room");
    let made = fixture.directory.path().join("made");
    for entry in std::fs::read_dir(made).expect("a directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), copy.join(entry.file_name())).expect("room");
    }
    let replayed = open(&format!("sqlite:{}/links.db", copy.display())).await;
    let waiting = replayed.waiting(Timestamp::MAX).await.expect("a store");
    assert_eq!(waiting.links, [link("abc")]);
}

#[tokio::test]
async fn only_a_file_with_the_right_schema_is_opened() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}/a.db", directory.path().display());
    let refused = |opened: Result<SqliteStore, OpenError>| match opened {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    let message = refused(SqliteStore::open(&url, 1).await);
    assert!(message.contains("run `shortlink migrate`"), "{message}");
    // An empty file is an empty database.
    std::fs::write(directory.path().join("a.db"), "").expect("room");
    let message = refused(SqliteStore::open(&url, 1).await);
    assert!(message.contains("run `shortlink migrate`"), "{message}");
    assert_eq!(
        SqliteStore::migrate(&url, &KEY)
            .await
            .expect("an empty file"),
        2
    );
    assert_eq!(
        SqliteStore::migrate(&url, &KEY)
            .await
            .expect("nothing to do"),
        0
    );
    let store = SqliteStore::open(&url, 1).await.expect("a good file");
    store.close().await;
}
