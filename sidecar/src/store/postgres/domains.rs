//! What nginx says of the short domains, in PostgreSQL.

use async_trait::async_trait;
use jiff::Timestamp;

use super::PostgresStore;
use super::statements::Statements;
use super::work::Work;
use crate::core::announcement::{Announcement, Heard};
use crate::core::ports::{DomainStore, StoreError};
use crate::store::columns;

#[async_trait]
impl DomainStore for PostgresStore {
    async fn note_domains(
        &self,
        announcement: &Announcement,
        now: Timestamp,
        forget_before: Timestamp,
    ) -> Result<(), StoreError> {
        let note = NoteDomains {
            announcement,
            now,
            forget_before,
        };
        self.transact(note).await
    }

    async fn list_domains(&self) -> Result<Vec<Heard>, StoreError> {
        self.run(ListDomains).await
    }
}

struct NoteDomains<'a> {
    announcement: &'a Announcement,
    now: Timestamp,
    forget_before: Timestamp,
}

#[async_trait]
impl Work for NoteDomains<'_> {
    type Output = ();
    const OPERATION: &'static str = "keep what nginx says of domains";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<(), sqlx::Error> {
        let said = self.announcement;
        sqlx::query(
            "INSERT INTO domain_nodes AS kept \
             (node, bases, names, states, more, changed_at, heard_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (node) DO UPDATE SET \
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
        sqlx::query("DELETE FROM domain_nodes WHERE heard_at < $1")
            .bind(self.forget_before.as_millisecond())
            .execute(connection)
            .await?;
        Ok(())
    }
}

struct ListDomains;

#[async_trait]
impl Work for ListDomains {
    type Output = Vec<Heard>;
    const OPERATION: &'static str = "read what nginx says of domains";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<Heard>, sqlx::Error> {
        // There are as many rows as nodes: an index has nothing to say.
        let rows = sqlx::query(
            "SELECT node, bases, names, states, more, changed_at, heard_at \
             FROM domain_nodes ORDER BY node",
        )
        .fetch_all(connection)
        .await?;
        rows.iter().map(columns::heard).collect()
    }
}
