//! Settings of sessions with the server, and the errors after which a session can be reused.

use std::time::Duration;

use secrecy::ExposeSecret;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgSeverity};

use super::replica::ReplicaOptions;
use super::servers::Servers;
use super::{KnownServers, OpenError, url};
use crate::StoreOptions;

/// Time limit for a transaction's next statement, after which the server ends it: a process that hangs
/// must not lock its rows for others.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(10);

/// The servers, with the options of every session of the pool.
pub(super) fn servers(options: &StoreOptions) -> Result<Servers, OpenError> {
    Ok(limited(&patient_servers(options)?, options))
}

/// The servers of a replica, with the same options.
pub(super) fn replicas(
    options: &StoreOptions,
    replica: &ReplicaOptions,
) -> Result<Servers, OpenError> {
    let hosts = url::parse(replica.url.expose_secret(), &url::OF_REPLICA)
        .map_err(|source| OpenError::ReplicaUrl { source })?;
    let servers = patient(hosts, &replica.known_servers, options.acquire_timeout);
    Ok(limited(&servers, options).or_replicas())
}

fn limited(servers: &Servers, options: &StoreOptions) -> Servers {
    let milliseconds = |duration: Duration| duration.as_millis().to_string();
    servers.with(&[
        ("statement_timeout", milliseconds(options.statement_timeout)),
        ("lock_timeout", milliseconds(options.lock_timeout)),
        (
            "idle_in_transaction_session_timeout",
            milliseconds(IDLE_IN_TRANSACTION),
        ),
        // All queries of links have an index. With old or missing statistics, as on the first day, the
        // planner might consider reading all links cheap.
        ("enable_seqscan", "off".to_owned()),
        // A page is read sooner than helpers are there.
        ("max_parallel_workers_per_gather", "0".to_owned()),
        // Compiling pays for statements that take seconds.
        ("jit", "off".to_owned()),
    ])
}

/// The servers, with the options of a session whose statements may take long.
pub(super) fn patient_servers(options: &StoreOptions) -> Result<Servers, OpenError> {
    let hosts = url::parse(options.url.expose_secret(), &url::OF_PRIMARY)
        .map_err(|source| OpenError::Url { source })?;
    Ok(patient(
        hosts,
        &options.known_servers,
        options.acquire_timeout,
    ))
}

fn patient(hosts: Vec<PgConnectOptions>, known: &KnownServers, limit: Duration) -> Servers {
    let hosts = hosts.into_iter().map(|host| {
        let host = host.disable_statement_logging();
        if host.get_application_name().is_none() {
            host.application_name("shortlink")
        } else {
            host
        }
    });
    let servers = Servers::new(hosts.collect(), known, limit);
    // Hides notices of objects that exist already when the schema is migrated.
    servers.with(&[("client_min_messages", "warning".to_owned())])
}

/// Returns the time limit of an operation of a few statements. The server itself ends a statement in
/// time; this is for a server that does not respond at all.
pub(super) fn limit(options: &StoreOptions) -> Duration {
    options.statement_timeout * 2
}

/// Returns whether a session can be reused after an error.
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

/// Returns whether the server has rolled everything back for a temporary reason: a deadlock, or a
/// conflict with another transaction.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("40001" | "40P01"))
}
