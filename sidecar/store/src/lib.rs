//! Stores links, the outbox and API keys. Nothing outside of this module knows SQL, and only
//! [`open`] and [`migrate`] know which database is used.
#![forbid(unsafe_code)]

mod audit;
mod bulk;
mod campaigns;
mod changes;
mod claims;
mod codes;
mod conversions;
mod creation;
mod db;
mod defaults;
mod deletion;
mod digests;
mod domains;
mod external_ids;
mod history;
mod idempotency;
mod keys;
mod leases;
mod past;
mod place;
pub mod postgres;
mod quotas;
mod receipts;
pub mod sqlite;

mod lines;
mod links;
mod listing;
mod outbox;
mod rows;
mod schema;
mod search;
mod sessions;
mod shared;
mod spellings;
mod sql;
mod tags;
mod targets;
mod texts;
mod tx;
mod upkeep;
mod uploads;
mod utm_templates;
mod value;
mod visits;
mod walks;
mod webhooks;
mod writable;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use shortlink_clickhouse::ClickHouse;
use shortlink_core::boxed;
use shortlink_core::codes::numbering::{CodeKey, Numbering};

use changes::Horizon;
use creation::Creation;
use postgres::PostgresStore;
use sqlite::SqliteStore;
use writable::LastAttempt;

pub use bulk::BulkCreated;
pub use claims::Claim;
pub use leases::{CapacityWanted, NumbersWanted, PooledWanted, capacity_name, pool_name};
pub use place::VisitsError;
pub use postgres::{
    KnownServers, ReplicaOptions, ReplicaStanding, ReplicaState, ReplicaWatch, ServerState,
    check_replica_url,
};
pub use schema::SchemaError;
pub use search::Admission;
pub use shared::errors;
pub use shortlink_clickhouse::check_url as check_visits_url;
pub use targets::TargetSearch;
pub use uploads::UploadEnd;
pub use visits::AgentsPass;
pub use walks::{Found, Part, Pass, Share, Walk};
pub use webhooks::events::StoredEvent;
pub use webhooks::{Delivered, SettingsEditor, WebhookChange, WebhookChanged};

/// Address and time limits of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// URL of one of the [`Scheme`]s. Secret, since it can contain a password.
    pub url: SecretString,
    /// Knowledge of this process about the servers of the URL. Clones for the same URL share it.
    pub known_servers: KnownServers,
    /// The replica of a PostgreSQL database.
    pub replica: Option<ReplicaOptions>,
    /// Maximum number of connections. SQLite has one more, which writes; PostgreSQL has one more,
    /// which holds the lease of the outbox.
    pub max_connections: u32,
    /// Time limit for getting a free or new connection to PostgreSQL.
    pub acquire_timeout: Duration,
    /// Time limit of a statement in PostgreSQL.
    pub statement_timeout: Duration,
    /// Time limit for a statement's wait for a lock in PostgreSQL.
    pub lock_timeout: Duration,
    /// Stores the hashes of targets with new links, so that links are found by them.
    pub find_by_target: bool,
    /// The ClickHouse database of visits, if they are not in this database.
    pub visits: Option<VisitsOptions>,
}

/// The ClickHouse database that stores visits.
#[derive(Clone, Debug)]
pub struct VisitsOptions {
    /// Its URL. Secret, since it can contain a password.
    pub url: SecretString,
    /// The retention of visits in days; `None` for ever.
    pub retention_days: Option<u32>,
}

/// A kind of store, as the scheme of its URL names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// One file.
    Sqlite,
    /// A server.
    Postgres,
}

impl Scheme {
    /// The allowed schemes, for messages.
    pub const NAMES: &'static str = "sqlite:, postgres: or postgresql:";

    /// The scheme of a URL.
    pub fn of(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            _ => None,
        }
    }
}

/// The database that holds everything: names operations, and leaves statements, transactions and
/// connections to this crate. A missing item is `Ok(None)`, never an error.
pub struct Store {
    engine: Engine,
    code_key: CodeKey,
    numbering: Arc<Numbering>,
    horizon: Mutex<Horizon>,
    last_attempt: LastAttempt,
    creation: Creation,
    /// The store of visits, if that is not this database.
    sink: Option<Arc<ClickHouse>>,
    /// A batch of visits of this process has not reached the sink.
    has_unsent: AtomicBool,
    /// The sink has no ids that this database would draw once more.
    has_new_ids: AtomicBool,
}

enum Engine {
    Sqlite(SqliteStore),
    Postgres(Box<PostgresStore>),
}

impl Store {
    fn new(code_key: CodeKey, engine: impl FnOnce(Arc<Numbering>) -> Engine) -> Self {
        let numbering = Arc::new(Numbering::new(&code_key));
        Self {
            engine: engine(Arc::clone(&numbering)),
            numbering,
            code_key,
            horizon: Mutex::default(),
            last_attempt: LastAttempt::default(),
            creation: Creation::default(),
            sink: None,
            has_unsent: AtomicBool::new(false),
            has_new_ids: AtomicBool::new(false),
        }
    }

