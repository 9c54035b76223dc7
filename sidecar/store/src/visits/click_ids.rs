//! The click ids of visits, by which conversions find their links.

use std::collections::HashMap;

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{KeptVisit, StoreError};
use vocabulary::{ClickId, Code};

use super::Taken;
use super::erasure::overwrite;
use super::pruning::FREE;
use crate::Store;
use crate::db::Db;
use crate::sql::{IN_NUMBERS, IN_TEXTS, Sql, sql};
use crate::value::{Row, Value, args};

/// The most ids that a step of an erasure deletes.
const ERASED_PER_STEP: u32 = 5_000;

/// Finds the numbers of the visits that this transaction has inserted into PostgreSQL, in their order: other transactions
/// draw numbers meanwhile.
const OWN: Sql = sql!(
    "SELECT id FROM visits WHERE id >= $1 AND id <= $2 AND at >= $3 AND at <= $4 \
     AND {1|xmin = pg_current_xact_id()::xid} ORDER BY id"
);

/// Stores the ids of those of new visits that have one, and whose links exist. The visits have the numbers from a first to
/// a last one.
pub(super) async fn add(
    db: &mut Db<'_>,
    visits: &[Taken<'_>],
    (first, last): (i64, i64),
) -> Result<(), sqlx::Error> {
    let of_links = visits.iter().enumerate();
    let clicks = of_links.filter_map(|(place, it)| Some((place, it, it.visit.click?)));
    let clicks: Vec<_> = clicks.filter(|(_, it, _)| it.link.is_some()).collect();
    if clicks.is_empty() {
        return Ok(());
    }
    let is_consecutive = last - first + 1 == visits.len() as i64;
    let numbers: Vec<i64> = if is_consecutive {
        (first..=last).collect()
    } else {
        let times = visits.iter().map(|it| it.visit.at);
        let (earliest, latest) = (times.clone().min(), times.max());
        let values = args![first, last, earliest, latest];
        db.all(OWN, values, |row| row.get("id")).await?
    };
    let rows = clicks.iter().map(|(place, it, ClickId(bytes))| {
        let (bytes, code): (Value<'_>, Value<'_>) = ((&bytes[..]).into(), (&it.visit.code).into());
        let number = numbers.get(*place).copied();
        let variant = (&it.visit.variant).into();
        [bytes, code, it.visit.at.into(), number.into(), variant]
    });
    let into = sql!("INSERT INTO visit_clicks (click_id, code, at, visit_id, variant)");
    let end = sql!(" ON CONFLICT (click_id) DO NOTHING");
    let types = ["bytea", "text", "bigint", "bigint", "text"];
    db.insert(into, types, end, rows).await
}

/// Adds the click ids of visits to them.
pub(super) async fn fill<'a>(
    db: &mut Db<'_>,
    visits: impl Iterator<Item = &'a mut KeptVisit>,
) -> Result<(), sqlx::Error> {
    let mut visits: HashMap<i64, &mut KeptVisit> = visits.map(|it| (it.number, it)).collect();
    let sql = sql!(
        "SELECT visit_id, click_id FROM visit_clicks WHERE visit_id",
        IN_NUMBERS
    );
    let mut numbers: Vec<i64> = visits.keys().copied().collect();
    numbers.sort_unstable();
    let read = |row: &Row| {
        let id = ClickId(row.get("click_id")?);
        Ok((row.get("visit_id")?, id))
    };
    let found: Vec<(i64, ClickId)> = db.all(sql, args![numbers], read).await?;
    for (number, id) in found {
        if let Some(visit) = visits.get_mut(&number) {
            visit.click_id = Some(id.to_string());
        }
    }
    Ok(())
}

/// The codes of the visits with some ids, and the variants that they followed, which are empty without one; of those that
/// are stored.
pub(crate) async fn codes(
    db: &mut Db<'_>,
    ids: &[ClickId],
) -> Result<HashMap<ClickId, (Code, String)>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = sql!(
        "SELECT click_id, code, variant FROM visit_clicks WHERE click_id\
         { IN (SELECT unhex(value) FROM json_each($1))| = ANY($1::bytea[])}"
    );
    let list: Vec<&[u8]> = ids.iter().map(|ClickId(bytes)| &bytes[..]).collect();
    let read = |row: &Row| {
        let variant: Option<String> = row.find("variant")?;
        let of = (row.get("code")?, variant.unwrap_or_default());
        Ok((ClickId(row.get("click_id")?), of))
    };
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
    #[boxed]
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
