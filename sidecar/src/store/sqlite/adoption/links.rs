//! Moving links that were kept before they had numbers.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use crate::core::codes::numbering::Numbering;
use crate::core::ports::MAX_TOGETHER;
use crate::store::sqlite::creation::create;
use crate::store::sqlite::links::read;

/// Moves some links within a transaction; `false` when there are none left.
pub(super) async fn move_some(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
) -> Result<bool, sqlx::Error> {
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
    Ok(last.is_some())
}
