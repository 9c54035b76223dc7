//! Scans of all links in PostgreSQL.

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::ports::{ExpiredPage, ExpiryPlace, Kept, Page, Place, StoreError, UpkeepStore};
use shortlink_core::records::Records;
use sqlx::Row as _;
use vocabulary::Code;

use super::PostgresStore;
use super::deletion::{DeleteLinks, FreeCodes};
use super::links::known_ids;
use super::rows::{columns, read};
use super::statements::Statements;
use super::work::Work;
use crate::lines::{line, push_lines};
use crate::shared::{LONGEST_SPAN, invalid};

const WALK: &str = concat!(
    "SELECT count(*), max(id), string_agg(line, chr(10)) FROM (SELECT id, ",
    line!(),
    " AS line FROM links WHERE id > $1 ORDER BY id LIMIT $2) AS page"
);

const WALK_BY_EXPIRY: &str = concat!(
    "SELECT ",
    columns!(),
    ", id FROM links \
     WHERE (valid_until, id) > ($1, $2) AND valid_until <= $3 ORDER BY valid_until, id LIMIT $4"
);

/// In the order of the index, so that nothing else is read.
const REVOKED_SINCE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM links WHERE revoked_at <= $1 AND updated_at <= $1 \
     AND NOT EXISTS (SELECT 1 FROM outbox WHERE first_id = links.id AND last_id = links.id) \
     ORDER BY revoked_at LIMIT $2"
);

const EXPIRED_SINCE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM links WHERE valid_until <= $3 AND updated_at <= $1 \
     AND NOT EXISTS (SELECT 1 FROM outbox WHERE first_id = links.id AND last_id = links.id) \
     ORDER BY valid_until, id LIMIT $2"
);

const FIND: &str = concat!(
    "SELECT ",
    columns!(),
    ", EXISTS (SELECT 1 FROM outbox WHERE first_id BETWEEN links.id - $2 AND links.id \
     AND last_id >= links.id AND applied_at IS NULL AND ids IS NULL) \
     OR id IN (SELECT unnest(ids) FROM outbox WHERE ids IS NOT NULL AND applied_at IS NULL) \
     AS is_waiting \
     FROM links WHERE id = ANY($1::bigint[])"
);

const FIND_TAKEN: &str = "SELECT id FROM links WHERE id = ANY($1::bigint[]) \
     UNION ALL SELECT id FROM removed_links WHERE id = ANY($1::bigint[])";

#[async_trait]
impl UpkeepStore for PostgresStore {
    async fn records_after(
        &self,
        after: Place,
        limit: u32,
        now: Timestamp,
    ) -> Result<Page, StoreError> {
        self.run(Walk { after, limit, now }).await
    }

    async fn records_of(&self, codes: &[Code], now: Timestamp) -> Result<Kept, StoreError> {
        let numbering = &self.numbering;
        let find = FindRecords {
            codes,
            now,
            numbering,
        };
        self.run(find).await
    }

    async fn codes_without_link(&self, codes: &[Code]) -> Result<Vec<usize>, StoreError> {
        let numbering = &self.numbering;
        self.run(FindMissing { codes, numbering }).await
    }

    async fn records_expired(
        &self,
        after: ExpiryPlace,
        now: Timestamp,
        limit: u32,
    ) -> Result<ExpiredPage, StoreError> {
        self.run(WalkByExpiry { after, limit, now }).await
    }

    async fn records_dead_since(
        &self,
        before: Timestamp,
        limit: u32,
        now: Timestamp,
    ) -> Result<Records, StoreError> {
        self.run(FindDead { before, limit, now }).await
    }

    async fn delete_links(
        &self,
        links: Vec<(Code, u64)>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let delete = DeleteLinks {
            links: &links,
            now,
            numbering: &self.numbering,
        };
        self.transact(delete).await
    }

    async fn deleted_links(
        &self,
        before: Timestamp,
        limit: u32,
    ) -> Result<Vec<(Code, u64)>, StoreError> {
        self.run(ReadDeleted { before, limit }).await
    }

    async fn free_codes(&self, codes: Vec<Code>) -> Result<(), StoreError> {
        let free = FreeCodes {
            codes: &codes,
            numbering: &self.numbering,
        };
        self.run(free).await
    }
}

struct Walk {
    after: Place,
    limit: u32,
    now: Timestamp,
}

#[async_trait]
impl Work for Walk {
    type Output = Page;
    const OPERATION: &'static str = "read the records of links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Page, sqlx::Error> {
        let row = sqlx::query(WALK)
            .bind(self.after.0)
            .bind(i64::from(self.limit))
            .fetch_one(&mut *connection)
            .await?;
        let count: i64 = row.try_get(0)?;
        let last: Option<i64> = row.try_get(1)?;
        let lines: Option<&str> = row.try_get(2)?;
        let mut records = Records::at(self.now);
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
                " FROM links WHERE id = ANY($1::bigint[])"
            ))
            .bind(others)
            .fetch_all(connection)
            .await?;
            for row in &rows {
                let link = read(row)?;
                records.push(link.code, &link.record());
            }
        }
        let is_last = count < i64::from(self.limit);
        Ok(Page {
            records,
            next: (!is_last).then_some(Place(last)),
        })
    }
}

