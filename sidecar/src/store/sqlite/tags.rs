//! Tags in SQLite, where links are found by them.

use jiff::Timestamp;
use sqlx::sqlite::SqliteConnection;

use crate::store::texts::of_tags;

/// Has a link found by tags.
pub(super) async fn add(
    connection: &mut SqliteConnection,
    id: i64,
    created_at: Timestamp,
    tags: &[String],
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO link_tags (tag, link_created_at, link_id) \
         SELECT value, ?2, ?3 FROM json_each(?1)",
    )
    .bind(of_tags(tags).unwrap_or_else(|| "[]".to_owned()))
    .bind(created_at.as_millisecond())
    .bind(id)
    .execute(connection)
    .await?;
    Ok(())
}

/// Has a link found by tags no more.
pub(super) async fn remove(
    connection: &mut SqliteConnection,
    id: i64,
    created_at: Timestamp,
    tags: &[String],
) -> Result<(), sqlx::Error> {
    for tag in tags {
        sqlx::query(
            "DELETE FROM link_tags WHERE tag = ?1 AND link_created_at = ?2 AND link_id = ?3",
        )
        .bind(tag)
        .bind(created_at.as_millisecond())
        .bind(id)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}
