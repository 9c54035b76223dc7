//! Links in PostgreSQL: those that are created, and ids.

use std::collections::HashMap;

use shortlink_core::codes::numbering::Numbering;
use shortlink_core::link::Link;
use sqlx::Row as _;
use vocabulary::Code;

use super::rows::{columns, read};
use super::statements::Statements;
use crate::db::Db;
use crate::links;

/// The ids that the links of codes have, each in its code's place; none for a code that no link
/// can have had.
pub(super) async fn known_ids(
    connection: &mut Statements<'_>,
    numbering: &Numbering,
    codes: &[Code],
) -> Result<Vec<Option<i64>>, sqlx::Error> {
    let mut db = Db::postgres(connection.connection());
    links::known_ids(&mut db, numbering, codes).await
}

/// Finds the links that have these ids.
pub(super) async fn find_by_id(
    connection: &mut Statements<'_>,
    ids: Vec<i64>,
) -> Result<HashMap<i64, Link>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query(concat!(
        "SELECT id, ",
        columns!(),
        " FROM links WHERE id = ANY($1::bigint[])"
    ))
    .bind(ids)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| Ok((row.try_get("id")?, read(row)?)))
        .collect()
}
