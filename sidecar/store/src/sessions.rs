//! The ends of the console's sessions, for every sidecar of the database.

use jiff::Timestamp;
use shortlink_core::audit::AuditEntry;
use shortlink_core::ports::StoreError;

use super::Store;
use super::audit::append;
use super::sql::sql;
use super::value::{Row, args};

impl Store {
    /// Ends a session that would have lasted until then, and records it in the audit log. Forgets those that have expired
    /// since.
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
    pub async fn is_session_ended(&self, id: &str) -> Result<bool, StoreError> {
        let sql = sql!("SELECT id FROM ended_sessions WHERE id = $1");
        let read = |row: &Row| row.get::<String>("id");
        let operation = "find the end of a session";
        let ended = self.one(operation, sql, args![id], read).await?;
        Ok(ended.is_some())
    }

    /// Adds an entry to the audit log for what changes nothing.
    pub async fn record(&self, entry: AuditEntry) -> Result<(), StoreError> {
        self.run_tx("record an action", entry, |db, entry| {
            Box::pin(async move { append(db, entry).await })
        })
        .await
    }
}
