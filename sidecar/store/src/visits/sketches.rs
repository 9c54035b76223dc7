//! Sketches of the unique visitors of campaigns and days.
//!
//! A sketch has a row with its head and its estimate. The registers of a large one are in parts, rows of another table,
//! of which a transaction writes those that it changes. A head that has no parts leaves the rows of earlier ones, and
//! the next one with parts replaces them all.

use std::collections::{BTreeMap, HashMap};

use shortlink_core::visit::sketch::{Sketch, Stored};
use shortlink_core::visit::visitor::VisitorId;

use super::pruning::FREE;
use crate::Scheme;
use crate::db::Db;
use crate::sql::{sql, table};
use crate::value::{Row, Value, args, invalid};

/// A campaign, or all links, and a day.
type Day = (i64, i64);

/// A sketch that is locked until the transaction ends.
pub(super) struct Kept {
    of: Day,
    stored: Stored,
}

impl Kept {
    pub(super) fn sketch(&self) -> Result<Sketch, sqlx::Error> {
        parsed(&self.stored)
    }
}

/// Restores a sketch.
pub(super) fn parsed(stored: &Stored) -> Result<Sketch, sqlx::Error> {
    stored.sketch().ok_or_else(|| invalid("registers"))
}

/// Adds unique visitors.
pub(super) async fn add(
    db: &mut Db<'_>,
    visitors: &BTreeMap<Day, Vec<VisitorId>>,
) -> Result<(), sqlx::Error> {
    let kept = lock(db, visitors.keys().copied()).await?;
    let mut sketches = Vec::with_capacity(kept.len());
    for (kept, visitors) in kept.iter().zip(visitors.values()) {
        let mut sketch = kept.sketch()?;
        for visitor in visitors {
            sketch.add(*visitor);
        }
        sketches.push((kept, sketch));
    }
    put(db, sketches.iter().map(|(kept, sketch)| (*kept, sketch))).await
}

/// Locks the sketches of days, which [`put`] replaces, in their order; all transactions lock them in the same one.
/// SQLite has one writer, which only reads here.
pub(super) async fn lock(
    db: &mut Db<'_>,
    days: impl Iterator<Item = Day>,
) -> Result<Vec<Kept>, sqlx::Error> {
    let days: Vec<Day> = days.collect();
    let heads = lock_heads(db, &days).await?.into_iter();
    let mut locked: Vec<Kept> = days
        .into_iter()
        .zip(heads)
        .map(|(of, head)| {
            let stored = head.map_or_else(Stored::default, |head| Stored::with_head(&head));
            Kept { of, stored }
        })
        .collect();
    read_parts(db, &mut locked).await?;
    Ok(locked)
}

/// Days of campaigns, each with its place in a list.
const ASKED: &str = table!("asked": 1 "campaign_id" "bigint", 2 "day" "bigint", 3 "place" "bigint");

