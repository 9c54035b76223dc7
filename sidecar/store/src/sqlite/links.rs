//! Links in SQLite: those that are created, and ids.

use std::collections::HashMap;

use shortlink_core::codes::numbering::Numbering;
use sqlx::Sqlite;
use sqlx::sqlite::SqliteConnection;
use vocabulary::Code;

pub(super) use crate::columns::link as read;
pub(super) use crate::links::columns;

/// The id that a code's link has, if there is one.
pub(super) async fn find_id<'e>(
    executor: impl sqlx::Executor<'e, Database = Sqlite>,
    numbering: &Numbering,
    code: &Code,
) -> Result<Option<i64>, sqlx::Error> {
    if let Some(number) = numbering.number(code) {
        return Ok(Some(number.get()));
    }
    let id: Option<i64> = sqlx::query_scalar("SELECT id FROM far_codes WHERE code = ?1")
        .bind(code.as_str())
        .fetch_optional(executor)
        .await?;
    Ok(id.map(|id| -id))
}

/// The id that a code's link has or would have.
pub(super) async fn id_of(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
    code: &Code,
) -> Result<i64, sqlx::Error> {
    match numbering.number(code) {
        Some(number) => Ok(number.get()),
        None => far_id(connection, code.as_str()).await,
    }
}

/// The id that the link of a text would have if it is a code; one that no link has if it is none.
async fn id_of_text(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
    text: &str,
) -> Result<i64, sqlx::Error> {
    match text.parse() {
        Ok(code) => id_of(connection, numbering, &code).await,
        Err(_) => far_id(connection, text).await,
    }
}

/// The ids of the links of codes, one for each. A code without a number is given an id, whether it
/// has a link or not: its visits are found by it, also if its link is created later. There are few:
/// visits are those of links that there are or were.
pub(super) async fn link_ids<'a>(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
    codes: impl Iterator<Item = &'a str> + Send,
) -> Result<Vec<i64>, sqlx::Error> {
    let mut known = HashMap::new();
    let mut ids = Vec::new();
    for code in codes {
        let id = match known.get(code) {
            Some(&id) => id,
            None => {
                let id = id_of_text(connection, numbering, code).await?;
                known.insert(code, id);
                id
            }
        };
        ids.push(id);
    }
    Ok(ids)
}

/// The id of a text that has no number.
async fn far_id(connection: &mut SqliteConnection, text: &str) -> Result<i64, sqlx::Error> {
    // The update changes nothing, but returns an existing row.
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO far_codes (code) VALUES (?1) \
         ON CONFLICT (code) DO UPDATE SET code = code RETURNING id",
    )
    .bind(text)
    .fetch_one(connection)
    .await?;
    Ok(-id)
}
