//! The behaviour of PostgreSQL only.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::revised::Revised;
use shortlink_core::testing::{changed_by, eventually, link, moment};
use shortlink_core::trace::{Sampling, Trace, within};

use crate::sql::{relaxed, sql};
use crate::testing::{
    Fixture, KEY, REVOKED_AT, code, codes, connect, create, execute, new_database, options,
};
use crate::testing::{count_waiting, settle, take_waiting};
use crate::{KnownServers, Scheme, migrate, open, server};

/// Ends all other sessions of a database, as a server that restarts does.
async fn end_sessions(url: &str) {
    let statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid()";
    execute(url, statement.to_owned()).await;
}

#[tokio::test]
async fn processes_that_migrate_at_once_do_it_once_with_one_key() {
    let options = options(&new_database().await);
    let refused = open(&options).await.err().expect("an empty database");
    assert!(refused.to_string().contains("run `shortlink migrate`"));
    let migrations = (0..5).map(|number| {
        let options = &options;
        async move { migrate(options, &CodeKey::new([number; 32])).await }
    });
    let migrations = futures_util::future::join_all(migrations).await;
    let mut applied: Vec<usize> = migrations
        .into_iter()
        .map(|applied| applied.expect("a database"))
        .collect();
    applied.sort_unstable();
    assert_eq!(applied[..4], [0; 4]);
    assert!(applied[4] > 0);
    let key = open(&options).await.expect("a good database").code_key();
    assert_eq!(migrate(&options, &KEY).await.expect("nothing to do"), 0);
    let store = open(&options).await.expect("a good database");
    assert!(store.code_key() == key);
}

#[tokio::test]
async fn every_statement_of_a_sampled_request_names_it() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let trace = Trace::random(Sampling { one_in: 1 });
    let done = fixture.store.run_tx("note statements", (), |db, ()| {
        Box::pin(async move {
            let made = "CREATE TABLE noted AS SELECT current_query() AS statement";
            db.run_raw(made.to_owned()).await?;
            let more = sql!("INSERT INTO noted SELECT current_query()");
            db.run(more, &[]).await
        })
    });
    within(trace, done).await.expect("a working store");
    let named = format!("noted WHERE statement LIKE '%/*traceparent=''{trace}''*/'");
    assert_eq!(fixture.count(&named).await, 2);
}

#[tokio::test]
async fn a_key_that_was_lost_is_not_replaced() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    create(&fixture.store, link("abc")).await;
    let url = fixture.options.url.expose_secret();
    execute(url, "DELETE FROM settings".to_owned()).await;
    migrate(&fixture.options, &KEY)
        .await
        .expect("nothing to do");
    let refused = open(&fixture.options).await.err().expect("no key");
    assert!(refused.to_string().contains("code key"), "{refused}");
}

#[tokio::test]
async fn what_is_acknowledged_is_durable_whatever_the_default_is() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let url = fixture.options.url.expose_secret();
    let database = url.rsplit('/').next().expect("a database");
    for (default, expected) in [("off", "on"), ("remote_apply", "remote_apply")] {
        execute(
            url,
            format!("ALTER DATABASE {database} SET synchronous_commit = {default}"),
        )
        .await;
        let servers = super::session::servers(&fixture.options).expect("a URL");
        let pool = super::pool::Pool::new(servers, &fixture.options);
        let mut session = pool.acquire().await.expect("a server");
        let setting: String = sqlx::query_scalar("SELECT current_setting('synchronous_commit')")
            .fetch_one(session.connection().expect("a session"))
            .await
            .expect("a server");
        assert_eq!(setting, expected);
    }
}

#[tokio::test]
async fn what_need_not_be_on_the_disk_is_one_statement() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let mut session = connect(fixture.options.url.expose_secret()).await;
    let statement = concat!(
        "SELECT current_setting('synchronous_commit') FROM ",
        relaxed!()
    );
    let then = "SELECT current_setting('synchronous_commit')";
    for (statement, expected) in [(statement, "off"), (then, "on")] {
        let setting: String = sqlx::query_scalar(statement)
            .fetch_one(&mut session)
            .await
            .expect("a server");
        assert_eq!(setting, expected);
    }
}

