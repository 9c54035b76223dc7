//! The audit log in SQLite.

use async_trait::async_trait;
use futures_util::FutureExt;
use sqlx::sqlite::SqliteConnection;
use sqlx::{QueryBuilder, Sqlite};

use super::SqliteStore;
use crate::core::audit::{AuditEntry, StoredAuditEntry};
use crate::core::ports::{AuditListing, AuditStore, StoreError};
use crate::store::columns;
use crate::store::shared::Operation;

/// Notes what is being done, in the transaction that does it.
pub(super) async fn append_audit(
    connection: &mut SqliteConnection,
    entry: &AuditEntry,
) -> Result<(), sqlx::Error> {
    let detail = serde_json::to_string(&entry.detail)
        .map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
    sqlx::query(
        "INSERT INTO audit_log (at, key_id, action, subject, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
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
impl AuditStore for SqliteStore {
    async fn list_audit(
        &self,
        listing: &AuditListing,
    ) -> Result<Vec<StoredAuditEntry>, StoreError> {
        let mut query = QueryBuilder::<Sqlite>::new(
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
        query
            .push(" ORDER BY id DESC LIMIT ")
            .push_bind(listing.limit)
            .build()
            .fetch_all(&self.readers)
            .map(|rows| rows.and_then(|rows| rows.iter().map(columns::audit_entry).collect()))
            .operation("read the audit log")
            .await
    }
}
