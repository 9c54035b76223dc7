//! A database that takes no changes, and connections that another store of the same database has.

use std::time::Duration;

use secrecy::ExposeSecret;

use super::*;
use crate::{Engine, StoreOptions, open};

in_every_store! {
    a_database_that_takes_no_changes_is_noticed_and_is_not_written_to_by_each_who_asks,
    reads_of_one_store_take_no_connection_of_another,
}

async fn a_database_that_takes_no_changes_is_noticed_and_is_not_written_to_by_each_who_asks(
    fixture: Fixture,
) {
    assert!(fixture.store.check_writable().await.is_ok());
    let url = fixture.options.url.expose_secret();
    let is_sqlite = matches!(fixture.store.engine, Engine::Sqlite(_));
    let lock = if is_sqlite {
        Some(lock(url).await)
    } else {
        // As after a failover: the server takes no changes in new sessions.
        let name = url.rsplit('/').next().expect("a database");
        let read_only = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
        fixture.execute(&read_only).await;
        None
    };
    // An attempt of some seconds ago is good enough, and costs nothing.
    assert!(fixture.store.check_writable().await.is_ok());
    let other = fixture.open().await;
    for _ in 0..100 {
        assert!(other.check_writable().await.is_err());
    }
    assert!(other.find_link(&code("abc")).await.is_ok());
    drop(lock);
    if is_sqlite {
        let third = fixture.open().await;
        let written = third.check_writable().await;
        assert!(written.is_ok(), "{written:?}");
    }
}

async fn reads_of_one_store_take_no_connection_of_another(fixture: Fixture) {
    let options = StoreOptions {
        max_connections: 2,
        acquire_timeout: Duration::from_millis(500),
        ..fixture.options.clone()
    };
    let crowded = open(&options).await.expect("a migrated database");
    let mut reads = Vec::new();
    for _ in 0..24 {
        let crowded = Arc::clone(&crowded);
        reads.push(tokio::spawn(async move {
            let endless = crowded.read("read for ever", (), |db, ()| {
                Box::pin(async move {
                    let _taken = db;
                    std::future::pending::<Result<(), sqlx::Error>>().await
                })
            });
            endless.await
        }));
    }
    // All but those that have a connection are refused.
    let is_refused = |read: &tokio::task::JoinHandle<_>| read.is_finished();
    shortlink_core::testing::eventually("connections are taken", async || {
        reads.iter().filter(|read| is_refused(read)).count() == 22
    })
    .await;
    assert!(crowded.find_link(&code("abc")).await.is_err());
    let begun = std::time::Instant::now();
    for _ in 0..100 {
        let found = fixture.store.find_link(&code("abc")).await;
        assert_eq!(found.expect("a connection"), None);
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    for read in reads {
        read.abort();
    }
}
