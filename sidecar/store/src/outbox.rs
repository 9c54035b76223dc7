//! The outbox, as far as both engines treat it alike.

use jiff::Timestamp;
use shortlink_core::ports::StoreError;

use super::Store;
use super::sql::sql;
use super::value::{Row, args};

impl Store {
    /// Counts the rows that wait since a moment or longer, no further than `most`.
    pub async fn count_waiting(&self, since: Timestamp, most: u32) -> Result<u32, StoreError> {
        let sql = sql!(
            "SELECT count(*) AS waiting FROM (SELECT 1 FROM campaign_outbox \
             WHERE enqueued_at <= $1 AND applied_at IS NULL \
             UNION ALL SELECT 1 FROM outbox \
             WHERE enqueued_at <= $1 AND applied_at IS NULL LIMIT $2) AS waiting"
        );
        let read = |row: &Row| row.get("waiting");
        let values = args![since, most];
        let count = self.one("count the outbox", sql, values, read);
        Ok(count.await?.unwrap_or_default())
    }

    /// Has everything that was applied, campaigns included, wait again; returns the number of rows.
    pub async fn reopen_applied(&self) -> Result<u64, StoreError> {
        self.run_tx("reopen the outbox", (), |db, ()| {
            Box::pin(async move {
                let links = sql!(
                    "UPDATE outbox SET applied_at = NULL \
                     WHERE revision > 1 AND applied_at IS NOT NULL"
                );
                let campaigns = sql!(
                    "UPDATE campaign_outbox SET applied_at = NULL WHERE applied_at IS NOT NULL"
                );
                Ok(db.run(links, args![]).await? + db.run(campaigns, args![]).await?)
            })
        })
        .await
    }

    /// Deletes rows that were applied before a moment.
    pub async fn forget_applied(&self, before: Timestamp) -> Result<(), StoreError> {
        self.run_tx("clear the outbox", before, |db, before| {
            Box::pin(async move {
                let links = sql!("DELETE FROM outbox WHERE revision > 1 AND applied_at < $1");
                db.run(links, args![*before]).await?;
                let campaigns = sql!("DELETE FROM campaign_outbox WHERE applied_at < $1");
                db.run(campaigns, args![*before]).await?;
                Ok(())
            })
        })
        .await
    }
}
