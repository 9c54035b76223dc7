//! Links as they were before their changes.

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::link::{Link, PastChange};
use shortlink_core::ports::StoreError;
use vocabulary::Code;

use super::Store;
use super::db::Db;
use super::rows::{find, find_id};
use super::sql::sql;
use super::value::{Row, args, invalid};
use crate::past::Past;

impl Store {
    /// Lists the changes that a link has been through, the latest first, at most `limit`: all, or those
    /// before the change that left this revision behind.
    #[boxed]
    pub async fn link_history(
        &self,
        code: &Code,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Option<Vec<PastChange>>, StoreError> {
        let args = (code, before, limit);
        self.read("read a link's history", args, |db, args| {
            Box::pin(async move {
                let (code, before, limit) = args;
                let Some(id) = find_id(db, code).await? else {
                    return Ok(None);
                };
                let Some(now) = find(db, id, code).await? else {
                    return Ok(None);
                };
                let sql = sql!(
                    "SELECT revision, changed_at, changed_by, before FROM link_history \
                     WHERE link_id = $1 AND revision < $2 ORDER BY revision DESC LIMIT $3"
                );
                let before = before.and_then(|before| i64::try_from(before).ok());
                let values = args![id, before.unwrap_or(i64::MAX), *limit];
                let changes = db.all(sql, values, |row| read(row, &now)).await?;
                Ok(Some(changes))
            })
        })
        .await
    }
}

/// Stores a link as it was before a change, in the transaction that changes it.
pub(super) async fn add(
    db: &mut Db<'_>,
    id: i64,
    before: &Link,
    changed_at: Timestamp,
    changed_by: &str,
) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "INSERT INTO link_history (link_id, revision, changed_at, changed_by, before) \
         VALUES ($1, $2, $3, $4, $5)"
    );
    let past = Past::of(before).to_json();
    db.run(
        sql,
        args![id, before.revision, changed_at, changed_by, past],
    )
    .await?;
    Ok(())
}

fn read(row: &Row, now: &Link) -> Result<PastChange, sqlx::Error> {
    let past = Past::from_json(row.get("before")?);
    let revision = row.get("revision")?;
    let before = past.and_then(|past| past.link(now, revision));
    Ok(PastChange {
        changed_at: row.get("changed_at")?,
        changed_by: row.get("changed_by")?,
        before: before.ok_or_else(|| invalid("before"))?,
    })
}
