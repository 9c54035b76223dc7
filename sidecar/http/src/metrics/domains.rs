//! Metrics of short domains.

use shortlink_core::ports::StoreError;

use super::text::{Text, metrics};
use crate::app::App;

/// Adds the suspected blocks, which the database has.
pub(super) async fn blocks(app: &App, text: &mut Text) -> Result<(), StoreError> {
    let blocks = app.store.blocks().await?;
    metrics! { text;
        gauge "shortlink_domain_suspected_blocked",
            "1 for each suspected block of a short domain, by network or all of them; 0 without a domain while there is none.",
            |samples| {
                for by in ["all", "network"] {
                    let lasting = blocks.lasting(app.clock.now());
                    let is_of = |network: bool| network == (by == "network");
                    let mut found = lasting.filter(|it| is_of(it.network.is_some())).peekable();
                    if found.peek().is_none() {
                        samples.add(&[("by", by), ("domain", ""), ("network", "")], 0);
                    }
                    for block in found {
                        let network = block.network.as_deref().unwrap_or_default();
                        samples.add(&[("by", by), ("domain", &block.domain), ("network", network)], 1);
                    }
                }
            };
    }
    Ok(())
}
