//! Scans of all links in SQLite.

use std::collections::HashMap;

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::ports::{ExpiredPage, ExpiryPlace, Kept, Page, Place, StoreError, UpkeepStore};
use shortlink_core::records::Records;
use sqlx::Row as _;
use vocabulary::Code;

use super::deletion::{DeleteLinks, FreeCodes};
use super::links::{columns, read};
use super::{SqliteStore, invalid};
use crate::lines::{line, push_lines};
use crate::shared::{LONGEST_SPAN, Operation};

const WALK: &str = concat!(
    "SELECT count(*), max(id), group_concat(line, char(10)) FROM (SELECT id, ",
    line!(),
    " AS line FROM links WHERE id > ?1 ORDER BY id LIMIT ?2)"
);

const WALK_BY_EXPIRY: &str = concat!(
    "SELECT ",
    columns!(),
    ", id FROM links INDEXED BY links_by_end \
     WHERE (valid_until, id) > (?1, ?2) AND valid_until <= ?3 ORDER BY valid_until, id LIMIT ?4"
);

const REVOKED_SINCE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM links INDEXED BY links_by_revocation \
     WHERE revoked_at IS NOT NULL AND revoked_at <= ?1 AND updated_at <= ?1 \
     AND NOT EXISTS (SELECT 1 FROM outbox WHERE first_id = links.id AND last_id = links.id) \
     LIMIT ?2"
);

const EXPIRED_SINCE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM links INDEXED BY links_by_end \
     WHERE valid_until <= ?3 AND updated_at <= ?1 \
     AND NOT EXISTS (SELECT 1 FROM outbox WHERE first_id = links.id AND last_id = links.id) \
     LIMIT ?2"
);

const FIND: &str = concat!(
    "SELECT ",
    columns!(),
    ", EXISTS (SELECT 1 FROM outbox WHERE first_id BETWEEN links.id - ?2 AND links.id \
     AND last_id >= links.id AND applied_at IS NULL) AS is_waiting \
     FROM links WHERE id IN (SELECT value FROM json_each(?1))"
);

#[async_trait]
impl UpkeepStore for SqliteStore {
    async fn records_after(
        &self,
        after: Place,
        limit: u32,
        now: Timestamp,
    ) -> Result<Page, StoreError> {
        self.walk(after, limit, now)
            .operation("read the records of links")
            .await
    }

    async fn records_of(&self, codes: &[Code], now: Timestamp) -> Result<Kept, StoreError> {
        self.kept(codes, now)
            .operation("find the records of links")
            .await
    }

    async fn codes_without_link(&self, codes: &[Code]) -> Result<Vec<usize>, StoreError> {
        let missing = async {
            let places: Vec<i64> = sqlx::query_scalar(
                "SELECT wanted.key FROM json_each(?1) AS wanted \
                 WHERE NOT EXISTS (SELECT 1 FROM links WHERE id = wanted.value) \
                 AND NOT EXISTS (SELECT 1 FROM removed_links WHERE id = wanted.value) \
                 ORDER BY wanted.key",
            )
            .bind(json_list(&self.ids(codes).await?))
            .fetch_all(&self.readers)
            .await?;
            Ok::<_, sqlx::Error>(places.into_iter().map(|place| place as usize).collect())
        };
        missing.operation("find codes without a link").await
    }

    async fn records_expired(
        &self,
        after: ExpiryPlace,
        now: Timestamp,
        limit: u32,
    ) -> Result<ExpiredPage, StoreError> {
        let page = async {
            let rows = sqlx::query(WALK_BY_EXPIRY)
                .bind(after.second)
                .bind(after.place.0)
                .bind(now.as_second())
                .bind(limit)
                .fetch_all(&self.readers)
                .await?;
            let mut records = Records::at(now);
            let mut next = None;
            for row in &rows {
                let link = read(row)?;
                records.push(link.code, &link.record());
                next = Some(ExpiryPlace {
                    second: row.try_get("valid_until")?,
                    place: Place(row.try_get("id")?),
                });
            }
            Ok::<_, sqlx::Error>(ExpiredPage { records, next })
        };
        page.operation("read expired links").await
    }

    async fn records_dead_since(
        &self,
        before: Timestamp,
        limit: u32,
        now: Timestamp,
    ) -> Result<Records, StoreError> {
        let dead = async {
            let mut rows = sqlx::query(REVOKED_SINCE)
                .bind(before.as_millisecond())
                .bind(limit)
                .fetch_all(&self.readers)
                .await?;
            let left = limit.saturating_sub(rows.len() as u32);
            let expired = sqlx::query(EXPIRED_SINCE)
                .bind(before.as_millisecond())
                .bind(left)
                .bind(before.as_second())
                .fetch_all(&self.readers)
                .await?;
            rows.extend(expired);
            let mut records = Records::at(now);
            for row in &rows {
                let link = read(row)?;
                records.push(link.code, &link.record());
            }
            Ok::<_, sqlx::Error>(records)
        };
        dead.operation("find dead links").await
    }

