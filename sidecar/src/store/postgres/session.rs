//! How sessions with the server begin, and which errors they outlive.

use std::str::FromStr;
use std::time::Duration;

use secrecy::ExposeSecret;
use sqlx::ConnectOptions;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgPoolOptions, PgSeverity};

use super::OpenError;
use crate::store::StoreOptions;

/// After how long without use a connection is tried before it is used. One that was used just now
/// is as good as one that was tried.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// How long a transaction may wait for its next statement before the server ends it: a process
/// that hangs must not keep others from its rows.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(10);

/// How every session of the pool begins.
pub(super) fn options(options: &StoreOptions) -> Result<PgConnectOptions, OpenError> {
    let milliseconds = |duration: Duration| duration.as_millis().to_string();
    Ok(patient_options(options)?.options([
        ("statement_timeout", milliseconds(options.statement_timeout)),
        ("lock_timeout", milliseconds(options.lock_timeout)),
        (
            "idle_in_transaction_session_timeout",
            milliseconds(IDLE_IN_TRANSACTION),
        ),
        // What is asked of links has an index. With statistics that are old, or missing, as on the first
        // day, the planner might think that reading all links is cheap.
        ("enable_seqscan", "off".to_owned()),
        // A page is read sooner than helpers are there.
        ("max_parallel_workers_per_gather", "0".to_owned()),
        // Compiling pays for statements that take seconds.
        ("jit", "off".to_owned()),
    ]))
}

/// How a session begins that may take long.
pub(super) fn patient_options(options: &StoreOptions) -> Result<PgConnectOptions, OpenError> {
    let mut connect = PgConnectOptions::from_str(options.url.expose_secret())
        .map_err(|source| OpenError::Url { source })?
        .disable_statement_logging();
    if connect.get_application_name().is_none() {
        connect = connect.application_name("shortlink");
    }
    // What exists already is no news when the schema is brought up to date.
    Ok(connect.options([("client_min_messages", "warning")]))
}

/// The pool that keeps sessions.
pub(super) fn pool(options: &StoreOptions) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(options.max_connections)
        .acquire_timeout(options.acquire_timeout)
        .test_before_acquire(false)
        .before_acquire(|connection, state| {
            Box::pin(async move {
                if state.idle_for > TRUSTED_FOR {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .after_connect(|connection, _| {
            Box::pin(async move {
                // Whatever the server's default is, what was acknowledged must be on the disk. A
                // setting that asks for more than that is left alone.
                sqlx::query(
                    "SELECT set_config('synchronous_commit', 'on', false) \
                     WHERE current_setting('synchronous_commit') = 'off'",
                )
                .execute(connection)
                .await?;
                Ok(())
            })
        })
}

/// How long an operation of a few statements may take. The server ends a statement in time by
/// itself; this is for one that does not answer at all.
pub(super) fn limit(options: &StoreOptions) -> Duration {
    options.statement_timeout * 2
}

/// Whether a session can be used on after an error.
pub(super) fn is_sound(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => {
            let error = error.try_downcast_ref::<PgDatabaseError>();
            error.is_some_and(|error| {
                // A server that has become a replica takes no writes; a new session finds the
                // one that does.
                error.severity() == PgSeverity::Error && error.code() != "25006"
            })
        }
        sqlx::Error::RowNotFound | sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => {
            true
        }
        _ => false,
    }
}

/// Whether an error means that the server has undone everything for a reason that passes: a
/// deadlock, or a conflict with another transaction.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("40001" | "40P01"))
}
