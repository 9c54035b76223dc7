//! Tests of PostgreSQL only, and the server that all tests of this program share.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions};
use tokio_util::sync::CancellationToken;

use crate::clock::ManualClock;
use crate::core::codes::numbering::CodeKey;
use crate::core::link::tests::{link, moment};
use crate::jobs::{Outcome, Run};
use crate::service::retention::{Retention, RetentionPeriods};
use crate::service::visits::VisitCounters;
use crate::store::sql::relaxed;
use crate::store::tests::visits::{NOW, keep, visit};
use crate::store::tests::{Fixture, KEY, REVOKED_AT, code, codes, create, options};
use crate::store::{Scheme, migrate, open};
use crate::testing::{changed_by, claims, eventually};

/// A server in a temporary directory. It ends when its standard input does, which is when this
/// process ends.
struct Server {
    directory: String,
    _process: Child,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/test-postgres");
    let mut child = Command::new(script)
        .arg("scratch")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("scripts/test-postgres");
    let mut directory = String::new();
    BufReader::new(child.stdout.take().expect("a pipe"))
        .read_line(&mut directory)
        .expect("text");
    assert!(
        !directory.is_empty(),
        "PostgreSQL does not start: see above"
    );
    Server {
        directory: directory.trim_end().to_owned(),
        _process: child,
    }
});

fn url(database: &str) -> String {
    let socket = SERVER.directory.replace('/', "%2F");
    format!("postgres://shortlink@{socket}/{database}")
}

/// Opens a session without a pool.
pub(crate) async fn connect(url: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).expect("a URL");
    options.connect().await.expect("a running server")
}

async fn execute(url: &str, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&mut connect(url).await)
        .await
        .expect("a good statement");
}

/// Makes an empty database, and returns its URL.
pub(crate) async fn new_database() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
    execute(&url("postgres"), format!("CREATE DATABASE {name}")).await;
    url(&name)
}

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
        let pool = super::session::pool(&fixture.options);
        let connect = super::session::options(&fixture.options).expect("a URL");
        let pool = pool.connect_with(connect).await.expect("a server");
        let setting: String = sqlx::query_scalar("SELECT current_setting('synchronous_commit')")
            .fetch_one(&pool)
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
    let first = one.waiting(Timestamp::MAX).await.expect("a store");
    assert_eq!(codes(&first.links), ["a"]);
    create(&other, link("b")).await;
    let second = other.waiting(Timestamp::MAX).await.expect("a store");
    assert!(second.receipt.0.is_empty(), "it is not its turn");
    one.settle(vec![first.receipt], now).await.expect("a store");

    // A process that can't publish what it has read does not block others, and keeps trying.
    let first = one.waiting(Timestamp::MAX).await.expect("a store");
    let again = one.waiting(Timestamp::MAX).await.expect("a store");
    assert_eq!(first, again);
    assert_eq!(codes(&again.links), ["b"]);
    let taken_over = async || {
        let waiting = other.waiting(Timestamp::MAX).await.expect("a store");
        codes(&waiting.links) == ["b"]
    };
    eventually("another takes over", taken_over).await;
    one.settle(vec![again.receipt], now).await.expect("a store");
    assert_eq!(
        one.count_waiting(Timestamp::MAX, 9).await.expect("a store"),
        0
    );

    // So does one that is gone.
    one.close().await;
    create(&other, link("c")).await;
    eventually("another has the lease", async || {
        let waiting = other.waiting(Timestamp::MAX).await.expect("a store");
        codes(&waiting.links) == ["c"]
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
    store.waiting(Timestamp::MAX).await.expect("a store");
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
            store.waiting(Timestamp::MAX).await.is_ok()
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
    let revoke = || Box::new(|link: crate::core::link::Link| link.revoke(moment(REVOKED_AT)));
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

#[tokio::test]
async fn a_day_of_visits_that_is_in_use_is_dropped_later_and_counts_before() {
    let mut fixture = Fixture::new(Scheme::Postgres).await;
    fixture.options.lock_timeout = Duration::from_millis(400);
    fixture.store = fixture.open().await;
    let visits = (0..3).map(|n| visit(n, "old", "2026-05-20T12:00:00Z"));
    keep(&fixture.store, visits.collect()).await;
    let clock = Arc::new(ManualClock::at(NOW));
    let counters = Arc::new(VisitCounters::default());
    let week = Some(SignedDuration::from_hours(24 * 7));
    let periods = RetentionPeriods {
        visits: week,
        minutes: week,
        hours: week,
    };
    let (store, counted) = (Arc::clone(&fixture.store), Arc::clone(&counters));
    let retention = Retention::new(store, Arc::clone(&clock) as _, counted, periods);
    let mut run = Run::new(retention, &claims(&fixture.store, &clock, "one"));
    let mut holder = connect(fixture.options.url.expose_secret()).await;
    sqlx::raw_sql("BEGIN; SELECT 1 FROM visits_20260520")
        .execute(&mut holder)
        .await
        .expect("a day with a table");
    let shutdown = CancellationToken::new();
    let mut finish = async || {
        let begun = Instant::now();
        let outcome = run.finish(Duration::ZERO, &shutdown, &mut |_| {}).await;
        assert_eq!(outcome.expect("a store"), Outcome::Done);
        begun.elapsed()
    };
    // The attempts wait longer and longer, but no longer than the session does.
    for wait_ms in [100, 200, 400, 400, 400, 400, 400, 400] {
        let took = finish().await;
        assert!(took >= Duration::from_millis(wait_ms), "{took:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        for counts in ["visit_domain_minutes", "visit_hours", "visit_sketches"] {
            assert_eq!(fixture.count(counts).await, 0, "{counts}");
        }
        assert_eq!(fixture.count("visits").await, 3);
    }
    assert_eq!(counters.forgotten.load(Ordering::Relaxed), 0);
    drop(holder);
    // The server ends the holder's transaction soon after its connection is closed.
    while counters.forgotten.load(Ordering::Relaxed) == 0 {
        finish().await;
    }
    assert_eq!(counters.forgotten.load(Ordering::Relaxed), 3);
    assert_eq!(fixture.count("visits").await, 0);
}
