//! The audit log in PostgreSQL.

use async_trait::async_trait;
use sqlx::{Postgres, QueryBuilder};

use super::PostgresStore;
use super::rows::is_storable;
use super::statements::Statements;
use super::work::Work;
use crate::core::audit::{AuditEntry, StoredAuditEntry};
use crate::core::ports::{AuditListing, AuditStore, StoreError};
use crate::store::columns;

/// Notes what is being done, in the transaction that does it.
pub(super) async fn append_audit(
    connection: &mut Statements<'_>,
    entry: &AuditEntry,
) -> Result<(), sqlx::Error> {
    let detail = serde_json::to_string(&entry.detail)
        .map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
    sqlx::query(
        "INSERT INTO audit_log (at, key_id, action, subject, detail) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(entry.at.as_millisecond())
    .bind(&entry.key_id)
    .bind(entry.action.name())
    .bind(entry.subject.to_string())
    .bind(detail)
    .execute(connection)
    .await?;
    Ok(())
}

#[async_trait]
impl AuditStore for PostgresStore {
    async fn list_audit(
        &self,
        listing: &AuditListing,
    ) -> Result<Vec<StoredAuditEntry>, StoreError> {
        let asked = [&listing.subject, &listing.key_id, &listing.action];
        if !asked.into_iter().flatten().all(|text| is_storable(text)) {
            return Ok(Vec::new());
        }
        self.run(ListAudit(listing)).await
    }
}

struct ListAudit<'a>(&'a AuditListing);

#[async_trait]
impl Work for ListAudit<'_> {
    type Output = Vec<StoredAuditEntry>;
    const OPERATION: &'static str = "read the audit log";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<StoredAuditEntry>, sqlx::Error> {
        let listing = self.0;
        let mut query = QueryBuilder::<Postgres>::new(
            "SELECT id, at, key_id, action, subject, detail FROM audit_log WHERE id < ",
        );
        query.push_bind(listing.before.unwrap_or(i64::MAX));
        for (condition, value) in [
            (" AND subject = ", &listing.subject),
            (" AND key_id = ", &listing.key_id),
            (" AND action = ", &listing.action),
        ] {
            if let Some(value) = value {
                query.push(condition).push_bind(value);
            }
        }
        let rows = query
            .push(" ORDER BY id DESC LIMIT ")
            .push_bind(i64::from(listing.limit))
            .build()
            .fetch_all(connection)
            .await?;
        rows.iter().map(columns::audit_entry).collect()
    }
}
