//! The one connection that writes.
//!
//! Changes arrive in a queue. The writer takes all of them, runs them in one transaction, makes
//! that durable and answers every caller. While it waits for the disk the next batch gathers, so
//! that many callers share one `fsync` and a single caller waits for no one else.
//!
//! A change is independent of its request: if the caller is dropped, the transaction still completes.

use std::sync::Arc;

use async_trait::async_trait;
use shortlink_core::ports::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::db::Db;
use crate::shared::{store_error, timed};
use crate::tx::Done;

/// Maximum number of changes per transaction. Each of its callers waits for all of them.
const MAX_BATCH: usize = 256;

/// The most changes that may wait in the queue. More callers wait before it.
const MAX_QUEUE: usize = 1024;

/// A change.
#[async_trait]
pub(super) trait Write: Send + 'static {
    /// The result for the caller.
    type Output: Send + 'static;

    /// Description of the change, for the message when it fails.
    const OPERATION: &'static str;

    /// Makes the change, within a transaction that others share. An error rolls all of them back, so a
    /// foreseeable outcome, such as a code that is taken, is a result and not an error.
    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<Self::Output, sqlx::Error>;
}

/// A hand on the connection that writes.
pub(crate) struct Writer {
    queue: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts writing on a connection; another one is opened when it breaks.
    pub(super) fn start(options: SqliteConnectOptions, connection: SqliteConnection) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_QUEUE);
        let task = tokio::spawn(run(options, connection, receiver));
        Self {
            queue: Mutex::new(Some(sender)),
            task: Mutex::new(Some(task)),
        }
    }

    /// Has something written and durable.
    pub(super) async fn write<W: Write>(&self, write: W) -> Result<W::Output, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Pending {
            write,
            output: None,
            reply,
        });
        // Includes the time in the queue, which the caller waits for.
        timed(W::OPERATION, self.queued(W::OPERATION, job, answer)).await
    }

    /// Has an operation done within a transaction that others share.
    pub(crate) async fn run<A, T, F>(
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
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Queued {
            operation,
            args,
            work,
            output: None,
            reply,
        });
        self.queued(operation, job, answer).await
    }

    /// Puts a job into the queue and waits for its answer.
    async fn queued<T>(
        &self,
        operation: &'static str,
        job: Box<dyn Job>,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let closed = || store_error(operation, Arc::new(WriterClosed));
        let queue = self.queue.lock().await.clone().ok_or_else(closed)?;
        queue.send(job).await.map_err(|_job| closed())?;
        answer.await.map_err(|_gone| closed())?
    }

    /// Writes the changes in the queue and closes the connection.
    pub(super) async fn close(&self) {
        drop(self.queue.lock().await.take());
        if let Some(task) = self.task.lock().await.take()
            && let Err(error) = task.await
        {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the database writer has panicked"
            );
        }
    }
}

/// Nothing is written any more: the process is about to end.
#[derive(Debug, thiserror::Error)]
#[error("the database is closed")]
struct WriterClosed;

/// A [`Write`] of any kind in the queue.
#[async_trait]
trait Job: Send {
    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error>;
    fn finish(self: Box<Self>, outcome: Result<(), Arc<sqlx::Error>>);
}

struct Pending<W: Write> {
    write: W,
    /// The result, after the change has been made.
    output: Option<W::Output>,
    reply: oneshot::Sender<Result<W::Output, StoreError>>,
}

#[async_trait]
impl<W: Write> Job for Pending<W> {
    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        self.output = Some(self.write.apply(connection).await?);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<(), Arc<sqlx::Error>>) {
        let answer = match (outcome, self.output) {
            (Ok(()), Some(output)) => Ok(output),
            (Err(error), _) => Err(store_error(W::OPERATION, error)),
            // Everything in a transaction that was committed was applied before.
            (Ok(()), None) => Err(store_error(W::OPERATION, Arc::new(WriterClosed))),
        };
        // Fails if the caller was dropped, which does not matter.
        let _ = self.reply.send(answer);
    }
}

/// An operation of any kind in the queue.
struct Queued<A, T, F> {
    operation: &'static str,
    args: A,
    work: F,
    /// The result, after the change has been made.
    output: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

#[async_trait]
impl<A, T, F> Job for Queued<A, T, F>
where
    A: Send + Sync,
    T: Send,
    F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Send + Sync,
{
    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut db = Db::Sqlite(connection);
        self.output = Some((self.work)(&mut db, &self.args).await?);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<(), Arc<sqlx::Error>>) {
        let answer = match (outcome, self.output) {
            (Ok(()), Some(output)) => Ok(output),
            (Err(error), _) => Err(store_error(self.operation, error)),
            // Everything in a transaction that was committed was applied before.
            (Ok(()), None) => Err(store_error(self.operation, Arc::new(WriterClosed))),
        };
        // Fails if the caller was dropped, which does not matter.
        let _ = self.reply.send(answer);
    }
}

async fn run(
    options: SqliteConnectOptions,
    connection: SqliteConnection,
    mut queue: mpsc::Receiver<Box<dyn Job>>,
) {
    let mut connection = Some(connection);
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while queue.recv_many(&mut batch, MAX_BATCH).await > 0 {
        let outcome = match commit(&options, &mut connection, &mut batch).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // Whatever state the connection is in, closing it undoes the transaction.
                connection = None;
                Err(Arc::new(error))
            }
        };
        for job in batch.drain(..) {
            job.finish(outcome.clone());
        }
    }
    if let Some(connection) = connection
        && let Err(error) = connection.close().await
    {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the database was not closed in order"
        );
    }
}

/// Runs a batch in one transaction. Opens a connection first when there is none.
async fn commit(
    options: &SqliteConnectOptions,
    connection: &mut Option<SqliteConnection>,
    batch: &mut [Box<dyn Job>],
) -> Result<(), sqlx::Error> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(options.connect().await?),
    };
    // Immediate: a transaction that begins as a reader could find another writer at its first write,
    // and could not continue.
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await?;
    for job in batch {
        job.apply(connection).await?;
    }
    sqlx::query("COMMIT").execute(connection).await?;
    Ok(())
}
