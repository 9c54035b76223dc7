//! `shortlink skip-codes`

use std::sync::Arc;

use shortlink_client::output::thousands;
use shortlink_service::skip::Skip;
use shortlink_store::Store;

use crate::config::Config;

/// The most links that may have been created since a backup.
pub(super) const MOST: u64 = 1_000_000_000_000;

/// Leaves codes out.
pub(super) async fn run(config: &Config, store: &Arc<Store>, links: u64) -> anyhow::Result<()> {
    let skip = Skip {
        store: Arc::clone(store),
        rules: config.codes.rules.clone(),
    };
    let skipped = skip.run(links).await?;
    eprintln!(
        "shortlink: {} counters skip the codes that {} links may have; {} codes of the pool are no \
         longer issued",
        skipped.counters,
        thousands(links),
        thousands(skipped.pooled)
    );
    Ok(())
}
