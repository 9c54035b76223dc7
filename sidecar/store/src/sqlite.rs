//! The store in one SQLite file.
//!
//! SQLite has one writer at a time. Instead of having requests queue for its lock, all changes go
//! through one connection, and those that arrive while a transaction is being made durable share
//! the next one ([`writer`]): one `fsync` for all of them. Reads have connections of their own,
//! which the write-ahead log lets run beside the writer.

mod adoption;
pub(super) mod creation;
mod schema;
mod writer;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use shortlink_core::boxed;
use shortlink_core::codes::numbering::CodeKey;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Sqlite};

use crate::schema::SchemaError;
use crate::{Engine, Store};
use writer::Writer;

/// Time limit for a lock that another process holds on the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The cache of the connection that writes, in KiB as a negative number. With SQLite's own 2 MiB, batches of visits read the
/// same pages of the file again and again, and write some of them twice.
const WRITER_CACHE: &str = "-32768";

/// Time limit of a read for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(1);

/// A store in one SQLite file.
pub struct SqliteStore {
    readers: SqlitePool,
    pub(super) writer: Writer,
}

/// SQLite overwrites what it moves or deletes within a page: a copy in an unused part of the page would outlive an erasure.
pub(crate) const CLEAN: &str = "FAST";

impl SqliteStore {
    /// Opens the file, whose schema must be the one that this program was built with.
    ///
    /// # Errors
    /// When there is no such file, it can't be opened, or its schema is another one.
    #[boxed]
    pub async fn open(url: &str, max_readers: u32) -> Result<Store, OpenError> {
        let options = options(url)?;
        let path = options.get_filename().to_owned();
        let cannot_open = |source| OpenError::Open {
            path: path.clone(),
            source,
        };
        if !path.exists() {
            return Err(OpenError::Missing { path });
        }
        let writing = options.clone().pragma("cache_size", WRITER_CACHE);
        let writing = writing.pragma("secure_delete", CLEAN);
        let mut connection = writing.connect().await.map_err(cannot_open)?;
        schema::check(&mut connection).await?;
        let is_finished = adoption::is_finished(&mut connection).await;
        if !is_finished.map_err(cannot_open)? {
            return Err(OpenError::Unfinished { path });
        }
        let code_key = adoption::code_key(&mut connection)
            .await
            .map_err(cannot_open)?;
        let code_key = code_key.ok_or_else(|| OpenError::CodeKey { path: path.clone() })?;
        let readers = SqlitePoolOptions::new()
            .max_connections(max_readers)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options.clone().read_only(true))
            .await
            .map_err(cannot_open)?;
        Ok(Store::new(code_key, |numbering| {
            let writer = Writer::start(writing, connection, numbering);
            Engine::Sqlite(Self { readers, writer })
        }))
    }

    /// The file that a URL names.
    pub fn file(url: &str) -> Option<PathBuf> {
        let options = options(url).ok()?;
        Some(options.get_filename().to_owned())
    }

    /// Migrates the file's schema, and creates the file and its directory if they are missing. A new
    /// database stores `new_key` for the numbers of its codes. Returns the number of applied
    /// migrations.
    ///
    /// # Errors
    /// Fails if the file can't be created or opened, or a migration fails.
    #[boxed(?Send)]
    pub async fn migrate(url: &str, new_key: &CodeKey) -> Result<usize, OpenError> {
        let options = options(url)?.create_if_missing(true);
        let path = options.get_filename().to_owned();
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|source| OpenError::Directory {
                path: directory.to_owned(),
                source,
            })?;
        }
        let mut connection = options.connect().await.map_err(|source| OpenError::Open {
            path: path.clone(),
            source,
        })?;
        let applied = schema::migrate(&mut connection).await?;
        adoption::finish(&mut connection, new_key)
            .await
            .map_err(|source| OpenError::Open { path, source })?;
        connection
            .close()
            .await
            .map_err(|source| SchemaError::Read { source })?;
        Ok(applied)
    }

    /// A connection that reads.
    pub(super) async fn reader(&self) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        self.readers.acquire().await
    }

    pub(super) async fn close(&self) {
        self.writer.close().await;
        self.readers.close().await;
    }
}

/// Reason for which a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is not one of a SQLite file.
    #[error("database.url is not a URL of a SQLite file, such as sqlite:var/shortlink.db")]
    Url {
        /// The fault of the URL.
        #[source]
        source: sqlx::Error,
    },
    /// There is no file.
    #[error("there is no database {path:?}; run `shortlink migrate`")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file's directory can't be created.
    #[error("cannot create the directory {path:?}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The file can't be opened.
    #[error("cannot open the database {path:?}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// A migration was interrupted before it had moved everything.
    #[error("the migration of the database {path:?} was interrupted; run `shortlink migrate`")]
    Unfinished {
        /// The file.
        path: PathBuf,
    },
    /// The secret that codes are numbered by is not there.
    #[error(
        "the database {path:?} has lost its code key (settings.code_key): restore it from a backup"
    )]
    CodeKey {
        /// The file.
        path: PathBuf,
    },
    /// The schema is not the one that this program needs, or can't be migrated to it.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

fn options(url: &str) -> Result<SqliteConnectOptions, OpenError> {
    Ok(SqliteConnectOptions::from_str(url)
        .map_err(|source| OpenError::Url { source })?
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        // A commit is on the disk when it returns: an acknowledged link is never lost.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging())
}

#[cfg(test)]
mod tests;
