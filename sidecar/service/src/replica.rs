//! Watches the replica: how far behind it is, and whether the primary responds.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shortlink_core::ports::{Publisher, StoreError};
use shortlink_store::ReplicaWatch;
use tokio::time::Instant;

use crate::jobs::{Job, Next};

/// Interval of the looks at both servers. The age of a replica is known with this accuracy.
pub const EVERY: Duration = Duration::from_millis(500);

/// The job that watches the replica for this process.
pub struct WatchReplica {
    watch: ReplicaWatch,
    publisher: Arc<dyn Publisher>,
    /// The outcome of the last look; `None` before the first.
    was_usable: Option<bool>,
    primary_was_away: bool,
}

impl WatchReplica {
    /// Begins without knowledge.
    pub fn new(watch: ReplicaWatch, publisher: Arc<dyn Publisher>) -> Self {
        Self {
            watch,
            publisher,
            was_usable: None,
            primary_was_away: false,
        }
    }

    /// Logs what has changed since the last look.
    fn report(&mut self, looked: Result<(), StoreError>) {
        let is_away = self.watch.state().primary_is_away();
        if is_away != self.primary_was_away {
            self.primary_was_away = is_away;
            if is_away {
                tracing::warn!("the primary does not respond; the replica answers visitors");
            } else {
                tracing::info!("the primary responds again");
            }
        }
        // Without the primary nothing is known of the lag.
        let state = self.watch.state();
        let lag = state.standing().lag;
        let is_late = !is_away && lag.is_none_or(|lag| lag > state.max_lag());
        let is_usable = looked.is_ok() && !is_late;
        if self.was_usable.replace(is_usable) == Some(is_usable) {
            return;
        }
        match looked {
            Err(error) => tracing::warn!(
                error = &error as &dyn Error,
                "the replica cannot be used; listings and statistics are read from the primary"
            ),
            Ok(()) if is_late => tracing::warn!(
                lag_s = lag.map(|lag| lag.as_secs_f64()),
                "the replica is too far behind; listings and statistics are read from the primary"
            ),
            Ok(()) => tracing::info!("listings and statistics are read from the replica"),
        }
    }
}

#[async_trait]
impl Job for WatchReplica {
    type Error = StoreError;
    const NAME: &'static str = "replica";
    const FAILURE: &'static str = "watching the replica has failed";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let at = Instant::now();
        let (looked, seen) = tokio::join!(self.watch.look(), self.publisher.inspect());
        if let Ok((_, seen)) = seen {
            self.watch.state().note_watermark(at, seen.standing);
        }
        self.report(looked);
        Ok(Next::Idle)
    }

    async fn end(&mut self) -> Result<(), StoreError> {
        self.watch.close().await;
        Ok(())
    }
}
