//! Runs operations in PostgreSQL: on a connection of the pool, within a time limit, and again if the
//! server has rolled them back for a temporary reason.

use std::io;

use futures_util::future::BoxFuture;
use shortlink_core::codes::numbering::Numbering;
use sqlx::Connection;

use super::session::is_transient;
use super::{PostgresStore, Reads};
use crate::creation::begins_anew;
use crate::db::Db;
use crate::tx::Work;

/// Maximum number of attempts of an operation that the server rolls back.
const MAX_ATTEMPTS: u32 = 4;

impl PostgresStore {
    /// Reads on a server that may answer.
    pub(crate) fn read<'a>(
        &'a self,
        numbering: &'a Numbering,
        operation: &'static str,
        work: &'a mut dyn Work,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        match &self.reads {
            Reads::Primary => self.perform(numbering, operation, work, false),
            Reads::Replica(replica) => replica.read(numbering, work),
            Reads::ReplicaFirst(replica) if replica.is_promising() => Box::pin(async move {
                match replica.read(numbering, work).await {
                    Ok(()) => Ok(()),
                    Err(error) => {
                        tracing::debug!(
                            error = &error as &dyn std::error::Error,
                            operation,
                            "the primary is read, because the replica has not answered"
                        );
                        self.perform(numbering, operation, work, false).await
                    }
                }
            }),
            Reads::ReplicaFirst(_) => self.perform(numbering, operation, work, false),
        }
    }

    /// Does something, and again when the server has undone it.
    pub(crate) fn perform<'a>(
        &'a self,
        numbering: &'a Numbering,
        operation: &'static str,
        work: &'a mut dyn Work,
        in_transaction: bool,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        // On the heap: callers' futures are moved often, and this one has some kilobytes.
        Box::pin(self.repeat(numbering, operation, work, in_transaction))
    }

    async fn repeat(
        &self,
        numbering: &Numbering,
        operation: &'static str,
        work: &mut dyn Work,
        in_transaction: bool,
    ) -> Result<(), sqlx::Error> {
        let mut attempt = 1;
        loop {
            match self.attempt(numbering, work, in_transaction).await {
                // With the locks of the quotas that it has met.
                Err(error) if begins_anew(&error) => {}
                // Only an operation that the server has certainly rolled back is repeated. If the
                // connection was lost, the outcome of the transaction is unknown.
                Err(error) if is_transient(&error) && attempt < MAX_ATTEMPTS => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        operation,
                        "PostgreSQL has rolled back an operation; it is repeated"
                    );
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt(
        &self,
        numbering: &Numbering,
        work: &mut dyn Work,
        in_transaction: bool,
    ) -> Result<(), sqlx::Error> {
        let mut session = self.pool.acquire().await?;
        let line = session.line();
        let connection = session.connection()?;
        let done = async {
            if !in_transaction {
                return work.run(&mut Db::postgres(connection, numbering)).await;
            }
            let mut transaction = connection.begin().await?;
            work.run(&mut Db::postgres(&mut transaction, numbering))
                .await?;
            transaction.commit().await
        };
        let outcome = tokio::select! {
            done = tokio::time::timeout(self.limit, done) => done.ok(),
            () = self.pool.servers.end_of(line) => None,
        };
        let outcome =
            outcome.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        session.end(&outcome);
        outcome
    }
}
