//! Moves rows of visits by code into the tables of visits by ids of links.

use serde_json::{Value, json};
use shortlink_core::codes::numbering::Numbering;
use sqlx::sqlite::SqliteConnection;

use crate::sqlite::links::link_ids;

/// Number of rows that one transaction moves.
pub(super) const TOGETHER: i64 = 10_000;

/// A row of counts: code, hour, class, number of visits, and time of the last visit.
type HourRow = (String, i64, String, i64, i64);

/// Moves some counts within a transaction; `false` when there are none left.
pub(super) async fn move_some_hours(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
) -> Result<bool, sqlx::Error> {
    let rows: Vec<HourRow> = sqlx::query_as(
        "SELECT code, hour, class, visits, last_at FROM visit_link_hours_before \
         ORDER BY code, hour, class LIMIT ?1",
    )
    .bind(TOGETHER)
    .fetch_all(&mut *connection)
    .await?;
    if let Some((code, hour, class, ..)) = rows.last() {
        let codes = rows.iter().map(|(code, ..)| code.as_str());
        let ids = link_ids(connection, numbering, codes).await?;
        let mut moved: Vec<_> = ids.into_iter().zip(&rows).collect();
        // In the order in which they lie, so that neighbours are inserted together.
        moved.sort_by_key(|(id, _)| *id);
        let moved: Value = moved
            .into_iter()
            .map(|(id, (_, hour, class, visits, last_at))| {
                json!([id, hour, class, visits, last_at])
            })
            .collect();
        sqlx::query(
            "INSERT INTO visit_link_hours (link_id, hour, class, visits, last_at) \
             SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 \
             FROM json_each(?1)",
        )
        .bind(moved.to_string())
        .execute(&mut *connection)
        .await?;
        sqlx::query(
            "DELETE FROM visit_link_hours_before WHERE (code, hour, class) <= (?1, ?2, ?3)",
        )
        .bind(code)
        .bind(hour)
        .bind(class)
        .execute(&mut *connection)
        .await?;
    }
    Ok(!rows.is_empty())
}

/// Notes of some visits in one transaction which links they are of; `false` when there are none
/// left.
pub(super) async fn move_some(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
) -> Result<bool, sqlx::Error> {
    let visits: Vec<(i64, String)> = sqlx::query_as(
        "SELECT id, code FROM visits WHERE id > (SELECT max(last_id) FROM visits_before) \
         ORDER BY id LIMIT ?1",
    )
    .bind(TOGETHER)
    .fetch_all(&mut *connection)
    .await?;
    if let Some((last, _)) = visits.last() {
        let codes = visits.iter().map(|(_, code)| code.as_str());
        let ids = link_ids(connection, numbering, codes).await?;
        let known: Value = visits
            .iter()
            .zip(ids)
            .map(|((visit, _), id)| json!([visit, id]))
            .collect();
        sqlx::query(
            "UPDATE visits SET link_id = wanted.value ->> 1 FROM json_each(?1) AS wanted \
             WHERE visits.id = wanted.value ->> 0",
        )
        .bind(known.to_string())
        .execute(&mut *connection)
        .await?;
        sqlx::query("UPDATE visits_before SET last_id = ?1")
            .bind(last)
            .execute(&mut *connection)
            .await?;
    }
    Ok(!visits.is_empty())
}
