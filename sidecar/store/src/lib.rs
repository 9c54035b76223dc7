//! Stores links, the outbox and API keys. Nothing outside of this module knows SQL, and only
//! [`open`] and [`migrate`] know which database is used.
#![forbid(unsafe_code)]

mod audit;
mod bulk;
mod campaigns;
mod changes;
mod claims;
mod codes;
mod creation;
mod db;
mod defaults;
mod deletion;
mod digests;
mod domains;
mod history;
mod idempotency;
mod keys;
mod leases;
mod past;
pub mod postgres;
mod quotas;
pub mod sqlite;

mod lines;
mod links;
mod listing;
mod outbox;
mod rows;
mod schema;
mod sessions;
mod shared;
mod sql;
mod tags;
mod targets;
mod texts;
mod tx;
mod upkeep;
mod uploads;
mod value;
mod visits;
mod walks;
mod writable;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use shortlink_core::codes::numbering::{CodeKey, Numbering};

use changes::Horizon;
use creation::Creation;
use postgres::PostgresStore;
use sqlite::SqliteStore;
use writable::LastAttempt;

pub use bulk::BulkCreated;
pub use claims::Claim;
pub use leases::{CapacityWanted, NumbersWanted, PooledWanted, capacity_name, pool_name};
pub use postgres::{KnownServers, ServerState};
pub use schema::SchemaError;
pub use shared::errors;
pub use targets::TargetSearch;
pub use visits::AgentsPass;
pub use walks::{Found, Part, Pass, Share, Walk};

/// Address and time limits of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// URL of one of the [`Scheme`]s. Secret, since it can contain a password.
    pub url: SecretString,
    /// Knowledge of this process about the servers of the URL. Clones for the same URL share it.
    pub known_servers: KnownServers,
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

    /// Closes every connection, once the operations in progress have ended.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        match &self.engine {
            Engine::Sqlite(store) => store.close().boxed(),
            Engine::Postgres(store) => store.close().boxed(),
        }
    }
}

/// Opens the store that a URL names, whose schema must be the one that this program was built
/// with.
///
/// # Errors
/// When there is no such store, it can't be opened, or its schema is another one.
pub fn open(options: &StoreOptions) -> BoxFuture<'_, Result<Arc<Store>, OpenError>> {
    async move {
        let url = options.url.expose_secret();
        let store = match Scheme::of(url).ok_or(OpenError::Scheme)? {
            Scheme::Sqlite => SqliteStore::open(url, options.max_connections).await?,
            Scheme::Postgres => PostgresStore::open(options).await?,
        };
        Ok(Arc::new(Store {
            creation: Creation::new(options.find_by_target),
            ..store
        }))
    }
    .boxed()
}

/// Migrates the schema of a store; a new database stores `new_key` for the numbers of its codes.
/// Returns the number of applied migrations. Several processes may do this at once.
///
/// # Errors
/// Fails if the store can't be created or opened, or a migration fails.
pub async fn migrate(options: &StoreOptions, new_key: &CodeKey) -> Result<usize, OpenError> {
    let url = options.url.expose_secret();
    match Scheme::of(url).ok_or(OpenError::Scheme)? {
        Scheme::Sqlite => Ok(SqliteStore::migrate(url, new_key).await?),
        Scheme::Postgres => Ok(PostgresStore::migrate(options, new_key).await?),
    }
}

/// The state of the server that a store is on; `None` when there is no server.
///
/// # Errors
/// When it can't be reached.
pub fn server(options: &StoreOptions) -> BoxFuture<'_, Result<Option<ServerState>, OpenError>> {
    async move {
        match Scheme::of(options.url.expose_secret()).ok_or(OpenError::Scheme)? {
            Scheme::Sqlite => Ok(None),
            Scheme::Postgres => Ok(Some(PostgresStore::server(options).await?)),
        }
    }
    .boxed()
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
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
