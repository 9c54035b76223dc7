//! Visits in SQLite.

mod keeping;
mod reclassify;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::SqliteStore;
use crate::core::ports::{KeptVisits, StoreError, VisitStore};
use crate::core::visit::Visit;
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