    async fn delete_links(
        &self,
        links: Vec<(Code, u64)>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let numbering = self.numbering.clone();
        let delete = DeleteLinks {
            links,
            now,
            numbering,
        };
        self.writer.write(delete).await
    }

    async fn deleted_links(
        &self,
        before: Timestamp,
        limit: u32,
    ) -> Result<Vec<(Code, u64)>, StoreError> {
        let deleted = async {
            let rows: Vec<(String, i64)> = sqlx::query_as(
                "SELECT code, revision FROM removed_links WHERE removed_at <= ?1 LIMIT ?2",
            )
            .bind(before.as_millisecond())
            .bind(limit)
            .fetch_all(&self.readers)
            .await?;
            let links = rows.into_iter().map(|(code, revision)| {
                let code = code.parse();
                let code = code.map_err(|_error| invalid("removed_links", "code"))?;
                Ok((code, revision.unsigned_abs()))
            });
            links.collect::<Result<Vec<_>, sqlx::Error>>()
        };
        deleted.operation("read deleted links").await
    }

    async fn free_codes(&self, codes: Vec<Code>) -> Result<(), StoreError> {
        let numbering = self.numbering.clone();
        self.writer.write(FreeCodes { codes, numbering }).await
    }
}

impl SqliteStore {
    async fn walk(&self, after: Place, limit: u32, now: Timestamp) -> Result<Page, sqlx::Error> {
        let row = sqlx::query(WALK)
            .bind(after.0)
            .bind(limit)
            .fetch_one(&self.readers)
            .await?;
        let count: i64 = row.try_get(0)?;
        let last: Option<i64> = row.try_get(1)?;
        let lines: Option<&str> = row.try_get(2)?;
        let mut records = Records::at(now);
        let (Some(last), Some(lines)) = (last, lines) else {
            return Ok(Page {
                records,
                next: None,
            });
        };
        records.reserve(count as usize, lines.len());
        let others = push_lines(&mut records, lines, count)?;
        if !others.is_empty() {
            let rows = sqlx::query(concat!(
                "SELECT ",
                columns!(),
                " FROM links WHERE id IN (SELECT value FROM json_each(?1))"
            ))
            .bind(json_list(&others))
            .fetch_all(&self.readers)
            .await?;
            for row in &rows {
                let link = read(row)?;
                records.push(link.code, &link.record());
            }
        }
        let is_last = count < i64::from(limit);
        Ok(Page {
            records,
            next: (!is_last).then_some(Place(last)),
        })
    }

    async fn kept(&self, codes: &[Code], now: Timestamp) -> Result<Kept, sqlx::Error> {
        let rows = sqlx::query(FIND)
            .bind(json_list(&self.ids(codes).await?))
            .bind(LONGEST_SPAN)
            .fetch_all(&self.readers)
            .await?;
        let mut kept = Kept {
            records: Records::at(now),
            waiting: Vec::with_capacity(rows.len()),
        };
        for row in &rows {
            let link = read(row)?;
            kept.records.push(link.code, &link.record());
            kept.waiting.push(row.try_get("is_waiting")?);
        }
        Ok(kept)
    }

    /// The ids of codes; that of a code which can have no link is one that none has.
    pub(super) async fn ids(&self, codes: &[Code]) -> Result<Vec<i64>, sqlx::Error> {
        let mut ids: Vec<i64> = Vec::with_capacity(codes.len());
        let mut far = HashMap::new();
        for (place, code) in codes.iter().enumerate() {
            match self.numbering.number(code) {
                Some(number) => ids.push(number.get()),
                None => {
                    ids.push(i64::MIN);
                    far.insert(code.as_str(), place);
                }
            }
        }
        if !far.is_empty() {
            let rows: Vec<(i64, String)> = sqlx::query_as(
                "SELECT id, code FROM far_codes WHERE code IN (SELECT value FROM json_each(?1))",
            )
            .bind(serde_json::Value::from_iter(far.keys().copied()).to_string())
            .fetch_all(&self.readers)
            .await?;
            for (id, code) in rows {
                if let Some(&place) = far.get(&*code) {
                    ids[place] = -id;
                }
            }
        }
        Ok(ids)
    }
}

/// Numbers as a JSON list, which is how a statement is given many.
pub(super) fn json_list(ids: &[i64]) -> String {
    let mut list = String::with_capacity(ids.len() * 20 + 2);
    list.push('[');
    for (place, id) in ids.iter().enumerate() {
        if place > 0 {
            list.push(',');
        }
        list.push_str(&id.to_string());
    }
    list.push(']');
    list
}

#[cfg(test)]
mod tests;
