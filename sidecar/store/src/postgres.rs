//! The store in a PostgreSQL database.
//!
//! PostgreSQL has many concurrent writers, so every operation has a connection and a transaction of its
//! own ([`work`]), and callers gather new links into groups before they call the store. Several
//! sidecars may use one database.
//!
//! An acknowledged write is on the disk: only writes that a crash may lose are committed asynchronously
//! ([`work`]). The outcome of a write whose connection is lost is unknown, so that is an error and is
//! not retried.

mod copy;
pub(super) mod creation;
mod days;
mod pool;
mod replica;
mod schema;
mod servers;
mod session;
mod turn;
mod url;
mod work;

use std::sync::Arc;

use jiff::Timestamp;
use shortlink_core::codes::numbering::CodeKey;
use sqlx::Connection;
use tokio::time::Instant;

use crate::schema::SchemaError;
use crate::{Engine, Store, StoreOptions};
pub(super) use copy::copy;
use days::Days;
use pool::Pool;
use replica::{Replica, Use};
pub use replica::{ReplicaOptions, ReplicaStanding, ReplicaState, ReplicaWatch};
pub use servers::KnownServers;
use servers::Servers;
use turn::Turn;
pub use url::UrlError;

/// The oldest version that is good enough: it can end a session that has nothing to say any more.
const OLDEST_VERSION: i32 = 140_000;

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    pool: Arc<Pool>,
    reads: Reads,
    /// Time limit of an operation if the server does not respond at all.
    limit: std::time::Duration,
    pub(super) turn: Arc<Turn>,
    pub(super) days: Arc<Days>,
}

/// The servers that reads are sent to.
enum Reads {
    Primary,
    /// The replica while it may answer, otherwise the primary.
    ReplicaFirst(Replica),
    Replica(Replica),
}

impl PostgresStore {
    /// Opens the database, whose schema must be the one that this program was built with.
    ///
    /// # Errors
    /// When it can't be reached, is too old, or its schema is another one.
    pub(super) async fn open(options: &StoreOptions) -> Result<Store, OpenError> {
        let servers = session::servers(options)?;
        let cannot_open = cannot_open(&servers);
        let limit = session::limit(options);
        let turn = Arc::new(Turn::new(&servers, limit));
        let pool = Arc::new(Pool::new(servers, options));
        let mut session = pool.acquire().await.map_err(&cannot_open)?;
        let connection = session.connection().map_err(&cannot_open)?;
        schema::check_version(connection).await?;
        schema::check(connection).await?;
        let code_key = schema::code_key(connection).await;
        session.end(&code_key);
        let code_key = code_key.map_err(&cannot_open)?;
        let code_key = code_key.ok_or(OpenError::CodeKey)?;
        let store = Self {
            pool,
            reads: Reads::Primary,
            limit,
            turn,
            days: Arc::default(),
        };
        Ok(Store::new(code_key, |_| Engine::Postgres(Box::new(store))))
    }

    /// Migrates the schema of the database, which must exist; a new one stores `new_key` for the numbers
    /// of its codes. Returns the number of applied migrations. While one process does this, all others
    /// wait, and then find nothing to do.
    ///
    /// # Errors
    /// Fails if the database can't be reached or is too old, or a migration fails.
    pub(super) async fn migrate(
        options: &StoreOptions,
        new_key: &CodeKey,
    ) -> Result<usize, OpenError> {
        let servers = session::patient_servers(options)?;
        let live = servers.connect(Instant::now() + options.acquire_timeout);
        let live = live.await.map_err(cannot_open(&servers))?;
        if live.is_read_only {
            let (servers, database) = servers.names();
            return Err(OpenError::ReadOnly { servers, database });
        }
        let mut connection = live.connection;
        schema::check_version(&mut connection).await?;
        let applied = schema::migrate(&mut connection, new_key).await?;
        connection
            .close()
            .await
            .map_err(|source| SchemaError::Read { source })?;
        Ok(applied)
    }

