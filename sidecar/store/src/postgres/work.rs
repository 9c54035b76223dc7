//! Runs operations in PostgreSQL: on a connection of the pool, within a time limit, and again if the
//! server has rolled them back for a temporary reason.

use std::io;

use shortlink_core::codes::numbering::Numbering;
use sqlx::pool::PoolConnection;
use sqlx::{Connection, PgConnection, Postgres};

use super::PostgresStore;
use super::session::{is_sound, is_transient};
use crate::db::Db;
use crate::tx::Done;

/// Maximum number of attempts of an operation that the server rolls back.
const MAX_ATTEMPTS: u32 = 4;

impl PostgresStore {
    /// Does something once, and once more when the server has undone it.
    pub(crate) async fn perform<A: Sync, T, F>(
        &self,
        numbering: &Numbering,
        operation: &'static str,
        args: &A,
        work: &F,
        in_transaction: bool,
    ) -> Result<T, sqlx::Error>
    where
        F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Sync,
    {
        let mut attempt = 1;
        loop {
            match self.attempt(numbering, args, work, in_transaction).await {
                // Only an operation that the server has certainly rolled back is repeated. If the
                // connection was lost, the outcome of the transaction is unknown.
                Err(error) if is_transient(&error) && attempt < MAX_ATTEMPTS => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        operation,
                        "PostgreSQL has undone something; it is done again"
                    );
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt<A: Sync, T, F>(
        &self,
        numbering: &Numbering,
        args: &A,
        work: &F,
        in_transaction: bool,
    ) -> Result<T, sqlx::Error>
    where
        F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Sync,
    {
        let mut session = Session(Some(self.pool.acquire().await?));
        let connection = session.connection()?;
        let done = async {
            if !in_transaction {
                let mut db = Db::postgres(connection, numbering);
                return work(&mut db, args).await;
            }
            let mut transaction = connection.begin().await?;
            let output = {
                let mut db = Db::postgres(&mut transaction, numbering);
                work(&mut db, args).await?
            };
            transaction.commit().await?;
            Ok(output)
        };
        let outcome = tokio::time::timeout(self.limit, done)
            .await
            .unwrap_or_else(|_elapsed| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        if outcome.as_ref().err().is_none_or(is_sound) {
            session.give_back();
        }
        outcome
    }
}

/// A connection that is closed unless it is given back: after an error, or when the caller is dropped
/// halfway, its next response is unknown, and may never come.
struct Session(Option<PoolConnection<Postgres>>);

impl Session {
    fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        let connection = self.0.as_deref_mut();
        connection.ok_or(sqlx::Error::PoolClosed)
    }

    fn give_back(&mut self) {
        drop(self.0.take());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
