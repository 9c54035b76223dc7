//! Metrics of short domains.

use shortlink_core::ports::StoreError;

use super::text::{Text, metrics};
use crate::app::App;

/// Adds the suspected blocks, which the database has.
pub(super) async fn blocks(app: &App, text: &mut Text) -> Result<(), StoreError> {
    let blocks = app.store.blocks().await?;
    metrics! { text;
        gauge "shortlink_domain_suspected_blocked",
            "1 for each suspected block of a short domain, with the network that blocks it; the network is empty if visits from all of them have collapsed.",
            |samples| {
                for block in blocks.lasting(app.clock.now()) {
                    let network = block.network.as_deref().unwrap_or_default();
                    samples.add(&[("domain", &block.domain), ("network", network)], 1);
                }
            };
    }
    Ok(())
}