struct FindRecords<'a> {
    codes: &'a [Code],
    now: Timestamp,
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for FindRecords<'_> {
    type Output = Kept;
    const OPERATION: &'static str = "find the records of links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Kept, sqlx::Error> {
        let ids = known_ids(connection, self.numbering, self.codes).await?;
        let rows = sqlx::query(FIND)
            .bind(ids.into_iter().flatten().collect::<Vec<i64>>())
            .bind(LONGEST_SPAN)
            .fetch_all(connection)
            .await?;
        let mut kept = Kept {
            records: Records::at(self.now),
            waiting: Vec::with_capacity(rows.len()),
        };
        for row in &rows {
            let link = read(row)?;
            kept.records.push(link.code, &link.record());
            kept.waiting.push(row.try_get("is_waiting")?);
        }
        Ok(kept)
    }
}

struct FindMissing<'a> {
    codes: &'a [Code],
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for FindMissing<'_> {
    type Output = Vec<usize>;
    const OPERATION: &'static str = "find codes without a link";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<usize>, sqlx::Error> {
        let ids = known_ids(connection, self.numbering, self.codes).await?;
        let mut taken: Vec<i64> = sqlx::query_scalar(FIND_TAKEN)
            .bind(ids.iter().copied().flatten().collect::<Vec<i64>>())
            .fetch_all(connection)
            .await?;
        taken.sort_unstable();
        let is_taken = |id: &i64| taken.binary_search(id).is_ok();
        let places = ids.iter().enumerate();
        let missing = places.filter(|(_, id)| !id.as_ref().is_some_and(is_taken));
        Ok(missing.map(|(place, _)| place).collect())
    }
}

struct WalkByExpiry {
    after: ExpiryPlace,
    limit: u32,
    now: Timestamp,
}

#[async_trait]
impl Work for WalkByExpiry {
    type Output = ExpiredPage;
    const OPERATION: &'static str = "read expired links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<ExpiredPage, sqlx::Error> {
        let rows = sqlx::query(WALK_BY_EXPIRY)
            .bind(self.after.second)
            .bind(self.after.place.0)
            .bind(self.now.as_second())
            .bind(i64::from(self.limit))
            .fetch_all(connection)
            .await?;
        let mut records = Records::at(self.now);
        let mut next = None;
        for row in &rows {
            let link = read(row)?;
            records.push(link.code, &link.record());
            next = Some(ExpiryPlace {
                second: row.try_get("valid_until")?,
                place: Place(row.try_get("id")?),
            });
        }
        Ok(ExpiredPage { records, next })
    }
}

struct FindDead {
    before: Timestamp,
    limit: u32,
    now: Timestamp,
}

#[async_trait]
impl Work for FindDead {
    type Output = Records;
    const OPERATION: &'static str = "find dead links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Records, sqlx::Error> {
        let mut rows = sqlx::query(REVOKED_SINCE)
            .bind(self.before.as_millisecond())
            .bind(i64::from(self.limit))
            .fetch_all(&mut *connection)
            .await?;
        let left = i64::from(self.limit).saturating_sub(rows.len() as i64);
        if left > 0 {
            let expired = sqlx::query(EXPIRED_SINCE)
                .bind(self.before.as_millisecond())
                .bind(left)
                .bind(self.before.as_second())
                .fetch_all(connection)
                .await?;
            rows.extend(expired);
        }
        let mut records = Records::at(self.now);
        for row in &rows {
            let link = read(row)?;
            records.push(link.code, &link.record());
        }
        Ok(records)
    }
}

struct ReadDeleted {
    before: Timestamp,
    limit: u32,
}

#[async_trait]
impl Work for ReadDeleted {
    type Output = Vec<(Code, u64)>;
    const OPERATION: &'static str = "read deleted links";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<(Code, u64)>, sqlx::Error> {
        let rows: Vec<(String, i64)> = sqlx::query_as(
            "SELECT code, revision FROM removed_links WHERE removed_at <= $1 \
             ORDER BY removed_at LIMIT $2",
        )
        .bind(self.before.as_millisecond())
        .bind(i64::from(self.limit))
        .fetch_all(connection)
        .await?;
        let links = rows.into_iter().map(|(code, revision)| {
            let code = code.parse();
            let code = code.map_err(|_error| invalid("removed_links", "code"))?;
            Ok((code, revision.unsigned_abs()))
        });
        links.collect()
    }
}

#[cfg(test)]
mod tests;
