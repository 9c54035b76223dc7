//! Steps of a migration that SQL cannot do: generating the key that codes are numbered by, and moving
//! rows from schemas without numbers of links, or with visits by code. Clicks and networks are
//! counted once all visits are there.

mod clicks;
mod links;
mod networks;
mod visits;

use shortlink_core::codes::numbering::{CodeKey, Numbering};
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;

use crate::db::Db;
use crate::schema::{self, CODE_KEY};

/// A table of an earlier schema that may still have rows.
#[derive(Clone, Copy)]
enum Left {
    Links,
    LinkHours,
    Visits,
    Clicks,
    Networks,
}

impl Left {
    /// In the order in which they are moved.
    const ALL: [Self; 5] = [
        Self::Links,
        Self::LinkHours,
        Self::Visits,
        Self::Clicks,
        Self::Networks,
    ];

    /// The table that is there until all has been moved.
    const fn table(self) -> &'static str {
        match self {
            Self::Links => "links_before",
            Self::LinkHours => "visit_link_hours_before",
            Self::Visits => "visits_before",
            Self::Clicks => "clicks_before",
            Self::Networks => "networks_before",
        }
    }

    /// Moves some, within a transaction; `false` when there are none left.
    async fn move_some(self, db: &mut Db<'_>) -> Result<bool, sqlx::Error> {
        match self {
            Self::Links => links::move_some(db).await,
            Self::LinkHours => visits::move_some_hours(db).await,
            Self::Visits => visits::move_some(db).await,
            Self::Clicks => clicks::count(db).await,
            Self::Networks => networks::count(db).await,
        }
    }
}

/// The key that codes are numbered by.
pub(super) async fn code_key(
    connection: &mut SqliteConnection,
) -> Result<Option<CodeKey>, sqlx::Error> {
    let value = sqlx::query_scalar(CODE_KEY).fetch_optional(connection);
    Ok(schema::code_key(value.await?))
}

/// Returns whether everything was moved.
pub(super) async fn is_finished(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    for left in Left::ALL {
        if is_there(connection, left).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Generates the key if there is none, and moves the remaining rows. If this is interrupted, the next
/// run moves the rest.
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
    let Some(key) = code_key(connection).await? else {
        return Ok(());
    };
    let numbering = Numbering::new(&key);
    for left in Left::ALL {
        while is_there(connection, left).await? {
            adopt_some(connection, left, &numbering).await?;
        }
    }
    Ok(())
}

/// Moves some of the remaining rows in one transaction; several processes may do so at the same time.
async fn adopt_some(
    connection: &mut SqliteConnection,
    left: Left,
    numbering: &Numbering,
) -> Result<(), sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await?;
    if is_there(connection, left).await?
        && !left
            .move_some(&mut Db::sqlite(connection, numbering))
            .await?
    {
        let drop = format!("DROP TABLE {}", left.table());
        sqlx::query(AssertSqlSafe(drop))
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("COMMIT").execute(connection).await?;
    Ok(())
}

async fn is_there(connection: &mut SqliteConnection, left: Left) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = ?1)")
        .bind(left.table())
        .fetch_one(connection)
        .await
}

#[cfg(test)]
mod tests;