    /// The time of the primary's clock, and whether the server is read-only.
    ///
    /// # Errors
    /// When it can't be reached.
    pub(super) async fn server(options: &StoreOptions) -> Result<ServerState, OpenError> {
        let servers = session::servers(options)?;
        let cannot_open = cannot_open(&servers);
        let live = servers.connect(Instant::now() + options.acquire_timeout);
        let mut live = live.await.map_err(&cannot_open)?;
        let statement = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let microseconds: i64 = sqlx::query_scalar(statement)
            .fetch_one(&mut live.connection)
            .await
            .map_err(&cannot_open)?;
        let now = Timestamp::from_microsecond(microseconds);
        Ok(ServerState {
            clock: now.map_err(|error| cannot_open(sqlx::Error::Decode(error.into())))?,
            is_read_only: live.is_read_only,
        })
    }

    /// The same database, with reads on its replica: all, or those that it may answer.
    pub(super) fn on_replica(
        &self,
        options: &StoreOptions,
        replica: &ReplicaOptions,
        are_listings: bool,
    ) -> Result<Self, OpenError> {
        Ok(Self {
            pool: Arc::clone(&self.pool),
            reads: if are_listings {
                Reads::ReplicaFirst(Replica::new(options, replica, Use::Listings)?)
            } else {
                Reads::Replica(Replica::new(options, replica, Use::Visitors)?)
            },
            limit: self.limit,
            turn: Arc::clone(&self.turn),
            days: Arc::clone(&self.days),
        })
    }

    pub(super) async fn close(&self) {
        match &self.reads {
            Reads::Primary => {
                self.turn.end().await;
                self.pool.close().await;
            }
            // The rest is that of the store which this one was made of.
            Reads::ReplicaFirst(replica) | Reads::Replica(replica) => replica.close().await,
        }
    }
}

/// Checks the URL of a replica.
///
/// # Errors
/// When it is not one of a PostgreSQL database.
pub fn check_replica_url(text: &str) -> Result<(), UrlError> {
    url::parse(text, &url::OF_REPLICA).map(drop)
}

/// State of the server of a store.
#[derive(Clone, Copy, Debug)]
pub struct ServerState {
    /// The time of its clock.
    pub clock: Timestamp,
    /// The server, the database or the user is read-only (`default_transaction_read_only`).
    pub is_read_only: bool,
}

/// Reason for which a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is not one of a PostgreSQL database.
    #[error(
        "database.url is not a URL of a PostgreSQL database, such as \
         postgres://user:password@host:5432/database"
    )]
    Url {
        /// The fault of the URL.
        #[source]
        source: UrlError,
    },
    /// The URL of the replica is invalid.
    #[error(
        "database.replica_url is not a URL of a PostgreSQL database, such as \
         postgres://user:password@host:5432/database"
    )]
    ReplicaUrl {
        /// The fault of the URL.
        #[source]
        source: UrlError,
    },
    /// The database can't be opened.
    #[error("cannot open the PostgreSQL database {database:?} at {servers}")]
    Open {
        /// The servers.
        servers: String,
        /// The database.
        database: String,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The schema of a read-only database can't be migrated.
    #[error(
        "the PostgreSQL database {database:?} at {servers} is read-only (default_transaction_read_only is on for the \
         server, the database or the user): turn that off, or set database.url to a server that takes changes"
    )]
    ReadOnly {
        /// The servers.
        servers: String,
        /// The database.
        database: String,
    },
    /// The server is too old.
    #[error("PostgreSQL must be 14 or newer; its server_version_num is {version}")]
    TooOld {
        /// Its `server_version_num`.
        version: i32,
    },
    /// The secret that codes are numbered by is not there.
    #[error("the database has lost its code key (settings.code_key): restore it from a backup")]
    CodeKey,
    /// The schema is not the one that this program needs, or can't be migrated to it.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// Converts an error of a database to an [`OpenError`].
fn cannot_open(servers: &Servers) -> impl Fn(sqlx::Error) -> OpenError + use<> {
    let (servers, database) = servers.names();
    move |source| OpenError::Open {
        servers: servers.clone(),
        database: database.clone(),
        source,
    }
}

#[cfg(test)]
pub(crate) mod tests;
