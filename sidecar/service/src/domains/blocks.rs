//! The job that reports suspected blocks to webhooks and metrics: one process at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shortlink_core::blocks::Block;
use shortlink_core::clock::Clock;
use shortlink_core::ports::StoreError;
use shortlink_store::Store;

use super::{Domains, FallAt, Overview};
use crate::jobs::{Job, Next};

/// The interval of evaluations. Visits are counted by the minute.
pub const EVERY: Duration = Duration::from_secs(30);

/// Evaluates the visits of the short domains.
pub struct WatchBlocks {
    /// The short domains.
    pub domains: Arc<Domains>,
    /// The store of what is suspected.
    pub store: Arc<Store>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl Job for WatchBlocks {
    type Error = StoreError;
    const NAME: &'static str = "blocks";
    const FAILURE: &'static str = "suspected blocks can't be found; trying again until they can";
    const LEASE: Option<Duration> = Some(Duration::from_secs(20));

    async fn step(&mut self) -> Result<Next, StoreError> {
        let overview = self.domains.overview().await?;
        // While visits wait to be stored, nothing is known: suspicions stay as they are.
        if !overview.is_late {
            let now = self.clock.now();
            self.store.note_blocks(blocks(overview), now).await?;
        }
        Ok(Next::Idle)
    }
}

fn blocks(overview: Overview) -> Vec<Block> {
    let block = |domain: &str, network: Option<String>, fall: FallAt| Block {
        domain: domain.to_owned(),
        network,
        at: fall.at,
        before: fall.before,
        since: fall.since,
    };
    let of_domain = overview.domains.into_iter().flat_map(|domain| {
        let whole = domain.fall.map(|fall| (None, fall));
        let networks = domain.networks.into_iter();
        let parts = networks.map(|(network, fall)| (Some(network), fall));
        let found = whole.into_iter().chain(parts);
        let found = found.map(|(network, fall)| block(&domain.name, network, fall));
        found.collect::<Vec<_>>()
    });
    of_domain.collect()
}
