//! What nginx says of the short domains, in SQLite.

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::writer::Write;
use crate::core::announcement::{Announcement, Heard};
use crate::core::ports::{DomainStore, StoreError};
use crate::store::columns;
use crate::store::shared::Operation;

#[async_trait]
impl DomainStore for SqliteStore {
    async fn note_domains(
        &self,
        announcement: &Announcement,
        now: Timestamp,
        forget_before: Timestamp,
    ) -> Result<(), StoreError> {
        let note = NoteDomains {
            announcement: announcement.clone(),
            now,
            forget_before,
        };
        self.writer.write(note).await
    }

    async fn list_domains(&self) -> Result<Vec<Heard>, StoreError> {
        sqlx::query(
            "SELECT node, bases, names, states, more, changed_at, heard_at \
             FROM domain_nodes ORDER BY node",
        )
        .fetch_all(&self.readers)
        .map(|rows| rows.and_then(|rows| rows.iter().map(columns::heard).collect()))
        .operation("read what nginx says of domains")
        .await
    }
}

struct NoteDomains {
    announcement: Announcement,
    now: Timestamp,
    forget_before: Timestamp,
}

#[async_trait]
impl Write for NoteDomains {
    type Output = ();
    const OPERATION: &'static str = "keep what nginx says of domains";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let said = &self.announcement;
        sqlx::query(
            "INSERT INTO domain_nodes AS kept \
             (node, bases, names, states, more, changed_at, heard_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) ON CONFLICT (node) DO UPDATE SET \
             changed_at = CASE WHEN (kept.bases, kept.names, kept.states, kept.more) \
             = (excluded.bases, excluded.names, excluded.states, excluded.more) \
             THEN kept.changed_at ELSE excluded.changed_at END, \
             bases = excluded.bases, names = excluded.names, states = excluded.states, \
             more = excluded.more, heard_at = excluded.heard_at \
             WHERE kept.heard_at <= excluded.heard_at",
        )
        .bind(&said.node)
        .bind(&said.bases)
        .bind(&said.names)
        .bind(&said.states)
        .bind(said.more.cast_signed())
        .bind(self.now.as_millisecond())
        .execute(&mut *connection)
        .await?;
        sqlx::query("DELETE FROM domain_nodes WHERE heard_at < ?1")
            .bind(self.forget_before.as_millisecond())
            .execute(connection)
            .await?;
        Ok(())
    }
}
