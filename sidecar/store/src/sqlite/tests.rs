use jiff::Timestamp;
use secrecy::ExposeSecret;
use shortlink_core::audit::Action;
use shortlink_core::testing::link;

use super::{OpenError, SqliteStore};
use crate::db::Statement;
use crate::sql::sql;
use crate::testing::{Fixture, KEY, create, waiting};
use crate::tests::keys::{actions, entry};
use crate::tests::listing::filters;
use crate::value::{Row, invalid};
use crate::{Scheme, Store, audit, listing};

async fn open(url: &str) -> Store {
    SqliteStore::open(url, 2)
        .await
        .expect("a migrated database")
}

#[tokio::test]
async fn the_outbox_outlives_the_process() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    create(&fixture.store, link("abc")).await;
    // As after a kill: the database's files at this moment, opened elsewhere.
    let copy = fixture.directory.path().join("copy");
    std::fs::create_dir(&copy).expect("room");
    let made = fixture.directory.path().join("made");
    for entry in std::fs::read_dir(made).expect("a directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), copy.join(entry.file_name())).expect("room");
    }
    let replayed = open(&format!("sqlite:{}/links.db", copy.display())).await;
    let waiting = waiting(&replayed).await;
    assert_eq!(waiting.links, [link("abc")]);
}

#[tokio::test]
async fn only_a_file_with_the_right_schema_is_opened() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}/a.db", directory.path().display());
    let refused = |opened: Result<Store, OpenError>| match opened {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    let message = refused(SqliteStore::open(&url, 1).await);
    assert!(message.contains("run `shortlink migrate`"), "{message}");
    // An empty file is an empty database.
    std::fs::write(directory.path().join("a.db"), "").expect("room");
    let message = refused(SqliteStore::open(&url, 1).await);
    assert!(message.contains("run `shortlink migrate`"), "{message}");
    let applied = SqliteStore::migrate(&url, &KEY).await;
    assert!(applied.expect("an empty file") > 0);
    assert_eq!(
        SqliteStore::migrate(&url, &KEY)
            .await
            .expect("nothing to do"),
        0
    );
    let store = SqliteStore::open(&url, 1).await.expect("a good file");
    store.close().await;
}

#[tokio::test]
async fn no_listing_reads_a_whole_table_or_sorts() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let store = open(fixture.options.url.expose_secret()).await;
    let mut filters = filters(Timestamp::UNIX_EPOCH);
    // Listings of no creator at all are empty, and no statement is executed.
    filters.retain(|filter| filter.created_by.as_ref().is_none_or(|ids| !ids.is_empty()));
    for filter in filters.iter().flat_map(listing::walks) {
        for position in [(i64::MAX, i64::MAX), (5, 5)] {
            let explain = |sql| Statement::new(Scheme::Sqlite, sql);
            let mut reach = explain(sql!("EXPLAIN QUERY PLAN SELECT "));
            listing::reach(&mut reach, &filter, position, 9);
            let mut statements = vec![reach];
            for until in [None, Some((3, 3))] {
                let mut page = explain(sql!("EXPLAIN QUERY PLAN SELECT code FROM "));
                listing::query(&mut page, &filter, position, until);
                statements.push(page);
            }
            for (number, statement) in statements.iter().enumerate() {
                let detail = |row: &Row| row.get("detail");
                let plan = store.all("plan", statement, &statement.values, detail);
                let plan: Vec<String> = plan.await.expect("a good statement");
                let all = plan.join("; ");
                assert!(!all.contains("SCAN"), "{filter:?}: {all}");
                assert!(!all.contains("TEMP B-TREE"), "{filter:?}: {all}");
                // The leading columns are bounded by the position and by the end of the search.
                let bounds = ["created_at<?", "(link_created_at,link_id)<(?,?)"];
                let is_bounded = bounds.iter().any(|bound| plan[0].contains(bound));
                let ends = ["created_at>?", "(link_created_at,link_id)>(?,?)"];
                let is_ended = ends.iter().any(|bound| plan[0].contains(bound));
                assert!(is_bounded && is_ended == (number == 2), "{filter:?}: {all}");
                for (value, column) in [
                    (&filter.external_id, "external_id=?"),
                    (&filter.tag, "tag=?"),
                ] {
                    // Where a search ends only what leads says.
                    if value.is_some() && number > 0 {
                        assert!(all.contains(column), "{filter:?}: {all}");
                    }
                }
                if filter.target.is_some() && filter.external_id.is_none() {
                    assert!(plan[0].contains("links_by_target (target_hash=?"), "{all}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_entry_goes_with_the_change_that_it_tells_of() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let failed = fixture.store.run_tx("fail", (), |db, ()| {
        Box::pin(async move {
            audit::append(db, &entry(Action::KeyRevoke, "x")).await?;
            Err::<(), _>(sqlx::Error::RowNotFound)
        })
    });
    assert!(failed.await.is_err());
    assert_eq!(actions(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn all_that_share_a_transaction_are_told_what_could_not_be_read() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let failed = fixture.store.run_tx("do this", (), |_db, ()| {
        Box::pin(async { Err::<(), _>(invalid("target")) })
    });
    let error = failed.await.expect_err("no row").source.to_string();
    assert!(error.contains("cannot do this"), "{error}");
    assert!(error.contains("a row has a target"), "{error}");
}
