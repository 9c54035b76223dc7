//! Operations on the store, in one form for both engines.
//!
//! An operation is a method of [`Store`]. One statement is [`Store::all`], [`Store::one`] or
//! [`Store::run`]:
//!
//! ```ignore
//! /// Finds a campaign, whatever its state.
//! #[boxed]
//! pub async fn find_campaign(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
//!     self.one("find a campaign", FIND, args![id], read).await
//! }
//! ```
//!
//! Several are a closure. It is called with a connection ([`Db`]) and its arguments, which
//! [`Store::run_tx`] takes by value: SQLite's writer continues after the caller was dropped. A closure
//! may be called more than once, each time after its earlier changes were rolled back.
//!
//! ```ignore
//! self.run_tx("store a new API key", (key.clone(), audit.clone()), |db, (key, audit)| {
//!     Box::pin(async move {
//!         insert(db, key).await?;
//!         audit::append(db, audit).await
//!     })
//! })
//! .await
//! ```
//!
//! In SQLite, an error rolls back all changes that share the transaction, so a foreseeable outcome, such
//! as a code that is taken, is a result and not an error.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use shortlink_core::ports::StoreError;

use super::db::{Db, Text};
use super::shared::{failed, store_error, timed};
use super::sql::Sql;
use super::value::{Row, Value};
use super::{Engine, Store};

/// Future that the closure of an operation returns.
pub(super) type Done<'a, T> = Pin<Box<dyn Future<Output = Result<T, sqlx::Error>> + Send + 'a>>;

/// An operation of any kind. Whatever runs it is compiled once, and not for every operation in the crates that use it.
pub(super) trait Work: Send {
    /// Runs it, and keeps the result of the last run.
    fn run<'a>(&'a mut self, db: &'a mut Db<'a>) -> Done<'a, ()>;
}

/// A closure, its arguments and its result.
pub(super) struct Operation<A, T, F> {
    args: A,
    work: F,
    /// None before it has succeeded.
    output: Option<T>,
}

/// The result is missing of an operation that was reported as done.
#[derive(Debug, thiserror::Error)]
#[error("the operation did not run")]
struct NotRun;

impl<A, T, F> Operation<A, T, F>
where
    A: Send + Sync,
    T: Send,
    F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Send + Sync,
{
    fn new(args: A, work: F) -> Self {
        Self {
            args,
            work,
            output: None,
        }
    }

    pub(super) fn into_output(self, operation: &'static str) -> Result<T, StoreError> {
        self.output
            .ok_or_else(|| store_error(operation, Arc::new(NotRun)))
    }
}

impl<A, T, F> Work for Operation<A, T, F>
where
    A: Send + Sync,
    T: Send,
    F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Send + Sync,
{
    fn run<'a>(&'a mut self, db: &'a mut Db<'a>) -> Done<'a, ()> {
        Box::pin(async move {
            self.output = Some((self.work)(db, &self.args).await?);
            Ok(())
        })
    }
}

impl Store {
    /// Reads with several statements, each of which sees the state at its own beginning.
    pub(super) async fn read<A, T, F>(
        &self,
        operation: &'static str,
        args: A,
        work: F,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync,
        T: Send,
        F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Send + Sync,
    {
        let mut work = Operation::new(args, work);
        self.perform_read(operation, &mut work).await?;
        work.into_output(operation)
    }

    fn perform_read<'a>(
        &'a self,
        operation: &'static str,
        work: &'a mut dyn Work,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let done = async move {
            match &self.engine {
                Engine::Sqlite(store) => {
                    let mut connection = store.reader().await?;
                    work.run(&mut Db::sqlite(&mut connection, &self.numbering))
                        .await
                }
                Engine::Postgres(store) => store.read(&self.numbering, operation, work).await,
            }
        };
        timed(
            operation,
            async move { done.await.map_err(failed(operation)) },
        )
        .boxed()
    }

    /// Does something in a transaction, which is durable when this returns.
    pub(super) async fn run_tx<A, T, F>(
        &self,
        operation: &'static str,
        args: A,
        work: F,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Send + Sync + 'static,
    {
        self.write(operation, args, work, true).await
    }

    /// Makes a change with one statement; returns the number of changed rows.
    pub(super) async fn run(
        &self,
        operation: &'static str,
        sql: Sql,
        values: &[Value<'_>],
    ) -> Result<u64, StoreError> {
        let values: Vec<Value<'static>> = values.iter().map(Value::to_owned).collect();
        self.run_one(operation, (sql, values), |db, (sql, values)| {
            Box::pin(db.run(*sql, values))
        })
        .await
    }

    /// As [`Self::run_tx`] for a single statement: PostgreSQL needs no transaction around it.
    pub(super) async fn run_one<A, T, F>(
        &self,
        operation: &'static str,
        args: A,
        work: F,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Send + Sync + 'static,
    {
        self.write(operation, args, work, false).await
    }

    /// Returns the rows of a statement.
    pub(super) async fn all<T: Send, C: FromIterator<T> + Send>(
        &self,
        operation: &'static str,
        sql: impl Into<Text<'_>>,
        values: &[Value<'_>],
        read: fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<C, StoreError> {
        let args = (sql.into(), values, read);
        self.read(operation, args, |db, (sql, values, read)| {
            Box::pin(db.all(*sql, values, read))
        })
        .await
    }

    /// Returns the first row of a statement.
    pub(super) async fn one<T: Send>(
        &self,
        operation: &'static str,
        sql: impl Into<Text<'_>>,
        values: &[Value<'_>],
        read: fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<Option<T>, StoreError> {
        let args = (sql.into(), values, read);
        self.read(operation, args, |db, (sql, values, read)| {
            Box::pin(db.one(*sql, values, read))
        })
        .await
    }

    async fn write<A, T, F>(
        &self,
        operation: &'static str,
        args: A,
        work: F,
        in_transaction: bool,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Send + Sync + 'static,
    {
        let work = Operation::new(args, work);
        match &self.engine {
            // Includes the time in the queue, which the caller waits for.
            Engine::Sqlite(store) => timed(operation, store.writer.run(operation, work)).await,
            Engine::Postgres(store) => {
                let mut work = work;
                let numbering = &self.numbering;
                let done = store.perform(numbering, operation, &mut work, in_transaction);
                timed(operation, done).await.map_err(failed(operation))?;
                work.into_output(operation)
            }
        }
    }
}
