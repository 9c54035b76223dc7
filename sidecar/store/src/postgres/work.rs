//! Runs operations in PostgreSQL: on a connection of the pool, within a time limit, and again if the
//! server has rolled them back for a temporary reason.

use std::io;

use async_trait::async_trait;
use shortlink_core::ports::StoreError;
use sqlx::pool::PoolConnection;
use sqlx::{Connection, PgConnection, Postgres};

use super::PostgresStore;
use super::session::{is_sound, is_transient};
use super::statements::{Comment, Statements};
use crate::db::Db;
use crate::shared::Operation;
use crate::tx::Done;

/// Maximum number of attempts of an operation that the server rolls back.
const MAX_ATTEMPTS: u32 = 4;

/// An operation.
#[async_trait]
pub(super) trait Work: Send {
    /// The result for the caller.
    type Output: Send;

    /// Description of the operation, for the message when it fails.
    const OPERATION: &'static str;

    /// Runs the operation. Called again only if nothing of the earlier attempt is left.
    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Self::Output, sqlx::Error>;

    /// Returns whether the operation can be repeated.
    fn is_repeatable(&self) -> bool {
        true
    }
}

impl PostgresStore {
    /// Does something that only reads or is one statement.
    pub(super) async fn run<W: Work>(&self, work: W) -> Result<W::Output, StoreError> {
        let done = self.repeat(work, false);
        done.operation(W::OPERATION).await
    }

    /// Does something in a transaction.
    pub(super) async fn transact<W: Work>(&self, work: W) -> Result<W::Output, StoreError> {
        let done = self.repeat(work, true);
        done.operation(W::OPERATION).await
    }

    /// Does something once, and once more when the server has undone it.
    pub(crate) async fn perform<A: Sync, T, F>(
        &self,
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
            match self.try_once(args, work, in_transaction).await {
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

    async fn try_once<A: Sync, T, F>(
        &self,
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
                let mut db = Db::postgres(connection);
                return work(&mut db, args).await;
            }
            let mut transaction = connection.begin().await?;
            let output = {
                let mut db = Db::postgres(&mut transaction);
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

    async fn repeat<W: Work>(
        &self,
        mut work: W,
        in_transaction: bool,
    ) -> Result<W::Output, sqlx::Error> {
        let mut attempt = 1;
        loop {
            match self.attempt(&mut work, in_transaction).await {
                // Only an operation that the server has certainly rolled back is repeated. If the
                // connection was lost, the outcome of the transaction is unknown.
                Err(error)
                    if is_transient(&error) && work.is_repeatable() && attempt < MAX_ATTEMPTS =>
                {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        operation = W::OPERATION,
                        "PostgreSQL has undone something; it is done again"
                    );
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt<W: Work>(
        &self,
        work: &mut W,
        in_transaction: bool,
    ) -> Result<W::Output, sqlx::Error> {
        let mut session = Session(Some(self.pool.acquire().await?));
        let connection = session.connection()?;
        let done = async {
            let comment = Comment::current();
            if !in_transaction {
                return work.run(&mut Statements::new(connection, comment)).await;
            }
            let mut transaction = connection.begin().await?;
            let output = work
                .run(&mut Statements::new(&mut transaction, comment))
                .await?;
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
