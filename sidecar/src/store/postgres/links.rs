//! Links in PostgreSQL: those that are created, and ids.

use std::collections::HashMap;

use sqlx::Row as _;
use vocabulary::Code;

use super::rows::{columns, read};
use super::statements::Statements;
use crate::core::codes::numbering::Numbering;
use crate::core::link::Link;

/// The ids that the links of codes have, each in its code's place; none for a code that no link
/// can have had.
pub(super) async fn known_ids(
    connection: &mut Statements<'_>,
    numbering: &Numbering,
    codes: &[Code],
) -> Result<Vec<Option<i64>>, sqlx::Error> {
    let numbers = codes.iter().map(|code| numbering.number(code));
    let mut ids: Vec<Option<i64>> = numbers
        .map(|number| number.map(|number| number.get()))
        .collect();
    let unknown = codes.iter().zip(&ids).filter(|(_, id)| id.is_none());
    let far: Vec<&str> = unknown.map(|(code, _)| code.as_str()).collect();
    if !far.is_empty() {
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT code, -id FROM far_codes WHERE code = ANY($1::text[])")
                .bind(far)
                .fetch_all(connection)
                .await?;
        let far: HashMap<String, i64> = rows.into_iter().collect();
        for (id, code) in ids.iter_mut().zip(codes) {
            *id = id.or_else(|| far.get(code.as_str()).copied());
        }
    }
    Ok(ids)
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
