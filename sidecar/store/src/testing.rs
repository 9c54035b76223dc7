//! Tools for tests of this crate and of those that depend on it: stores on both engines, and faults in their databases.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use shortlink_core::bulk::{BulkAction, NewBulkJob, Selection};
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::link::{Change, Edit, Link};
use shortlink_core::ports::{
    Identity, KeptVisits, PublishedCampaign, Receipt, RequestDigest, Settled, Waiting,
};
use shortlink_core::revised::Revised;
use shortlink_core::testing::{changed_by, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::{Agent, Agents, Device, DeviceKind, Versioned};
use shortlink_core::visit::class::{Class, Classification, Words};
use shortlink_core::visit::place::Place;
use shortlink_core::visit::visitor::VisitorId;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use vocabulary::Code;
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitId, VisitMethod};

use crate::creation::Creation;
use crate::sqlite::SqliteStore;
use crate::{BulkCreated, KnownServers, Scheme, Store, StoreOptions, VisitsOptions, migrate, open};

/// A migrated store; its files go with the value.
pub struct TemporaryStore {
    /// The store.
    pub store: Arc<Store>,
    /// The URL of its database.
    pub url: String,
    _directory: tempfile::TempDir,
}

impl TemporaryStore {
    /// A migrated store in a new directory.
    pub async fn new() -> Self {
        Self::open(false).await
    }

    /// As [`Self::new`], but links are found by their target.
    pub async fn finding_targets() -> Self {
        let temporary = Self::open(true).await;
        let store = &temporary.store;
        while store.fill_targets(1).await.expect("a working store") {}
        temporary
    }

    async fn open(finds_targets: bool) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = format!("sqlite:{}/links.db", directory.path().display());
        let key = CodeKey::new([9; 32]);
        SqliteStore::migrate(&url, &key)
            .await
            .expect("an empty place");
        let store = SqliteStore::open(&url, 2).await.expect("a good database");
        Self {
            store: Arc::new(Store {
                creation: Creation::new(finds_targets),
                ..store
            }),
            url,
            _directory: directory,
        }
    }
}

/// Adds a change of each link of the first revision to the SQLite database of a URL, which restricts. No confirmation
/// settles it; earlier versions wrote such changes.
pub async fn add_endless_changes(url: &str) {
    let mut connection = SqliteConnection::connect(url)
        .await
        .expect("a good database");
    let sql = "INSERT INTO changes (link_id, revision, restricts, enqueued_at) \
               SELECT id, 1, 1, 0 FROM links WHERE revision = 1";
    let added = sqlx::query(sql).execute(&mut connection).await;
    added.expect("a good database");
}

/// Lets claims of jobs fail in the SQLite database of a URL, or succeed again.
pub async fn break_claims(url: &str, is_broken: bool) {
    let mut connection = SqliteConnection::connect(url)
        .await
        .expect("a good database");
    let change = if is_broken {
        "CREATE TRIGGER broken BEFORE INSERT ON settings WHEN NEW.name LIKE 'claim:%' \
         BEGIN SELECT RAISE(ABORT, 'broken'); END"
    } else {
        "DROP TRIGGER broken"
    };
    let changed = sqlx::query(change).execute(&mut connection).await;
    changed.expect("a good database");
}

/// Locks the SQLite database of a URL for all other writers, until the result is dropped.
pub async fn lock(url: &str) -> impl Sized + use<> {
    let mut connection = SqliteConnection::connect(url)
        .await
        .expect("a good database");
    let locked = sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut connection);
    locked.await.expect("a database without a writer");
    connection
}

/// A server in a temporary directory. It ends when its standard input does, which is when this
/// process ends.
struct Server {
    /// Its directory, or its port.
    place: String,
    _process: Child,
}

impl Server {
    /// Starts a script, which prints the place of its server.
    fn start(script: &str, arguments: &[&str]) -> Self {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut process = Command::new(format!("{root}/{script}"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect(script);
        let mut place = String::new();
        BufReader::new(process.stdout.take().expect("a pipe"))
            .read_line(&mut place)
            .expect("text");
        assert!(!place.is_empty(), "{script} starts no server: see above");
        Self {
            place: place.trim_end().to_owned(),
            _process: process,
        }
    }
}

static POSTGRES: LazyLock<Server> =
    LazyLock::new(|| Server::start("scripts/test-postgres", &["scratch"]));

fn url(database: &str) -> String {
    let socket = POSTGRES.place.replace('/', "%2F");
    format!("postgres://shortlink@{socket}/{database}")
}

/// Opens a session that is not of a store.
pub async fn connect(url: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).expect("a URL");
    options.connect().await.expect("a running server")
}

/// Executes a statement in the database of a URL.
pub async fn execute(url: &str, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&mut connect(url).await)
        .await
        .expect("a good statement");
}

