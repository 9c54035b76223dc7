//! The connections and settings of commands that maintain Redis.

use std::sync::Arc;

use shortlink_core::clock::{Clock, SystemClock};
use shortlink_core::ports::RecordIndex;
use shortlink_publisher::RedisIndex;
use shortlink_service::jobs::Claims;
use shortlink_store as store;
use shortlink_store::Store;

use crate::config::Config;
use crate::random;

/// The store and Redis.
pub(super) struct Workbench {
    pub(super) store: Arc<Store>,
    pub(super) index: Arc<dyn RecordIndex>,
    pub(super) clock: Arc<dyn Clock>,
    /// The place where jobs are claimed.
    pub(super) claims: Claims,
}

impl Workbench {
    /// Does some work with it, and closes it.
    pub(super) async fn with<T>(
        config: &Config,
        work: impl AsyncFnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let bench = Self::open(config).await?;
        let done = work(&bench).await;
        bench.store.close().await;
        done
    }

    async fn open(config: &Config) -> anyhow::Result<Self> {
        let store = store::open(&config.database).await?;
        let index = RedisIndex::new(&config.redis)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let claims = Claims {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            holder: random::holder()?,
        };
        Ok(Self {
            store,
            index: Arc::new(index),
            clock,
            claims,
        })
    }
}
