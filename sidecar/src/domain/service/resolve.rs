//! Following links for the edge when Redis could not say.
//!
//! Whoever comes here waits with a phone in hand. So nothing is asked that can be known without
//! asking, SQL gets a bounded time, and what SQL has said is written to Redis only after the
//! answer and never waited for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use vocabulary::{Code, CodeRules, Verdict};

use crate::clock::Clock;
use crate::domain::link::{Link, State};
use crate::domain::ports::{PublishError, Publisher, Store, StoreError};

/// How long SQL may take to find a link before the visitor is asked to come back.
const LOOKUP_LIMIT: Duration = Duration::from_secs(1);

/// The most writes to Redis under way at once. With more to do, writes are left out: the next
/// visitor's will do.
const MAX_BACKFILLS: usize = 64;

/// What a visitor is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// To go on to the link's target.
    Redirect(Box<Link>),
    /// That there was a link and is none any more.
    Gone,
    /// That there is no link, or none yet.
    Unknown,
}

/// Why nobody can know what to tell a visitor.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// SQL failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// SQL took too long.
    #[error("the database did not find the link within {limit_ms} ms")]
    Slow {
        /// How long it was given, in milliseconds.
        limit_ms: u128,
    },
}

/// Follows links.
pub struct Resolver {
    store: Arc<dyn Store>,
    publisher: Arc<dyn Publisher>,
    rules: CodeRules,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    permits: Arc<Semaphore>,
}

impl Resolver {
    /// Follows links of `store` and writes what it finds through `publisher`, in `tasks`.
    pub fn new(
        store: Arc<dyn Store>,
        publisher: Arc<dyn Publisher>,
        rules: CodeRules,
        clock: Arc<dyn Clock>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            store,
            publisher,
            rules,
            clock,
            tasks,
            permits: Arc::new(Semaphore::new(MAX_BACKFILLS)),
        }
    }

    /// Says where a code leads.
    ///
    /// # Errors
    /// When SQL fails or is slow. That is never the answer that there is no link.
    pub async fn resolve(&self, code: &[u8]) -> Result<Resolution, ResolveError> {
        let Ok(code) = Code::parse(code) else {
            return Ok(Resolution::Unknown);
        };
        if self.rules.judge(&code) == Verdict::WrongCheck {
            return Ok(Resolution::Unknown);
        }
        let found = tokio::time::timeout(LOOKUP_LIMIT, self.store.find_link(&code))
            .await
            .map_err(|_elapsed| ResolveError::Slow {
                limit_ms: LOOKUP_LIMIT.as_millis(),
            })??;
        let Some(link) = found else {
            let store = Arc::clone(&self.store);
            self.backfill(move |publisher| async move {
                publisher.note_unknown(&code).await?;
                // A link that was made and published since SQL was asked, and lost by Redis before
                // the note was written, would be answered 404: whoever has noted looks again.
                match store.find_link(&code).await {
                    Ok(Some(link)) => publisher.publish(&[link]).await,
                    Ok(None) | Err(_) => Ok(()),
                }
            });
            return Ok(Resolution::Unknown);
        };
        let record = link.clone();
        self.backfill(move |publisher| async move { publisher.publish(&[record]).await });
        Ok(match link.state(self.clock.now()) {
            State::Live => Resolution::Redirect(Box::new(link)),
            State::Scheduled => Resolution::Unknown,
            State::Paused | State::Expired | State::Revoked => Resolution::Gone,
        })
    }

    /// Has something written to Redis in the background, or not at all when enough is under way.
    fn backfill<F, W>(&self, write: F)
    where
        F: FnOnce(Arc<dyn Publisher>) -> W,
        W: Future<Output = Result<(), PublishError>> + Send + 'static,
    {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return;
        };
        let write = write(Arc::clone(&self.publisher));
        self.tasks.spawn(async move {
            if let Err(error) = write.await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "Redis was not told of a link that was looked up"
                );
            }
            drop(permit);
        });
    }
}
