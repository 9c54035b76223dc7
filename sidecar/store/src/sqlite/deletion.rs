//! Deleting dead links from SQLite, and giving their codes free.
//!
//! A code stays taken until Redis knows nothing of the link any more: a new link of the code would
//! begin with revision 1 and never replace a record that a deleted one has left behind.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::codes::numbering::Numbering;
use sqlx::sqlite::SqliteConnection;
use vocabulary::Code;

use super::links::find_id;
use super::writer::Write;
use crate::shared::DAY_MS;

pub(super) struct DeleteLinks {
    pub(super) links: Vec<(Code, u64)>,
    pub(super) now: Timestamp,
    pub(super) numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for DeleteLinks {
    type Output = u64;
    const OPERATION: &'static str = "delete links";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let mut deleted = 0;
        for (code, revision) in &self.links {
            let Some(id) = find_id(&mut *connection, &self.numbering, code).await? else {
                continue;
            };
            let row: Option<(i64, Option<String>)> = sqlx::query_as(
                "DELETE FROM links WHERE id = ?1 AND revision = ?2 RETURNING created_at, tags",
            )
            .bind(id)
            .bind(*revision as i64)
            .fetch_optional(&mut *connection)
            .await?;
            // Another transaction has changed it meanwhile.
            let Some((created_at, tags)) = row else {
                continue;
            };
            sqlx::query(
                "INSERT INTO removed_links (id, code, revision, removed_at) \
                 VALUES (?1, ?2, ?3, ?4)",
            )
            .bind(id)
            .bind(code.as_str())
            .bind(*revision as i64)
            .bind(self.now.as_millisecond())
            .execute(&mut *connection)
            .await?;
            if let Some(tags) = tags {
                sqlx::query(
                    "DELETE FROM link_tags WHERE link_id = ?1 \
                     AND tag IN (SELECT value FROM json_each(CASE WHEN json_valid(?2) THEN ?2 END))",
                )
                .bind(id)
                .bind(tags)
                .execute(&mut *connection)
                .await?;
            }
            for statement in [
                "DELETE FROM outbox WHERE first_id = ?1 AND last_id = ?1",
                "DELETE FROM link_digests WHERE link_id = ?1",
                "DELETE FROM link_history WHERE link_id = ?1",
            ] {
                sqlx::query(statement)
                    .bind(id)
                    .execute(&mut *connection)
                    .await?;
            }
            sqlx::query(
                "UPDATE code_usage SET links = links - 1 \
                 WHERE length = ?1 AND day = ?2 AND links > 0",
            )
            .bind(code.as_bytes().len() as i64)
            .bind(created_at.div_euclid(DAY_MS))
            .execute(&mut *connection)
            .await?;
            deleted += 1;
        }
        Ok(deleted)
    }
}

pub(super) struct FreeCodes {
    pub(super) codes: Vec<Code>,
    pub(super) numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for FreeCodes {
    type Output = ();
    const OPERATION: &'static str = "free the codes of deleted links";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for code in &self.codes {
            if let Some(id) = find_id(&mut *connection, &self.numbering, code).await? {
                sqlx::query("DELETE FROM removed_links WHERE id = ?1")
                    .bind(id)
                    .execute(&mut *connection)
                    .await?;
            }
        }
        Ok(())
    }
}
