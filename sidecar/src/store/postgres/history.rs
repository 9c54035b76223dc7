//! What links were before their changes, in PostgreSQL.

use async_trait::async_trait;
use jiff::Timestamp;
use vocabulary::Code;

use super::links::{find, find_id};
use super::statements::Statements;
use super::work::Work;
use crate::core::codes::numbering::Numbering;
use crate::core::link::{Link, PastChange};
use crate::store::past::Past;
use crate::store::shared::invalid;

/// Keeps what a link was before a change, in the transaction that changes it.
pub(super) async fn add(
    connection: &mut Statements<'_>,
    id: i64,
    before: &Link,
    changed_at: Timestamp,
    changed_by: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO link_history (link_id, revision, changed_at, changed_by, before) \
         VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(id)
    .bind(before.revision as i64)
    .bind(changed_at.as_millisecond())
    .bind(changed_by)
    .bind(Past::of(before).to_json())
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) struct ReadHistory<'a> {
    pub(super) code: &'a Code,
    pub(super) before: Option<u64>,
    pub(super) limit: u32,
    pub(super) numbering: &'a Numbering,
}

#[async_trait]
impl Work for ReadHistory<'_> {
    type Output = Option<Vec<PastChange>>;
    const OPERATION: &'static str = "read a link's history";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<Vec<PastChange>>, sqlx::Error> {
        let Some(id) = find_id(connection, self.numbering, self.code).await? else {
            return Ok(None);
        };
        let Some(now) = find(connection, id, self.code).await? else {
            return Ok(None);
        };
        let before = self.before.and_then(|before| i64::try_from(before).ok());
        let rows: Vec<(i64, i64, String, String)> = sqlx::query_as(
            "SELECT revision, changed_at, changed_by, before FROM link_history \
             WHERE link_id = $1 AND revision < $2 ORDER BY revision DESC LIMIT $3",
        )
        .bind(id)
        .bind(before.unwrap_or(i64::MAX))
        .bind(i64::from(self.limit))
        .fetch_all(connection)
        .await?;
        let changes = rows
            .into_iter()
            .map(|(revision, changed_at, changed_by, json)| {
                let before = Past::from_json(&json)
                    .and_then(|past| past.link(&now, revision.unsigned_abs()))
                    .ok_or_else(|| invalid("link_history", "before"))?;
                Ok(PastChange {
                    changed_at: Timestamp::from_millisecond(changed_at)
                        .map_err(|_error| invalid("link_history", "changed_at"))?,
                    changed_by,
                    before,
                })
            });
        changes.collect::<Result<_, _>>().map(Some)
    }
}
