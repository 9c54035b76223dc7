//! Visits in PostgreSQL.

mod copy;
mod days;
mod keeping;
mod reclassify;

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::ports::{KeptVisits, StoreError, VisitStore};
use shortlink_core::visit::Visit;

use super::PostgresStore;
use keeping::KeepVisits;

pub(super) use days::Days;

#[async_trait]
impl VisitStore for PostgresStore {
    async fn keep_visits(
        &self,
        visits: Vec<Visit>,
        now: Timestamp,
    ) -> Result<KeptVisits, StoreError> {
        self.make_days(&visits, now).await?;
        let keep = KeepVisits {
            visits: &visits,
            now,
            numbering: &self.numbering,
        };
        self.transact(keep).await
    }
}
