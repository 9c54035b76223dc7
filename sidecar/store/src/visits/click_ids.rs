//! The click ids of visits, by which conversions find their links.

use std::collections::HashMap;

use jiff::Timestamp;
use shortlink_core::ports::StoreError;
use vocabulary::{ClickId, Code};

use super::Taken;
use super::erasure::overwrite;
use super::pruning::FREE;
use crate::Store;
use crate::db::Db;
use crate::sql::{IN_TEXTS, sql};
use crate::value::{Row, Value, args};

/// The most ids that a step of an erasure deletes.
const ERASED_PER_STEP: u32 = 5_000;

/// Stores the ids of those of new visits that have one, and whose links exist.
pub(super) async fn add(db: &mut Db<'_>, visits: &[Taken<'_>]) -> Result<(), sqlx::Error> {
    let of_links = visits.iter().filter(|it| it.link.is_some());
    let rows = of_links.filter_map(|Taken { visit, .. }| {
        let ClickId(bytes) = visit.click.as_ref()?;
        let (bytes, code): (Value<'_>, Value<'_>) = ((&bytes[..]).into(), (&visit.code).into());
        Some([bytes, code, visit.at.into()])
    });
    let rows: Vec<_> = rows.collect();
    let into = sql!("INSERT INTO visit_clicks (click_id, code, at)");
    let end = sql!(" ON CONFLICT (click_id) DO NOTHING");
    let types = ["bytea", "text", "bigint"];
    db.insert(into, types, end, rows.into_iter()).await
}

/// The codes of the visits with some ids, of those that are stored.
pub(crate) async fn codes(
    db: &mut Db<'_>,
    ids: &[ClickId],
) -> Result<HashMap<ClickId, Code>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = sql!(
        "SELECT click_id, code FROM visit_clicks WHERE click_id\
         { IN (SELECT unhex(value) FROM json_each($1))| = ANY($1::bytea[])}"
    );
    let list: Vec<&[u8]> = ids.iter().map(|ClickId(bytes)| &bytes[..]).collect();
    let read = |row: &Row| Ok((ClickId(row.get("click_id")?), row.get("code")?));
    db.all(sql, args![list], read).await
}

/// Erases the ids of visits of links up to a time. Returns false if there may be more of them.
pub(crate) async fn erase(
    db: &mut Db<'_>,
    codes: &[Code],
    until: Timestamp,
) -> Result<bool, sqlx::Error> {
    let sql = sql!(
        "DELETE FROM visit_clicks WHERE click_id IN (SELECT click_id FROM visit_clicks WHERE code",
        IN_TEXTS,
        " AND at <= $2 LIMIT $3)"
    );
    let codes: Vec<&str> = codes.iter().map(Code::as_str).collect();
    overwrite(db, true).await?;
    let deleted = db.run(sql, args![codes, until, ERASED_PER_STEP]).await;
    overwrite(db, false).await?;
    Ok(deleted? < u64::from(ERASED_PER_STEP))
}

impl Store {
    /// Deletes some click ids of visits before a moment, at most `limit`; returns their number.
    pub async fn forget_click_ids(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let sql = sql!(
            "WITH old AS MATERIALIZED (SELECT click_id FROM visit_clicks WHERE at < $1 ORDER BY at LIMIT $2",
            FREE,
            ") DELETE FROM visit_clicks WHERE click_id IN (SELECT click_id FROM old)"
        );
        self.run("delete old click ids", sql, args![before, limit])
            .await
    }
}