#[tokio::test]
async fn one_store_delivers_the_outbox_and_another_takes_over() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let (one, other) = (&fixture.store, fixture.open().await);
    let now = moment(REVOKED_AT);
    create(one, link("a")).await;
    let first = take_waiting(one).await.expect("its turn");
    assert_eq!(codes(&first.links), ["a"]);
    create(&other, link("b")).await;
    assert_eq!(take_waiting(&other).await, None);
    settle(one, vec![first.receipt], now).await;

    // A process that can't publish what it has read does not block others, and keeps trying.
    let first = take_waiting(one).await.expect("its turn");
    let again = take_waiting(one).await.expect("it tries again");
    assert_eq!(first, again);
    assert_eq!(codes(&again.links), ["b"]);
    let taken_over = async || {
        let waiting = take_waiting(&other).await;
        waiting.is_some_and(|waiting| codes(&waiting.links) == ["b"])
    };
    eventually("another takes over", taken_over).await;
    settle(one, vec![again.receipt], now).await;
    assert_eq!(count_waiting(one, 9).await, 0);

    // So does one that is gone.
    one.close().await;
    create(&other, link("c")).await;
    eventually("another has the lease", async || {
        let waiting = take_waiting(&other).await;
        waiting.is_some_and(|waiting| codes(&waiting.links) == ["c"])
    })
    .await;
}

#[tokio::test]
async fn stores_take_different_codes_out_of_the_pool() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let other = fixture.open().await;
    let made: Vec<_> = (0..500)
        .map(|number| code(&format!("c{number:03}")))
        .collect();
    let filled = fixture.store.fill_pool(made).await;
    assert_eq!(filled.expect("a store"), 500);
    let takers: Vec<_> = (0..20)
        .map(|turn| {
            let store = Arc::clone([&fixture.store, &other][turn % 2]);
            tokio::spawn(async move { store.take_pooled(4, 25).await })
        })
        .collect();
    let mut taken = Vec::new();
    for taker in takers {
        taken.extend(taker.await.expect("no panic").expect("a store"));
    }
    taken.sort_unstable_by_key(ToString::to_string);
    taken.dedup();
    assert_eq!(taken.len(), 500);
}

#[tokio::test]
async fn a_store_outlives_its_sessions() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let store = &*fixture.store;
    create(store, link("abc")).await;
    assert!(store.take_turn().await.expect("a store"));
    for round in 0..3 {
        end_sessions(fixture.options.url.expose_secret()).await;
        // Sessions that were lost may be found out one by one, each by an error.
        eventually("it works again", async || {
            store
                .find_link(&code("abc"))
                .await
                .is_ok_and(|found| found == Some(link("abc")))
        })
        .await;
        eventually("the outbox can be read", async || {
            store.take_turn().await.is_ok() && store.places().await.is_ok()
        })
        .await;
        eventually("links can be made", async || {
            let made = store.create_links(vec![link(&format!("r{round}"))]).await;
            made.is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn a_lock_is_waited_for_within_bounds() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    create(&fixture.store, link("abc")).await;
    let mut impatient = fixture.options.clone();
    impatient.lock_timeout = Duration::from_millis(50);
    let impatient = open(&impatient).await.expect("a good database");
    let mut holder = connect(fixture.options.url.expose_secret()).await;
    sqlx::raw_sql("BEGIN; SELECT 1 FROM links FOR UPDATE")
        .execute(&mut holder)
        .await
        .expect("a link");
    let revoke = || Box::new(|link: shortlink_core::link::Link| link.revoke(moment(REVOKED_AT)));
    let refused = impatient
        .edit_link(&code("abc"), &changed_by("key"), revoke())
        .await;
    assert!(refused.is_err());
    // Readers do not wait, and the session can be reused.
    let found = impatient.find_link(&code("abc")).await.expect("a store");
    assert_eq!(found, Some(link("abc")));
    drop(holder);
    eventually("the lock is free", async || {
        let edited = impatient
            .edit_link(&code("abc"), &changed_by("key"), revoke())
            .await;
        edited.is_ok_and(|edited| edited.is_some())
    })
    .await;
}

/// The URL of the fixture's database on several hosts, of which the one at `place` is its server and the others are
/// `others`.
fn with_others(fixture: &Fixture, others: &[String], place: usize) -> String {
    let url = fixture.options.url.expose_secret();
    let (user, rest) = url.split_once('@').expect("a user");
    let (host, database) = rest.split_once('/').expect("a database");
    let mut hosts: Vec<&str> = others.iter().map(String::as_str).collect();
    hosts.insert(place, host);
    let hosts = hosts.join(",");
    format!("{user}@{hosts}/{database}?target_session_attrs=read-write")
}

#[tokio::test]
async fn the_primary_is_found_among_servers_that_refuse_or_hang() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let hung = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let hung = format!("127.0.0.1:{}", hung.local_addr().expect("a port").port());
    let closed = "127.0.0.1:1".to_owned();
    for place in 0..3 {
        let mut options = fixture.options.clone();
        options.url = with_others(&fixture, &[hung.clone(), closed.clone()], place).into();
        // Far shorter than the default time limit of a TCP connection, and than that of the fixture.
        options.acquire_timeout = Duration::from_secs(3);
        options.known_servers = KnownServers::default();
        assert_eq!(migrate(&options, &KEY).await.expect("a server"), 0);
        let store = open(&options).await.expect("a server");
        create(&store, link(&format!("c{place}"))).await;
        assert!(store.take_turn().await.is_ok());
        store.close().await;
    }
}

#[tokio::test]
async fn sessions_are_opened_with_the_known_primary_first() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    other.set_nonblocking(true).expect("a socket");
    let address = format!("127.0.0.1:{}", other.local_addr().expect("a port").port());
    let mut options = fixture.options.clone();
    options.url = with_others(&fixture, &[address], 1).into();
    options.known_servers = KnownServers::default();
    let servers = super::session::servers(&options).expect("a URL");
    let deadline = || tokio::time::Instant::now() + Duration::from_secs(20);
    let first = servers.connect(deadline()).await.expect("a server");
    other.accept().expect("the other server was tried, too");
    let second = servers.connect(deadline()).await.expect("a server");
    let untried = other.accept().expect_err("only the primary was tried");
    assert_eq!(untried.kind(), std::io::ErrorKind::WouldBlock);
    assert!(!servers.is_former(&first) && !servers.is_former(&second));

    servers.doubt_of(&first);
    servers.connect(deadline()).await.expect("a server");
    other.accept().expect("all servers are tried after a fault");
}

