//! Deleting dead links from PostgreSQL, and giving their codes free.
//!
//! A code stays taken until Redis knows nothing of the link any more: a new link of the code would
//! begin with revision 1 and never replace a record that a deleted one has left behind.

use std::collections::HashMap;

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::link::Link;
use sqlx::Row as _;
use vocabulary::Code;

use super::codes::uncount;
use super::links::known_ids;
use super::rows::{columns, read};
use super::statements::Statements;
use super::tags;
use super::work::Work;

/// Statements that delete links by their ids. Tags are deleted by their own columns.
const REMOVALS: [&str; 4] = [
    "DELETE FROM links WHERE id = ANY($1::bigint[])",
    "DELETE FROM outbox WHERE first_id = ANY($1::bigint[]) AND last_id = first_id",
    "DELETE FROM link_digests WHERE link_id = ANY($1::bigint[])",
    "DELETE FROM link_history WHERE link_id = ANY($1::bigint[])",
];

/// Locks links until the end of the transaction. All transactions lock links in the order of their
/// ids.
pub(super) const LOCK: &str = concat!(
    "SELECT id, ",
    columns!(),
    " FROM links WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE"
);

pub(super) struct DeleteLinks<'a> {
    pub(super) links: &'a [(Code, u64)],
    pub(super) now: Timestamp,
    pub(super) numbering: &'a Numbering,
}

#[async_trait]
impl Work for DeleteLinks<'_> {
    type Output = u64;
    const OPERATION: &'static str = "delete links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let codes: Vec<Code> = self.links.iter().map(|(code, _)| *code).collect();
        let known = known_ids(connection, self.numbering, &codes).await?;
        let seen = known.into_iter().zip(self.links);
        let seen: HashMap<i64, u64> = seen
            .filter_map(|(id, (_, revision))| Some((id?, *revision)))
            .collect();
        let rows = sqlx::query(LOCK)
            .bind(seen.keys().copied().collect::<Vec<i64>>())
            .fetch_all(&mut *connection)
            .await?;
        let links = rows.iter().map(|row| Ok((row.try_get("id")?, read(row)?)));
        let mut dead: Vec<(i64, Link)> = links.collect::<Result<_, sqlx::Error>>()?;
        // Another transaction may have changed one meanwhile.
        dead.retain(|(id, link)| seen.get(id) == Some(&link.revision));
        if dead.is_empty() {
            return Ok(0);
        }
        let ids: Vec<i64> = dead.iter().map(|(id, _)| *id).collect();
        sqlx::query(
            "INSERT INTO removed_links (id, code, revision, removed_at) \
             SELECT id, code, revision, $2 FROM links WHERE id = ANY($1::bigint[])",
        )
        .bind(&ids)
        .bind(self.now.as_millisecond())
        .execute(&mut *connection)
        .await?;
        for statement in REMOVALS {
            sqlx::query(statement)
                .bind(&ids)
                .execute(&mut *connection)
                .await?;
        }
        tags::remove(connection, dead.iter().map(|(id, link)| (*id, link))).await?;
        uncount(connection, dead.iter().map(|(_, link)| link)).await?;
        Ok(dead.len() as u64)
    }
}

pub(super) struct FreeCodes<'a> {
    pub(super) codes: &'a [Code],
    pub(super) numbering: &'a Numbering,
}

#[async_trait]
impl Work for FreeCodes<'_> {
    type Output = ();
    const OPERATION: &'static str = "free the codes of deleted links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<(), sqlx::Error> {
        let ids = known_ids(connection, self.numbering, self.codes).await?;
        sqlx::query("DELETE FROM removed_links WHERE id = ANY($1::bigint[])")
            .bind(ids.into_iter().flatten().collect::<Vec<i64>>())
            .execute(connection)
            .await?;
        Ok(())
    }
}
