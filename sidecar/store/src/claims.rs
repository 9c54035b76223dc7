//! Claims of tasks that only one process at a time may do, and notes of their progress.

use shortlink_core::boxed;
use shortlink_core::ports::StoreError;

use super::Store;
use super::db::Db;
use super::sql::{FOR_UPDATE, Sql, sql};
use super::value::{Row, args};

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The task is the holder's.
    Ours,
    /// Another holder has the task, with this stamp; `None` if it has just ended its claim.
    Others(Option<i64>),
}

impl Store {
    /// Reads a note.
    #[boxed]
    pub async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.one("read a note", sql!(NOTE), args![name], |row| {
            row.get("note")
        })
        .await
    }

    /// Writes a note, or deletes it with `None`.
    #[boxed]
    pub async fn take_note(&self, name: &str, text: Option<String>) -> Result<(), StoreError> {
        let operation = "store a note of a task";
        match text {
            None => self.run(operation, DELETE_NOTE, args![name]).await?,
            Some(text) => self.run(operation, WRITE_NOTE, args![name, text]).await?,
        };
        Ok(())
    }

    /// Claims a task for a holder, so that one of many processes does it; the holder renews the claim in
    /// time, each time with another `stamp`. Without a claim of another holder, the task is claimed; with one,
    /// only if its stamp is still `expired`, which no clock but that of the caller has found too old.
    #[boxed]
    pub async fn claim(
        &self,
        task: &str,
        holder: &str,
        stamp: i64,
        expired: Option<i64>,
    ) -> Result<Claim, StoreError> {
        // Of two that claim at once the second waits for the first and then sees its claim. SQLite
        // stores `<stamp> <holder>`.
        let sql = sql!(
            "INSERT INTO {settings (name, value) \
             VALUES (concat('claim:', $1), CAST(concat($3, ' ', $2) AS BLOB)) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE ",
            HOLDER,
            " = $2 OR CAST(CAST(value AS TEXT) AS INTEGER) = $4|\
             claims (task, holder, until) VALUES ($1, $2, $3) \
             ON CONFLICT (task) DO UPDATE SET holder = excluded.holder, until = excluded.until \
             WHERE claims.holder = excluded.holder OR claims.until = $4}"
        );
        let values = args![task, holder, stamp, expired];
        if self.run("claim a task", sql, values).await? == 1 {
            return Ok(Claim::Ours);
        }
        Ok(Claim::Others(self.claimed(task).await?))
    }

    /// Returns the stamp of the claim of a task.
    #[boxed]
    pub async fn claimed(&self, task: &str) -> Result<Option<i64>, StoreError> {
        let sql = sql!(
            "SELECT {CAST(CAST(value AS TEXT) AS INTEGER) AS stamp \
             FROM settings WHERE name = concat('claim:', $1)|until AS stamp FROM claims WHERE task = $1}"
        );
        let read = |row: &Row| row.get("stamp");
        self.one("read a claim", sql, args![task], read).await
    }

    /// Returns the rest of the name and the stamp of each claim whose task has a name that begins so.
    #[boxed]
    pub async fn claims_of(&self, prefix: &str) -> Result<Vec<(String, i64)>, StoreError> {
        let sql = sql!(
            "SELECT {substr(name, length('claim:') + length($1) + 1) AS rest, \
             CAST(CAST(value AS TEXT) AS INTEGER) AS stamp FROM settings \
             WHERE substr(name, 1, length('claim:') + length($1)) = concat('claim:', $1)|\
             substr(task, length($1) + 1) AS rest, until AS stamp FROM claims \
             WHERE starts_with(task, $1)}"
        );
        let read = |row: &Row| Ok((row.get("rest")?, row.get("stamp")?));
        self.all("read claims", sql, args![prefix], read).await
    }

    /// Ends a claim before its time, if it is still the holder's.
    #[boxed]
    pub async fn release(&self, task: &str, holder: &str) -> Result<(), StoreError> {
        let sql = sql!(
            "DELETE FROM {settings WHERE name = concat('claim:', $1) AND ",
            HOLDER,
            " = $2|claims WHERE task = $1 AND holder = $2}"
        );
        self.run("end a claim", sql, args![task, holder]).await?;
        Ok(())
    }
}

const NOTE: &str = "SELECT {CAST(value AS TEXT) AS note FROM settings WHERE name = concat('note:', $1)|\
                    note FROM notes WHERE name = $1}";

const DELETE_NOTE: Sql =
    sql!("DELETE FROM {settings WHERE name = concat('note:', $1)|notes WHERE name = $1}");

const WRITE_NOTE: Sql = sql!(
    "INSERT INTO {settings (name, value) VALUES (concat('note:', $1), CAST($2 AS BLOB)) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value|\
     notes (name, note) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET note = excluded.note}"
);

/// Reads a note and locks it until the end of the transaction.
pub(super) async fn note_of(db: &mut Db<'_>, name: &str) -> Result<Option<String>, sqlx::Error> {
    db.one(sql!(NOTE, FOR_UPDATE), args![name], |row| row.get("note"))
        .await
}

/// Writes a note that is missing.
pub(super) async fn begin_note(db: &mut Db<'_>, name: &str, text: &str) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "INSERT INTO {settings (name, value) VALUES (concat('note:', $1), CAST($2 AS BLOB))|\
         notes (name, note) VALUES ($1, $2)} ON CONFLICT (name) DO NOTHING"
    );
    db.run(sql, args![name, text]).await.map(|_rows| ())
}

/// Writes a note.
pub(super) async fn write_note(db: &mut Db<'_>, name: &str, text: &str) -> Result<(), sqlx::Error> {
    db.run(WRITE_NOTE, args![name, text]).await.map(|_rows| ())
}

/// Deletes a note.
pub(super) async fn delete_note(db: &mut Db<'_>, name: &str) -> Result<(), sqlx::Error> {
    db.run(DELETE_NOTE, args![name]).await.map(|_rows| ())
}

/// The holder of a claim in SQLite.
const HOLDER: &str = "substr(CAST(value AS TEXT), instr(CAST(value AS TEXT), ' ') + 1)";