#[tokio::test]
async fn the_fault_of_each_server_is_named_without_the_password() {
    let mut options = options("postgres://me:secret@127.0.0.1:1,127.0.0.1:2/links");
    options.acquire_timeout = Duration::from_millis(300);
    let refused = open(&options).await.err().expect("no server");
    let mut said = refused.to_string();
    let mut cause: &dyn std::error::Error = &refused;
    while let Some(source) = cause.source() {
        said.push_str(&source.to_string());
        cause = source;
    }
    for words in [
        "database \"links\" at 127.0.0.1:1, 127.0.0.1:2",
        "none of 2 servers is a usable primary",
        "127.0.0.1:2: error communicating with database: Connection refused",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("secret"), "{said}");
}

#[tokio::test]
async fn a_read_only_database_is_read_and_not_migrated() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    create(&fixture.store, link("abc")).await;
    let url = fixture.options.url.expose_secret();
    let database = url.rsplit('/').next().expect("a database");
    let read_only = format!("ALTER DATABASE {database} SET default_transaction_read_only = on");
    execute(url, read_only).await;
    let refused = migrate(&fixture.options, &KEY)
        .await
        .expect_err("a read-only database");
    assert!(
        refused
            .to_string()
            .contains("default_transaction_read_only"),
        "{refused}"
    );
    let store = fixture.open().await;
    let found = store.find_link(&code("abc")).await.expect("a store");
    assert_eq!(found, Some(link("abc")));
    assert!(store.create_links(vec![link("new")]).await.is_err());
    let state = server(&fixture.options)
        .await
        .expect("a server")
        .expect("PostgreSQL");
    assert!(state.is_read_only);
}

#[tokio::test]
async fn a_store_has_no_more_sessions_than_allowed_and_none_after_it_is_closed() {
    let mut fixture = Fixture::new(Scheme::Postgres).await;
    fixture.options.max_connections = 2;
    fixture.store.close().await;
    let store = fixture.open().await;
    let slow = (0..6).map(|_| {
        store.read("wait", (), |db, ()| {
            Box::pin(async move { db.run_raw("SELECT pg_sleep(0.05)".to_owned()).await })
        })
    });
    for outcome in futures_util::future::join_all(slow).await {
        outcome.expect("a session that becomes free");
    }
    let sessions =
        "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(fixture.count(sessions).await, 2);
    store.close().await;
    eventually("the sessions end", async || {
        fixture.count(sessions).await == 0
    })
    .await;
    let closed = store.find_link(&code("abc")).await;
    assert!(closed.is_err(), "{closed:?}");
}
