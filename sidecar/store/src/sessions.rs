//! The console's sessions, for every sidecar of the database: of those of API keys the ends, since only its cookie has such
//! a session, and those of people.

use std::collections::HashMap;

use jiff::Timestamp;
use shortlink_core::audit::AuditEntry;
use shortlink_core::boxed;
use shortlink_core::ports::{NewSession, StoreError, StoredSession};

use super::Store;
use super::audit::append;
use super::db::Db;
use super::sql::{IN_TEXTS, sql};
use super::value::{Row, args};

impl Store {
    /// Ends a session that would have lasted until then, and records it in the audit log. Forgets those that have expired
    /// since.
    #[boxed]
    pub async fn end_session(
        &self,
        id: String,
        until: Timestamp,
        entry: AuditEntry,
    ) -> Result<(), StoreError> {
        let args = (id, until, entry);
        self.run_tx("end a session", args, |db, (id, until, entry)| {
            Box::pin(async move {
                let forget = sql!("DELETE FROM ended_sessions WHERE until <= $1");
                db.run(forget, args![entry.at]).await?;
                let end = sql!(
                    "INSERT INTO ended_sessions (id, until) VALUES ($1, $2) ON CONFLICT DO NOTHING"
                );
                let is_new = db.run(end, args![&*id, *until]).await? > 0;
                if is_new {
                    append(db, entry).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Reports whether a session was ended.
    #[boxed]
    pub async fn is_session_ended(&self, id: &str) -> Result<bool, StoreError> {
        let sql = sql!("SELECT id FROM ended_sessions WHERE id = $1");
        let read = |row: &Row| row.get::<String>("id");
        let operation = "find the end of a session";
        let ended = self.one(operation, sql, args![id], read).await?;
        Ok(ended.is_some())
    }

    /// Finds the session of a person.
    #[boxed]
    pub async fn find_people_session(&self, id: &str) -> Result<Option<StoredSession>, StoreError> {
        let sql = sql!("SELECT key_id, used_at, until FROM people_sessions WHERE id = $1");
        let read = |row: &Row| {
            Ok(StoredSession {
                key_id: row.get("key_id")?,
                used_at: row.get("used_at")?,
                until: row.get("until")?,
            })
        };
        self.one("find a session", sql, args![id], read).await
    }

    /// Records that the session of a person is in use.
    #[boxed]
    pub async fn use_people_session(&self, id: &str, now: Timestamp) -> Result<(), StoreError> {
        self.run_tx("use a session", (id.to_owned(), now), |db, (id, now)| {
            Box::pin(async move {
                let sql = sql!("UPDATE people_sessions SET used_at = $2 WHERE id = $1");
                db.run(sql, args![&*id, *now]).await?;
                Ok(())
            })
        })
        .await
    }

    /// Ends the session of a person, and records it in the audit log.
    #[boxed]
    pub async fn end_people_session(&self, id: &str, entry: AuditEntry) -> Result<(), StoreError> {
        self.run_tx(
            "end a session",
            (id.to_owned(), entry),
            |db, (id, entry)| {
                Box::pin(async move {
                    let sql = sql!("DELETE FROM people_sessions WHERE id = $1");
                    if db.run(sql, args![&*id]).await? > 0 {
                        append(db, entry).await?;
                    }
                    Ok(())
                })
            },
        )
        .await
    }

    /// Ends all sessions of a person, and records it in the audit log if there were some.
    #[boxed]
    pub async fn end_sessions_of(
        &self,
        key_id: &str,
        entry: AuditEntry,
    ) -> Result<u64, StoreError> {
        let args = (key_id.to_owned(), entry);
        self.run_tx("end the sessions of a person", args, |db, (id, entry)| {
            Box::pin(async move {
                let ended = end_of(db, id).await?;
                if ended > 0 {
                    append(db, entry).await?;
                }
                Ok(ended)
            })
        })
        .await
    }

    /// Counts the sessions of people that last beyond a time, and were in use since another.
    #[boxed]
    pub async fn count_people_sessions(
        &self,
        key_ids: &[&str],
        now: Timestamp,
        used_since: Timestamp,
    ) -> Result<HashMap<String, u64>, StoreError> {
        let sql = sql!(
            "SELECT key_id, count(*) AS sessions FROM people_sessions WHERE key_id",
            IN_TEXTS,
            " AND until > $2 AND used_at > $3 GROUP BY key_id"
        );
        let read = |row: &Row| Ok((row.get("key_id")?, row.get("sessions")?));
        let args = args![key_ids.to_vec(), now, used_since];
        self.all("count sessions", sql, args, read).await
    }

    /// Adds an entry to the audit log for what changes nothing.
    #[boxed]
    pub async fn record(&self, entry: AuditEntry) -> Result<(), StoreError> {
        self.run_tx("record an action", entry, |db, entry| {
            Box::pin(async move { append(db, entry).await })
        })
        .await
    }
}

/// Stores the session of a person. Forgets those that have expired.
pub(super) async fn begin(
    db: &mut Db<'_>,
    key_id: &str,
    session: &NewSession,
) -> Result<(), sqlx::Error> {
    let forget = sql!("DELETE FROM people_sessions WHERE until <= $1");
    db.run(forget, args![session.begun_at]).await?;
    let sql =
        sql!("INSERT INTO people_sessions (id, key_id, used_at, until) VALUES ($1, $2, $3, $4)");
    let args = args![&session.id, key_id, session.begun_at, session.until];
    db.run(sql, args).await?;
    Ok(())
}

/// Ends all sessions of a person; returns their number.
pub(super) async fn end_of(db: &mut Db<'_>, key_id: &str) -> Result<u64, sqlx::Error> {
    let sql = sql!("DELETE FROM people_sessions WHERE key_id = $1");
    db.run(sql, args![key_id]).await
}