/// Makes an empty database, and returns its URL.
pub async fn new_database() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
    execute(&url("postgres"), format!("CREATE DATABASE {name}")).await;
    url(&name)
}

/// Opens a transaction that uses a table of PostgreSQL. It ends soon after the result is dropped.
pub async fn hold(url: &str, table: &str) -> impl Sized + use<> {
    let mut session = connect(url).await;
    let statement = AssertSqlSafe(format!("BEGIN; SELECT 1 FROM {table}"));
    let held = sqlx::raw_sql(statement).execute(&mut session).await;
    held.expect("a table");
    session
}

/// Two, since one executes one statement at a time, and tests would wait for each other.
static CLICKHOUSE: [LazyLock<Server>; 2] = [const { LazyLock::new(start_clickhouse) }; 2];

fn start_clickhouse() -> Server {
    let directory = tempfile::tempdir().expect("a temporary directory").keep();
    let directory = directory.to_str().expect("text");
    Server::start("scripts/clickhouse", &[directory, "0", "watch"])
}

/// The URL of a new database of ClickHouse.
pub fn new_clickhouse() -> SecretString {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let port = &CLICKHOUSE[number % CLICKHOUSE.len()].place;
    format!("clickhouse://127.0.0.1:{port}/test{number}").into()
}

/// A store of its own.
pub struct Fixture {
    /// The store.
    pub store: Arc<Store>,
    /// Its options.
    pub options: StoreOptions,
    /// The directory of its files.
    pub directory: tempfile::TempDir,
}

impl Fixture {
    /// A migrated store on an engine.
    pub async fn new(scheme: Scheme) -> Self {
        Self::with_visits(scheme, None).await
    }

    /// As [`Self::new`], with visits in ClickHouse.
    pub async fn with_clickhouse(scheme: Scheme) -> Self {
        let visits = VisitsOptions {
            url: new_clickhouse(),
            retention_days: None,
        };
        Self::with_visits(scheme, Some(visits)).await
    }

    async fn with_visits(scheme: Scheme, visits: Option<VisitsOptions>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = match scheme {
            Scheme::Sqlite => format!("sqlite:{}/made/links.db", directory.path().display()),
            Scheme::Postgres => new_database().await,
        };
        let options = StoreOptions {
            visits,
            ..options(&url)
        };
        migrate(&options, &KEY).await.expect("an empty place");
        Self {
            store: open(&options).await.expect("a migrated database"),
            options,
            directory,
        }
    }

    /// Another store on the same database, as another process has it.
    pub async fn open(&self) -> Arc<Store> {
        open(&self.options).await.expect("a migrated database")
    }

    /// As [`Self::open`] for a process that finds links by their target.
    pub async fn finding_targets(&self) -> Arc<Store> {
        let options = StoreOptions {
            find_by_target: true,
            ..self.options.clone()
        };
        open(&options).await.expect("a migrated database")
    }

    /// Does something in the database that no store does.
    pub async fn execute(&self, statement: &str) {
        let url = self.options.url.expose_secret();
        let statement = AssertSqlSafe(statement.to_owned());
        match Scheme::of(url).expect("a scheme") {
            Scheme::Sqlite => {
                let mut connection = self.sqlite().await;
                let done = sqlx::raw_sql(statement).execute(&mut connection).await;
                done.expect("a good statement");
                connection.close().await.expect("an open connection");
            }
            Scheme::Postgres => {
                let mut connection = connect(url).await;
                let done = sqlx::raw_sql(statement).execute(&mut connection).await;
                done.expect("a good statement");
            }
        }
    }

    /// Counts rows of a table in the ClickHouse of its visits.
    pub fn count_in_clickhouse(&self, rows: &str) -> u64 {
        let answer = self.execute_in_clickhouse(&format!("SELECT count() FROM {rows}"));
        let (_, count) = answer.rsplit_once("\r\n").expect("a body");
        count.trim().parse().expect("a number")
    }

    /// As [`Self::execute`] in the ClickHouse of its visits, with changes of stored rows done at the end; returns the answer.
    pub fn execute_in_clickhouse(&self, statement: &str) -> String {
        let visits = self.options.visits.as_ref().expect("ClickHouse");
        let place = visits.url.expose_secret();
        let place = place.strip_prefix("clickhouse://").expect("its scheme");
        let (server, database) = place.split_once('/').expect("a database");
        let mut connection = TcpStream::connect(server).expect("a running server");
        write!(
            connection,
            "POST /?database={database}&mutations_sync=1 HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{statement}",
            statement.len()
        )
        .expect("a connection");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }

