//! Visits in SQLite.

mod keeping;
mod reclassify;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::ports::{KeptVisits, StoreError, VisitStore};
use shortlink_core::visit::Visit;

use super::SqliteStore;
use keeping::KeepVisits;

#[async_trait]
impl VisitStore for SqliteStore {
    async fn keep_visits(
        &self,
        visits: Vec<Visit>,
        now: Timestamp,
    ) -> Result<KeptVisits, StoreError> {
        let numbering = Arc::clone(&self.numbering);
        let keep = KeepVisits {
            visits,
            now,
            numbering,
        };
        self.writer.write(keep).await
    }
}
