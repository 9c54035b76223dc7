//! Entries of the queue that are not visits.

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{MAX_POISON, Poison, StoreError};

use crate::Store;
use crate::sql::sql;
use crate::value::{Row, args};

impl Store {
    /// Stores entries of the queue that are no visits, for inspection: each once, and only the
    /// latest [`MAX_POISON`] of all.
    #[boxed]
    pub async fn quarantine(&self, poison: Vec<Poison>, now: Timestamp) -> Result<(), StoreError> {
        let operation = "quarantine a visit";
        self.run_tx(operation, (poison, now), |db, (poison, now)| {
            Box::pin(async move {
                for poison in poison {
                    let sql = sql!(
                        "INSERT INTO visit_quarantine (entry, at, reason, bytes) \
                         VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
                    );
                    // An entry that is delivered again with the same batch has the same name.
                    let id = &poison.id;
                    let entry = format!("{}/{}/{}", id.shard, id.entry, poison.place);
                    let values = args![entry, *now, &poison.reason, poison.bytes.as_slice()];
                    db.run(sql, values).await?;
                }
                let sql = sql!(
                    "DELETE FROM visit_quarantine \
                     WHERE id <= (SELECT max(id) FROM visit_quarantine) - $1"
                );
                db.run(sql, args![MAX_POISON]).await?;
                Ok(())
            })
        })
        .await
    }

    /// Counts the entries in quarantine.
    #[boxed]
    pub async fn count_quarantine(&self) -> Result<u64, StoreError> {
        let sql = sql!("SELECT count(*) AS entries FROM visit_quarantine");
        let read = |row: &Row| row.get("entries");
        let count = self.one("count what is in quarantine", sql, &[], read);
        Ok(count.await?.unwrap_or_default())
    }
}