    /// The number of rows of a table, where it is: visits may be in ClickHouse.
    pub async fn count(&self, table: &str) -> i64 {
        if let (Some(sink), "visits") = (&self.store.sink, table) {
            let all = sink.count_all().await.expect("a running server");
            return all.cast_signed();
        }
        let url = self.options.url.expose_secret();
        let statement = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        let count = match Scheme::of(url).expect("a scheme") {
            Scheme::Sqlite => {
                let mut connection = self.sqlite().await;
                let count = sqlx::query_scalar(statement).fetch_one(&mut connection);
                count.await
            }
            Scheme::Postgres => {
                let count = sqlx::query_scalar(statement);
                count.fetch_one(&mut connect(url).await).await
            }
        };
        count.expect("a table")
    }

    async fn sqlite(&self) -> SqliteConnection {
        let url = self.options.url.expose_secret();
        let options = SqliteConnectOptions::from_str(url).expect("a URL");
        options.connect().await.expect("a migrated database")
    }

    /// The codes that wait, in whatever order.
    pub async fn waiting(&self) -> Vec<String> {
        codes(&waiting(&self.store).await.links)
    }
}

/// A place behind all others.
pub const END: u64 = i64::MAX as u64;

/// All that waits, changes first.
pub async fn waiting(store: &Store) -> Waiting {
    let mut waiting = Waiting::default();
    for some in [
        store.waiting_changes(0, END, true).await,
        store.waiting_changes(0, END, false).await,
        store.waiting_links(Timestamp::MAX, Timestamp::MAX).await,
    ] {
        let some = some.expect("a working store");
        waiting.links.extend(some.links);
        waiting.campaigns.extend(some.campaigns);
        waiting.receipt.0.extend(some.receipt.0);
    }
    waiting
}

/// All that waits, if it is this store's turn to deliver.
pub async fn take_waiting(store: &Store) -> Option<Waiting> {
    if !store.take_turn().await.expect("a working store") {
        return None;
    }
    let waiting = waiting(store).await;
    store.note_delivery(&waiting.receipt).await;
    Some(waiting)
}

/// Counts pending rows.
pub async fn count_waiting(store: &Store, most: u32) -> u32 {
    let overdue = store.overdue(Timestamp::MAX, Timestamp::MAX, most).await;
    overdue.expect("a working store").rows
}

/// Settles what was published to a data set that no store has adopted.
pub async fn settle(store: &Store, receipts: Vec<Receipt>, now: Timestamp) {
    let settled = Settled {
        receipts,
        ..Settled::default()
    };
    assert!(store.settle(settled, now).await.expect("a working store"));
}

/// As [`settle`] for campaigns.
pub async fn settle_campaigns(store: &Store, campaigns: Vec<PublishedCampaign>, now: Timestamp) {
    let settled = Settled {
        campaigns,
        ..Settled::default()
    };
    assert!(store.settle(settled, now).await.expect("a working store"));
}

/// Settings that leave time to a slow machine.
pub fn options(url: &str) -> StoreOptions {
    StoreOptions {
        url: url.into(),
        known_servers: KnownServers::default(),
        replica: None,
        max_connections: 4,
        acquire_timeout: Duration::from_secs(20),
        statement_timeout: Duration::from_secs(20),
        lock_timeout: Duration::from_secs(20),
        find_by_target: false,
        visits: None,
    }
}

/// The code key of these stores.
pub const KEY: CodeKey = CodeKey::new([4; 32]);

/// The identity of a request without a window.
pub fn identity(number: u8) -> Identity {
    Identity {
        digest: RequestDigest([number; 32]),
        within: None,
    }
}

/// The codes of links.
pub fn codes(links: &[Link]) -> Vec<String> {
    links.iter().map(|link| link.code.to_string()).collect()
}

/// Parses a code.
pub fn code(text: &str) -> Code {
    text.parse().expect("a code")
}

/// The moment at which [`revoke`] revokes links.
pub const REVOKED_AT: &str = "2026-02-01T00:00:00Z";

/// Keeps a link; `None` when its code is taken.
pub async fn try_create(store: &Store, link: Link) -> Option<Receipt> {
    let created = store.create_links(vec![link]).await;
    let created = created.expect("a working store");
    created.taken.is_empty().then_some(created.receipt)
}

/// Stores a link, whose code is free.
pub async fn create(store: &Store, link: Link) -> Receipt {
    try_create(store, link).await.expect("a free code")
}

/// Revokes a link; `None` if it does not exist.
pub async fn revoke(store: &Store, text: &str) -> Option<Edit> {
    let editor = Box::new(|link: Link| link.revoke(moment(REVOKED_AT)));
    let edited = store
        .edit_link(&code(text), &changed_by("key"), editor)
        .await;
    edited.expect("a working store").map(|edited| edited.edit)
}

