//! What SQL alone can't do for a migration: making the key that codes are numbered by, and moving
//! links that were kept before they had numbers.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::creation::create;
use super::links::read;
use crate::domain::codes::numbering::{CodeKey, Numbering};
use crate::domain::ports::MAX_TOGETHER;

/// The key that codes are numbered by.
pub(super) async fn code_key(
    connection: &mut SqliteConnection,
) -> Result<Option<CodeKey>, sqlx::Error> {
    let value: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT value FROM settings WHERE name = 'code_key'")
            .fetch_optional(connection)
            .await?;
    Ok(value
        .and_then(|bytes| bytes.try_into().ok())
        .map(CodeKey::new))
}

/// Makes the key if there is none, and moves what was kept without numbers. What was moved stays
/// moved if this is interrupted, and the rest is moved the next time.
pub(super) async fn finish(
    connection: &mut SqliteConnection,
    new_key: &CodeKey,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO settings (name, value) VALUES ('code_key', ?1) ON CONFLICT DO NOTHING",
    )
    .bind(new_key.bytes().as_slice())
    .execute(&mut *connection)
    .await?;
    let before: Option<i64> =
        sqlx::query_scalar("SELECT 1 FROM sqlite_master WHERE name = 'links_before'")
            .fetch_optional(&mut *connection)
            .await?;
    if before.is_none() {
        return Ok(());
    }
    let Some(key) = code_key(connection).await? else {
        return Ok(());
    };
    let numbering = Numbering::new(&key);
    while adopt_some(connection, &numbering).await? {}
    sqlx::query("DROP TABLE links_before")
        .execute(connection)
        .await?;
    Ok(())
}

/// Moves some links in one transaction; `false` when there are none left.
async fn adopt_some(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
) -> Result<bool, sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await?;
    let rows = sqlx::query(
        "SELECT id AS old_id, code, target, NULL AS campaign_id, NULL AS parameters, redirect_status, 0 AS forward_query, revision, \
         NULL AS valid_since, expires_at AS valid_until, NULL AS max_visits, NULL AS paused_at, \
         revoked_at, created_at, updated_at, created_by, NULL AS external_id, NULL AS note, \
         NULL AS tags FROM links_before ORDER BY id LIMIT ?1",
    )
    .bind(MAX_TOGETHER as i64)
    .fetch_all(&mut *connection)
    .await?;
    let links = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let last: Option<i64> = rows.last().map(|row| row.try_get("old_id")).transpose()?;
    if let Some(last) = last {
        // Their codes were unique. Whatever Redis has not been told yet it is told now.
        create(connection, &links, numbering).await?;
        sqlx::query("DELETE FROM links_before WHERE id <= ?1")
            .bind(last)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("COMMIT").execute(connection).await?;
    Ok(last.is_some())
}
