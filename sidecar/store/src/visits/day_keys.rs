//! The day keys, from which visitor ids follow.

use async_trait::async_trait;
use jiff::civil::Date;
use shortlink_core::ports::StoreError;
use shortlink_core::visit::visitor::{DayKey, DayKeys};

use super::erasure::overwrite;
use crate::sql::sql;
use crate::value::{Row, args};
use crate::{Scheme, Store};

#[async_trait]
impl DayKeys for Store {
    async fn day_key(&self, day: Date, fresh: DayKey) -> Result<DayKey, StoreError> {
        let args = (day.to_string(), fresh);
        self.run_one("take the key of a day", args, |db, (day, fresh)| {
            Box::pin(async move {
                // The update changes nothing, but returns an existing row.
                let sql = sql!(
                    "INSERT INTO visit_day_keys (day, key) VALUES ($1, $2) \
                     ON CONFLICT (day) DO UPDATE SET key = visit_day_keys.key RETURNING key"
                );
                let values = args![day, fresh.expose().as_slice()];
                let key = db.one(sql, values, read).await?;
                key.ok_or(sqlx::Error::RowNotFound)
            })
        })
        .await
    }

    async fn known_day_key(&self, day: Date) -> Result<Option<DayKey>, StoreError> {
        let sql = sql!("SELECT key FROM visit_day_keys WHERE day = $1");
        self.one(
            "look for the key of a day",
            sql,
            args![day.to_string()],
            read,
        )
        .await
    }

    async fn destroy_day_keys(&self, before: Date) -> Result<u64, StoreError> {
        let before = before.to_string();
        self.run_one("destroy the keys of days", before, |db, before| {
            Box::pin(async move {
                let delete = sql!("DELETE FROM visit_day_keys WHERE day < $1");
                if db.scheme() == Scheme::Postgres {
                    let destroyed = db.run(delete, args![before]).await?;
                    if destroyed > 0 {
                        // Else the dead rows stay in the table's file until the server vacuums it.
                        db.run(sql!("VACUUM visit_day_keys"), &[]).await?;
                    }
                    return Ok(destroyed);
                }
                overwrite(db, true).await?;
                let destroyed = db.run(delete, args![before]).await;
                overwrite(db, false).await?;
                destroyed
            })
        })
        .await
    }
}

fn read(row: &Row) -> Result<DayKey, sqlx::Error> {
    row.get("key").map(DayKey::new)
}