/// The moment at which [`keep`] stores visits.
pub const NOW: &str = "2026-06-01T12:30:00Z";

/// A visit of a person.
pub fn visit(sequence: u64, code: &str, at: &str) -> Visit {
    let versioned = |name: &str| {
        Some(Versioned {
            name: name.to_owned(),
            version: Some("17.2".to_owned()),
        })
    };
    Visit {
        id: VisitId {
            // Larger than the largest number that databases have.
            origin: u64::MAX - 1,
            sequence,
        },
        at: moment(at),
        code: code.to_owned(),
        host: "s.example.com".to_owned(),
        client: Some(IpAddr::from([192, 0, 2, 0])),
        visitor: Some(VisitorId([7; 16])),
        user_agent: "Mozilla/5.0 (iPhone)".to_owned(),
        referrer: String::new(),
        referrer_host: None,
        language: Some("de".to_owned()),
        method: VisitMethod::Get,
        status: 302,
        purpose: String::new(),
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: None,
        place: Place {
            country: Some("AT".to_owned()),
            city: Some("Wien".to_owned()),
            ..Place::default()
        },
        agent: Arc::new(Agent {
            browser: versioned("Mobile Safari"),
            os: versioned("iOS"),
            device: Device {
                kind: DeviceKind::Phone,
                ..Device::default()
            },
            app: Some("WeChat"),
            listed: None,
            words: Words::default(),
        }),
        classification: Classification {
            class: Class::Human,
            reason: "browser",
            ruleset: 1,
        },
    }
}

/// Stores visits.
pub async fn keep(store: &Store, visits: Vec<Visit>) -> KeptVisits {
    let kept = store.keep_visits(visits, moment(NOW)).await;
    kept.expect("a working store")
}

/// Says of a user agent what follows from its length: the newer rules.
pub struct NewRules;

impl Agents for NewRules {
    fn agent(&self, user_agent: &str) -> Arc<Agent> {
        let browser = (!user_agent.is_empty()).then(|| Versioned {
            name: format!("Browser {}", user_agent.len() % 3),
            version: Some("2".to_owned()),
        });
        Arc::new(Agent {
            browser,
            os: None,
            device: Device {
                kind: DeviceKind::of(user_agent),
                ..Device::default()
            },
            app: None,
            listed: None,
            words: Words::of(user_agent),
        })
    }
}

/// Makes each test one of SQLite and one of PostgreSQL.
#[macro_export]
macro_rules! in_every_store {
    ($($test:ident,)*) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() {
                    let scheme = $crate::Scheme::Sqlite;
                    super::$test($crate::testing::Fixture::new(scheme).await).await;
                }
            )*
        }
        mod postgres {
            $(
                #[tokio::test]
                async fn $test() {
                    let scheme = $crate::Scheme::Postgres;
                    super::$test($crate::testing::Fixture::new(scheme).await).await;
                }
            )*
        }
    };
}

/// As [`in_every_store!`], and once more on each engine with visits in ClickHouse.
#[macro_export]
macro_rules! in_every_store_of_visits {
    ($($test:ident,)*) => {
        $crate::in_every_store! { $($test,)* }
        mod clickhouse {
            mod beside_sqlite {
                $(
                    #[tokio::test]
                    async fn $test() {
                        let scheme = $crate::Scheme::Sqlite;
                        let fixture = $crate::testing::Fixture::with_clickhouse(scheme).await;
                        super::super::$test(fixture).await;
                    }
                )*
            }
            mod beside_postgres {
                $(
                    #[tokio::test]
                    async fn $test() {
                        let scheme = $crate::Scheme::Postgres;
                        let fixture = $crate::testing::Fixture::with_clickhouse(scheme).await;
                        super::super::$test(fixture).await;
                    }
                )*
            }
        }
    };
}

/// Erases the visits of links as a job does; returns the number of visits.
pub async fn erase_visits(store: &Store, codes: &[Code], now: Timestamp) -> u64 {
    let new = NewBulkJob {
        key_id: "key".to_owned(),
        action: BulkAction::Erase,
        own: None,
        selection: Selection::Codes(codes.to_vec()),
        change: Change::default(),
        is_trial: false,
        idempotency: None,
        created_at: now,
    };
    let created = store.create_bulk_job(new).await.expect("a store");
    let BulkCreated::Job(job) = created else {
        panic!("a job of another request");
    };
    while !store
        .step_bulk_job(job.id, now)
        .await
        .expect("a store")
        .is_last
    {}
    let done = store.find_bulk_job(job.id).await.expect("a store");
    done.expect("a job").erased.visits
}
