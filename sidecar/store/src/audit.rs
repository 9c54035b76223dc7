//! The audit log. The operations write its entries in their own transactions.

use shortlink_core::audit::{AuditEntry, StoredAuditEntry};
use shortlink_core::ports::{AuditListing, StoreError};

use super::Store;
use super::db::Db;
use super::sql::sql;
use super::value::{Row, args, invalid, is_storable};

impl Store {
    /// Lists entries of the audit log, the latest first.
    pub async fn list_audit(
        &self,
        listing: &AuditListing,
    ) -> Result<Vec<StoredAuditEntry>, StoreError> {
        let conditions = [
            (sql!(" AND subject = "), &listing.subject),
            (sql!(" AND key_id = "), &listing.key_id),
            (sql!(" AND action = "), &listing.action),
        ];
        let mut texts = conditions.iter().filter_map(|(_, text)| text.as_ref());
        if !texts.all(|text| is_storable(text)) {
            return Ok(Vec::new());
        }
        let mut statement = self.statement(sql!(
            "SELECT id, at, key_id, action, subject, detail FROM audit_log WHERE id < "
        ));
        statement.bind(listing.before.unwrap_or(i64::MAX));
        for (condition, text) in conditions {
            if text.is_some() {
                statement.push(condition).bind(text);
            }
        }
        statement
            .push(sql!(" ORDER BY id DESC LIMIT "))
            .bind(listing.limit);
        let values = &statement.values;
        self.all("read the audit log", &statement, values, read)
            .await
    }
}

/// Adds an entry for a change, in the transaction of the change.
pub(super) async fn append(db: &mut Db<'_>, entry: &AuditEntry) -> Result<(), sqlx::Error> {
    let detail = serde_json::to_string(&entry.detail);
    let detail = detail.map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
    let sql = sql!(
        "INSERT INTO audit_log (at, key_id, action, subject, detail) VALUES ($1, $2, $3, $4, $5)"
    );
    let (action, subject) = (entry.action.name(), entry.subject.to_string());
    db.run(sql, args![entry.at, &entry.key_id, action, subject, detail])
        .await?;
    Ok(())
}

fn read(row: &Row) -> Result<StoredAuditEntry, sqlx::Error> {
    let detail = serde_json::from_str(row.get("detail")?);
    Ok(StoredAuditEntry {
        id: row.get("id")?,
        at: row.get("at")?,
        key_id: row.find("key_id")?,
        action: row.get("action")?,
        subject: row.get("subject")?,
        detail: detail.map_err(|_error| invalid("detail"))?,
    })
}