    /// The numbering of codes in this database.
    pub fn numbering(&self) -> Arc<Numbering> {
        Arc::clone(&self.numbering)
    }

    /// A secret of this database, for strategies.
    pub fn code_key(&self) -> CodeKey {
        self.code_key.clone()
    }

    /// The same store for listings, exports and statistics: they are read from the replica of the options while that is
    /// not too far behind, otherwise from the primary. Changes are made on the primary. `None` without a replica.
    ///
    /// # Errors
    /// Fails if the URL of the replica is invalid.
    pub fn for_listings(&self, options: &StoreOptions) -> Result<Option<Arc<Self>>, OpenError> {
        self.on_replica(options, true)
    }

    /// The same store for visitors while the primary is away: all is read from the replica, or fails if it could lack a
    /// change. `None` without a replica.
    ///
    /// # Errors
    /// Fails if the URL of the replica is invalid.
    pub fn for_visitors(&self, options: &StoreOptions) -> Result<Option<Arc<Self>>, OpenError> {
        self.on_replica(options, false)
    }

    fn on_replica(
        &self,
        options: &StoreOptions,
        are_listings: bool,
    ) -> Result<Option<Arc<Self>>, OpenError> {
        let (Engine::Postgres(engine), Some(replica)) = (&self.engine, &options.replica) else {
            return Ok(None);
        };
        let engine = engine.on_replica(options, replica, are_listings)?;
        let store = Self::new(self.code_key(), |_| Engine::Postgres(Box::new(engine)));
        Ok(Some(Arc::new(Self {
            numbering: Arc::clone(&self.numbering),
            creation: Creation::new(options.find_by_target),
            sink: self.sink.clone(),
            ..store
        })))
    }

    /// Closes every connection, once the operations in progress have ended.
    #[boxed]
    pub async fn close(&self) {
        match &self.engine {
            Engine::Sqlite(store) => store.close().await,
            Engine::Postgres(store) => store.close().await,
        }
    }
}

/// Opens the store that a URL names, whose schema must be the one that this program was built
/// with.
///
/// # Errors
/// When there is no such store, it can't be opened, or its schema is another one.
#[boxed]
pub async fn open(options: &StoreOptions) -> Result<Arc<Store>, OpenError> {
    let store = open_engine(options).await?;
    let sink = place::open(&store, options.visits.as_ref()).await?;
    Ok(Arc::new(Store {
        creation: Creation::new(options.find_by_target),
        sink: sink.map(Arc::new),
        ..store
    }))
}

/// Opens the database of a URL. Visits are taken to be in it.
async fn open_engine(options: &StoreOptions) -> Result<Store, OpenError> {
    let url = options.url.expose_secret();
    Ok(match Scheme::of(url).ok_or(OpenError::Scheme)? {
        Scheme::Sqlite => SqliteStore::open(url, options.max_connections).await?,
        Scheme::Postgres => PostgresStore::open(options).await?,
    })
}

/// Migrates the schema of a store; a new database stores `new_key` for the numbers of its codes.
/// Returns the number of applied migrations. Several processes may do this at once.
///
/// # Errors
/// Fails if the store can't be created or opened, or a migration fails.
#[boxed(?Send)]
pub async fn migrate(options: &StoreOptions, new_key: &CodeKey) -> Result<usize, OpenError> {
    let url = options.url.expose_secret();
    let applied = match Scheme::of(url).ok_or(OpenError::Scheme)? {
        Scheme::Sqlite => SqliteStore::migrate(url, new_key).await?,
        Scheme::Postgres => PostgresStore::migrate(options, new_key).await?,
    };
    if let Some(visits) = &options.visits {
        let without = StoreOptions {
            visits: None,
            ..options.clone()
        };
        place::migrate(&without, visits).await?;
    }
    Ok(applied)
}

/// The state of the server that a store is on; `None` when there is no server.
///
/// # Errors
/// When it can't be reached.
#[boxed]
pub async fn server(options: &StoreOptions) -> Result<Option<ServerState>, OpenError> {
    match Scheme::of(options.url.expose_secret()).ok_or(OpenError::Scheme)? {
        Scheme::Sqlite => Ok(None),
        Scheme::Postgres => Ok(Some(PostgresStore::server(options).await?)),
    }
}

/// The file that a store is in, if it is one.
pub fn file(options: &StoreOptions) -> Option<PathBuf> {
    let url = options.url.expose_secret();
    (Scheme::of(url)? == Scheme::Sqlite).then(|| SqliteStore::file(url))?
}

/// Reason for which a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no store that there is.
    #[error("database.url must begin with {}", Scheme::NAMES)]
    Scheme,
    /// SQLite can't be opened.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenError),
    /// PostgreSQL can't be opened.
    #[error(transparent)]
    Postgres(#[from] postgres::OpenError),
    /// The store of visits can't be used.
    #[error(transparent)]
    Visits(#[from] place::VisitsError),
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
