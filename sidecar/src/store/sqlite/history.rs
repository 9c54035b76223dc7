//! What links were before their changes, in SQLite.

use jiff::Timestamp;
use sqlx::sqlite::{SqliteConnection, SqlitePool};

use super::invalid;
use crate::core::link::{Link, PastChange};
use crate::store::past::Past;

/// Keeps what a link was before a change, in the transaction that changes it.
pub(super) async fn add(
    connection: &mut SqliteConnection,
    id: i64,
    before: &Link,
    changed_at: Timestamp,
    changed_by: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO link_history (link_id, revision, changed_at, changed_by, before) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )
    .bind(id)
    .bind(before.revision as i64)
    .bind(changed_at.as_millisecond())
    .bind(changed_by)
    .bind(Past::of(before).to_json())
    .execute(connection)
    .await?;
    Ok(())
}

/// Reads the changes that a link, as it is now, has been through; the latest first.
pub(super) async fn read(
    readers: &SqlitePool,
    id: i64,
    now: &Link,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<PastChange>, sqlx::Error> {
    let before = before.and_then(|revision| i64::try_from(revision).ok());
    let rows: Vec<(i64, i64, String, String)> = sqlx::query_as(
        "SELECT revision, changed_at, changed_by, before FROM link_history \
         WHERE link_id = ?1 AND revision < ?2 ORDER BY revision DESC LIMIT ?3",
    )
    .bind(id)
    .bind(before.unwrap_or(i64::MAX))
    .bind(limit)
    .fetch_all(readers)
    .await?;
    rows.into_iter()
        .map(|(revision, changed_at, changed_by, json)| {
            let before = Past::from_json(&json)
                .and_then(|past| past.link(now, revision.unsigned_abs()))
                .ok_or_else(|| invalid("link_history", "before"))?;
            Ok(PastChange {
                changed_at: Timestamp::from_millisecond(changed_at)
                    .map_err(|_error| invalid("link_history", "changed_at"))?,
                changed_by,
                before,
            })
        })
        .collect()
}
