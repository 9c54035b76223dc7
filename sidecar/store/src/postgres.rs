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
mod schema;
mod session;
mod turn;
mod work;

use std::sync::Arc;

use jiff::Timestamp;
use shortlink_core::codes::numbering::CodeKey;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{ConnectOptions, Connection};

use crate::schema::SchemaError;
use crate::{Engine, Store, StoreOptions};
pub(super) use copy::copy;
use days::Days;
use turn::Turn;

/// The oldest version that is good enough: it can end a session that has nothing to say any more.
const OLDEST_VERSION: i32 = 140_000;

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    pool: PgPool,
    /// Time limit of an operation if the server does not respond at all.
    limit: std::time::Duration,
    pub(super) turn: Turn,
    pub(super) days: Arc<Days>,
}

impl PostgresStore {
    /// Opens the database, whose schema must be the one that this program was built with.
    ///
    /// # Errors
    /// When it can't be reached, is too old, or its schema is another one.
    pub async fn open(options: &StoreOptions) -> Result<Store, OpenError> {
        let connect = session::options(options)?;
        let cannot_open = cannot_open(&connect);
        let pool = session::pool(options)
            .connect_with(connect.clone())
            .await
            .map_err(&cannot_open)?;
        let mut connection = pool.acquire().await.map_err(&cannot_open)?;
        schema::check_version(&mut connection).await?;
        schema::check(&mut connection).await?;
        let code_key = schema::code_key(&mut connection)
            .await
            .map_err(&cannot_open)?
            .ok_or(OpenError::CodeKey)?;
        drop(connection);
        let limit = session::limit(options);
        let store = Self {
            pool,
            limit,
            turn: Turn::new(&connect, limit),
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
    pub async fn migrate(options: &StoreOptions, new_key: &CodeKey) -> Result<usize, OpenError> {
        let connect = session::patient_options(options)?;
        let mut connection = connect.connect().await.map_err(cannot_open(&connect))?;
        schema::check_version(&mut connection).await?;
        let applied = schema::migrate(&mut connection, new_key).await?;
        connection
            .close()
            .await
            .map_err(|source| SchemaError::Read { source })?;
        Ok(applied)
    }

    /// The time of the server's clock.
    ///
    /// # Errors
    /// When it can't be reached.
    pub async fn clock(options: &StoreOptions) -> Result<Timestamp, OpenError> {
        let connect = session::options(options)?;
        let cannot_open = cannot_open(&connect);
        let mut connection = connect.connect().await.map_err(&cannot_open)?;
        let statement = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let microseconds: i64 = sqlx::query_scalar(statement)
            .fetch_one(&mut connection)
            .await
            .map_err(&cannot_open)?;
        let now = Timestamp::from_microsecond(microseconds);
        now.map_err(|error| cannot_open(sqlx::Error::Decode(error.into())))
    }

    pub(super) async fn close(&self) {
        self.turn.end().await;
        self.pool.close().await;
    }
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
        source: sqlx::Error,
    },
    /// The database can't be opened.
    #[error("cannot open the PostgreSQL database {database:?} at {host}:{port}")]
    Open {
        /// The server.
        host: String,
        /// Its port.
        port: u16,
        /// The database.
        database: String,
        /// The reason.
        #[source]
        source: sqlx::Error,
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
fn cannot_open(options: &PgConnectOptions) -> impl Fn(sqlx::Error) -> OpenError + use<> {
    let socket = options.get_socket();
    let host = socket.map_or_else(
        || options.get_host().to_owned(),
        |path| path.display().to_string(),
    );
    let port = options.get_port();
    let database = options
        .get_database()
        .unwrap_or(options.get_username())
        .to_owned();
    move |source| OpenError::Open {
        host: host.clone(),
        port,
        database: database.clone(),
        source,
    }
}

#[cfg(test)]
pub(crate) mod tests;
