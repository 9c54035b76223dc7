//! The one connection that writes.
//!
//! Changes arrive in a queue. The writer takes all of them, runs them in one transaction, makes
//! that durable and answers every caller. While it waits for the disk the next batch gathers, so
//! that many callers share one `fsync` and a single caller waits for no one else.
//!
//! A change is independent of its request: if the caller is dropped, the transaction still completes.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::ports::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::db::Db;
use crate::shared::store_error;
use crate::tx::{Done, Operation, Work};
use crate::value::named;

/// Maximum number of changes per transaction. Each of its callers waits for all of them.
const MAX_BATCH: usize = 256;

/// The most changes that may wait in the queue. More callers wait before it.
const MAX_QUEUE: usize = 1024;

/// A hand on the connection that writes.
pub(crate) struct Writer {
    queue: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts writing on a connection; another one is opened when it breaks.
    pub(super) fn start(
        options: SqliteConnectOptions,
        connection: SqliteConnection,
        numbering: Arc<Numbering>,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_QUEUE);
        let task = tokio::spawn(run(options, connection, numbering, receiver));
        Self {
            queue: Mutex::new(Some(sender)),
            task: Mutex::new(Some(task)),
        }
    }

    /// Has an operation done within a transaction that others share.
    pub(crate) async fn run<A, T, F>(
        &self,
        operation: &'static str,
        work: Operation<A, T, F>,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Send + Sync + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Queued {
            operation,
            work,
            reply,
        };
        self.enqueue(operation, Box::new(job)).await?;
        answer.await.map_err(|_gone| closed(operation))?
    }

    fn enqueue(
        &self,
        operation: &'static str,
        job: Box<dyn Job>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let queue = self.queue.lock().await.clone();
            let queue = queue.ok_or_else(|| closed(operation))?;
            queue.send(job).await.map_err(|_job| closed(operation))
        })
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

fn closed(operation: &'static str) -> StoreError {
    store_error(operation, Arc::new(WriterClosed))
}

/// An operation in the queue.
trait Job: Send {
    /// Returns its name and its work, which runs within a transaction that others share: an error rolls back all.
    fn work(&mut self) -> (&'static str, &mut dyn Work);

    /// Reports the outcome of the transaction to the caller.
    fn finish(self: Box<Self>, outcome: Result<(), Arc<sqlx::Error>>);
}

/// An operation of any kind in the queue.
struct Queued<A, T, F> {
    operation: &'static str,
    work: Operation<A, T, F>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<A, T, F> Job for Queued<A, T, F>
where
    A: Send + Sync,
    T: Send,
    F: for<'a> Fn(&'a mut Db<'a>, &'a A) -> Done<'a, T> + Send + Sync,
{
    fn work(&mut self) -> (&'static str, &mut dyn Work) {
        (self.operation, &mut self.work)
    }

    fn finish(self: Box<Self>, outcome: Result<(), Arc<sqlx::Error>>) {
        let answer = match outcome {
            Ok(()) => self.work.into_output(self.operation),
            Err(error) => Err(store_error(self.operation, error)),
        };
        // Fails if the caller was dropped, which does not matter.
        let _ = self.reply.send(answer);
    }
}

async fn run(
    options: SqliteConnectOptions,
    connection: SqliteConnection,
    numbering: Arc<Numbering>,
    mut queue: mpsc::Receiver<Box<dyn Job>>,
) {
    let mut connection = Some(connection);
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while queue.recv_many(&mut batch, MAX_BATCH).await > 0 {
        let outcome = match commit(&options, &mut connection, &numbering, &mut batch).await {
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
            "the database was not closed cleanly"
        );
    }
}

/// Runs a batch in one transaction. Opens a connection first when there is none.
async fn commit(
    options: &SqliteConnectOptions,
    connection: &mut Option<SqliteConnection>,
    numbering: &Numbering,
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
        let (operation, work) = job.work();
        let done = work.run(&mut Db::sqlite(connection, numbering)).await;
        done.map_err(named(operation))?;
    }
    sqlx::query("COMMIT").execute(connection).await?;
    Ok(())
}