/// Values of [`ASKED`].
fn asked(db: &Db<'_>, days: impl Iterator<Item = (Day, i64)>) -> Vec<Value<'static>> {
    let rows = days.map(|((campaign, day), place)| [campaign, day, place].map(Value::from));
    db.table(rows.collect::<Vec<_>>().into_iter())
}

/// Locks the heads of days; `None` for one that SQLite does not have yet. Its one writer reads all at once. In PostgreSQL,
/// each is locked before the next, in the same order by all transactions.
async fn lock_heads(db: &mut Db<'_>, days: &[Day]) -> Result<Vec<Option<Vec<u8>>>, sqlx::Error> {
    let mut heads = vec![None; days.len()];
    if db.scheme() == Scheme::Postgres {
        for (head, day) in heads.iter_mut().zip(days) {
            *head = Some(lock_head(db, *day).await?);
        }
        return Ok(heads);
    }
    let sql = sql!(
        "SELECT asked.place, kept.registers FROM ",
        ASKED,
        " CROSS JOIN visit_sketches AS kept \
         WHERE kept.campaign_id = asked.campaign_id AND kept.day = asked.day"
    );
    let asked = asked(db, days.iter().copied().zip(0..));
    let read = |row: &Row| {
        let place: i64 = row.get("place")?;
        Ok((place, row.get::<&[u8]>("registers")?.to_vec()))
    };
    let mut found: HashMap<i64, Vec<u8>> = db.all(sql, &asked, read).await?;
    for (head, place) in heads.iter_mut().zip(0..) {
        *head = found.remove(&place);
    }
    Ok(heads)
}

/// Locks the head of a day in PostgreSQL, and inserts it if it is missing.
async fn lock_head(db: &mut Db<'_>, (campaign, day): Day) -> Result<Vec<u8>, sqlx::Error> {
    let read = |row: &Row| Ok(row.get::<&[u8]>("registers")?.to_vec());
    let sql = sql!(
        "SELECT registers FROM visit_sketches WHERE campaign_id = $1 AND day = $2",
        crate::sql::FOR_UPDATE
    );
    if let Some(head) = db.one(sql, args![campaign, day], read).await? {
        return Ok(head);
    }
    // The update changes nothing, but locks and returns a row that another transaction has just inserted.
    let sql = sql!(
        "INSERT INTO visit_sketches AS kept (campaign_id, day, registers) VALUES ($1, $2, $3) \
         ON CONFLICT (campaign_id, day) DO UPDATE SET registers = kept.registers RETURNING registers"
    );
    let nobody = Stored::default();
    let values = args![campaign, day, &*nobody.head];
    db.get(sql, values, read).await
}

/// Reads the parts of sketches that have some.
async fn read_parts(db: &mut Db<'_>, locked: &mut [Kept]) -> Result<(), sqlx::Error> {
    let large = locked.iter().zip(0..);
    let large = large.filter(|(kept, _)| !kept.stored.parts.is_empty());
    let large: Vec<(Day, i64)> = large.map(|(kept, place)| (kept.of, place)).collect();
    if large.is_empty() {
        return Ok(());
    }
    let sql = sql!(
        "SELECT asked.place, kept.part, kept.registers FROM ",
        ASKED,
        " {CROSS JOIN visit_sketch_parts AS kept WHERE|JOIN visit_sketch_parts AS kept ON} \
         kept.campaign_id = asked.campaign_id AND kept.day = asked.day"
    );
    let asked = asked(db, large.into_iter());
    let read = |row: &Row| {
        let of: (u64, u64) = (row.get("place")?, row.get("part")?);
        Ok((of, row.get::<&[u8]>("registers")?.to_vec()))
    };
    let mut found: HashMap<(u64, u64), Vec<u8>> = db.all(sql, &asked, read).await?;
    for (kept, place) in locked.iter_mut().zip(0..) {
        for (part, number) in kept.stored.parts.iter_mut().zip(0..) {
            *part = found.remove(&(place, number)).unwrap_or_default();
        }
    }
    Ok(())
}

/// Replaces sketches that are locked, as far as they differ.
pub(super) async fn put<'a>(
    db: &mut Db<'_>,
    sketches: impl Iterator<Item = (&'a Kept, &'a Sketch)>,
) -> Result<(), sqlx::Error> {
    let changed: Vec<(&Kept, Stored, Option<u64>)> = sketches
        .map(|(kept, sketch)| (kept, sketch, Stored::from(sketch)))
        .filter(|(kept, _, stored)| kept.stored != *stored)
        .map(|(kept, sketch, stored)| (kept, stored, sketch.stored_estimate()))
        .collect();
    let heads = changed.iter().map(|(kept, stored, visitors)| {
        let (campaign, day) = kept.of;
        let head = Value::from(&*stored.head);
        [campaign.into(), day.into(), head, (*visitors).into()]
    });
    let into = sql!("INSERT INTO visit_sketches AS kept (campaign_id, day, registers, visitors)");
    let types = ["bigint", "bigint", "bytea", "bigint"];
    let end = sql!(
        " ON CONFLICT (campaign_id, day) DO UPDATE SET registers = excluded.registers, \
         visitors = excluded.visitors"
    );
    db.insert(into, types, end, heads).await?;
    let parts = changed.iter().flat_map(|(kept, stored, _)| {
        let (campaign, day) = kept.of;
        let parts = stored.parts.iter().enumerate();
        let new = parts.filter(|(number, part)| kept.stored.parts.get(*number) != Some(*part));
        new.map(move |(number, part)| {
            [
                campaign.into(),
                day.into(),
                (number as u64).into(),
                Value::from(&**part),
            ]
        })
    });
    let parts: Vec<_> = parts.collect();
    let into = sql!("INSERT INTO visit_sketch_parts AS kept (campaign_id, day, part, registers)");
    let types = ["bigint", "bigint", "bigint", "bytea"];
    let end =
        sql!(" ON CONFLICT (campaign_id, day, part) DO UPDATE SET registers = excluded.registers");
    db.insert(into, types, end, parts.into_iter()).await
}

/// Deletes the sketches of days before one, at most `limit`; returns their number. Their heads are locked before their
/// parts are deleted, as for [`put`].
pub(super) async fn forget(db: &mut Db<'_>, before: i64, limit: u32) -> Result<u64, sqlx::Error> {
    let heads = sql!(
        "SELECT campaign_id, day FROM visit_sketches {INDEXED BY visit_sketches_by_day }\
         WHERE day < $1 ORDER BY day, campaign_id LIMIT $2",
        FREE
    );
    let read = |row: &Row| Ok((row.get("campaign_id")?, row.get("day")?));
    let old: Vec<Day> = db.all(heads, args![before, limit], read).await?;
    let rows = || {
        old.iter()
            .map(|(campaign, day)| [campaign, day].map(|number| (*number).into()))
    };
    let parts = sql!(
        "DELETE FROM visit_sketch_parts WHERE ",
        OLD[0],
        OLD[1],
        OLD[2]
    );
    db.run_table(parts, rows(), &[]).await?;
    let heads = sql!("DELETE FROM visit_sketches WHERE ", OLD[0], OLD[1], OLD[2]);
    db.run_table(heads, rows(), &[]).await
}

/// Finds what belongs to days that are parameters.
const OLD: [&str; 3] = [
    "(campaign_id, day) IN (SELECT campaign_id, day FROM ",
    table!("old": 1 "campaign_id" "bigint", 2 "day" "bigint"),
    ")",
];
