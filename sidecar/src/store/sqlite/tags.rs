//! Tags in SQLite: a list with each link, and a table to find links by.

use jiff::Timestamp;
use sqlx::sqlite::SqliteConnection;

use super::invalid;

/// What stands with a link that has these tags; nothing for none.
pub(super) fn to_column(tags: &[String]) -> Option<String> {
    if tags.is_empty() {
        return None;
    }
    Some(serde_json::Value::from(tags).to_string())
}

/// The tags that stand with a link.
pub(super) fn of_column(column: Option<&str>) -> Result<Vec<String>, sqlx::Error> {
    let Some(text) = column else {
        return Ok(Vec::new());
    };
    serde_json::from_str(text).map_err(|_error| invalid("links", "tags"))
}

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
    .bind(to_column(tags).unwrap_or_else(|| "[]".to_owned()))
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
