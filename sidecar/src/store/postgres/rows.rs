//! Links as rows of PostgreSQL.

use super::statements::Statements;
use crate::core::link::Link;
use crate::store::db::Db;
use crate::store::links::{LISTS, values};
use crate::store::sql::sql;
use crate::store::value::{Value, lists};

pub(super) use crate::store::columns::link as read;
pub(super) use crate::store::links::columns;

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
