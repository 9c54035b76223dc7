//! Links as rows of PostgreSQL.

use shortlink_core::link::Link;

use super::statements::Statements;
use crate::db::Db;
use crate::links::{LISTS, values};
use crate::sql::sql;
use crate::value::{Value, lists};

pub(super) use crate::columns::link as read;
pub(super) use crate::links::columns;

/// Stores the links whose ids are free; returns these ids in no order.
pub(super) async fn insert(
    connection: &mut Statements<'_>,
    ids: Vec<i64>,
    links: impl ExactSizeIterator<Item = &Link>,
) -> Result<Vec<i64>, sqlx::Error> {
    // One row with all ids costs less on the way than a row for each.
    let sql = sql!(
        "WITH kept AS (INSERT INTO links (id, ",
        columns!(),
        ") SELECT * FROM unnest(",
        LISTS,
        ") ON CONFLICT DO NOTHING RETURNING id) \
         SELECT coalesce(array_agg(id), ARRAY[]::bigint[]) AS ids FROM kept"
    );
    let mut values: Vec<Value<'_>> = lists(links.map(values));
    if values.is_empty() {
        return Ok(ids);
    }
    values.insert(0, ids.into());
    let mut db = Db::postgres(connection.connection());
    let kept = db.one(sql, &values, |row| row.get("ids")).await?;
    Ok(kept.unwrap_or_default())
}
