//! What the strategies for codes have to remember, in PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use vocabulary::Code;

use super::PostgresStore;
use super::creation::ids_of;
use super::statements::Statements;
use super::work::{Work, relaxed};
use crate::core::codes::numbering::{CodeKey, Numbering};
use crate::core::link::Link;
use crate::core::ports::{CodeStore, CodeUsage, PoolCounts, StoreError};
use crate::store::shared::{invalid, usage};

#[async_trait]
impl CodeStore for PostgresStore {
    fn numbering(&self) -> Arc<Numbering> {
        Arc::clone(&self.numbering)
    }

    fn code_key(&self) -> CodeKey {
        self.code_key.clone()
    }

    async fn lease(&self, counter: &str, floor: u64, count: u64) -> Result<u64, StoreError> {
        let lease = Lease {
            counter,
            floor: floor as i64,
            count: count as i64,
        };
        self.run(lease).await
    }

    async fn take_pooled(&self, length: usize, count: u32) -> Result<Vec<Code>, StoreError> {
        self.run(TakePooled { length, count }).await
    }

    async fn fill_pool(&self, codes: Vec<Code>) -> Result<u64, StoreError> {
        let fill = FillPool {
            codes,
            numbering: &self.numbering,
        };
        self.transact(fill).await
    }

    async fn void_pooled(&self, codes: Vec<Code>) -> Result<(), StoreError> {
        self.run(VoidPooled { codes }).await
    }

    async fn count_pooled(&self, length: usize) -> Result<PoolCounts, StoreError> {
        self.run(CountPooled { length }).await
    }

    async fn code_usage(&self, since_day: i64) -> Result<Vec<CodeUsage>, StoreError> {
        self.run(ReadUsage { since_day }).await
    }
}

/// Adds to the counts of links: the lengths of their codes, the days, and how many they are.
macro_rules! count {
    ($lengths:literal, $days:literal, $links:literal) => {
        concat!(
            "INSERT INTO code_usage (length, day, slot, links) \
             SELECT length, day, pg_backend_pid() % 16, links FROM unnest(",
            $lengths,
            "::bigint[], ",
            $days,
            "::bigint[], ",
            $links,
            "::bigint[]) AS new (length, day, links) ON CONFLICT (length, day, slot) \
             DO UPDATE SET links = code_usage.links + excluded.links"
        )
    };
}
pub(super) use count;

/// What [`count!`] adds for new links: the lengths, the days, and how many they are.
pub(super) fn counts<'a>(
    links: impl IntoIterator<Item = &'a Link>,
) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
    let counts = usage(links).into_iter();
    counts
        .map(|((length, day), links)| (length, day, links))
        .collect()
}

/// Counts links no more, in the transaction that deletes them.
pub(super) async fn uncount<'a>(
    connection: &mut Statements<'_>,
    links: impl IntoIterator<Item = &'a Link>,
) -> Result<(), sqlx::Error> {
    let (lengths, days, links) = counts(links);
    let links: Vec<i64> = links.into_iter().map(|links| -links).collect();
    sqlx::query(count!("$1", "$2", "$3"))
        .bind(lengths)
        .bind(days)
        .bind(links)
        .execute(connection)
        .await?;
    Ok(())
}

struct Lease<'a> {
    counter: &'a str,
    floor: i64,
    count: i64,
}

#[async_trait]
impl Work for Lease<'_> {
    type Output = u64;
    const OPERATION: &'static str = "lease codes";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        if (self.floor, self.count) == (0, 0) {
            let next: Option<i64> =
                sqlx::query_scalar("SELECT next FROM code_counters WHERE name = $1")
                    .bind(self.counter)
                    .fetch_optional(connection)
                    .await?;
            return Ok(next.unwrap_or_default().unsigned_abs());
        }
        let next: i64 = sqlx::query_scalar(concat!(
            "INSERT INTO code_counters (name, next) SELECT $1, $2::bigint + $3 FROM ",
            relaxed!(),
            " ON CONFLICT (name) DO UPDATE SET next = greatest(code_counters.next, $2) + $3 \
             RETURNING next"
        ))
        .bind(self.counter)
        .bind(self.floor)
        .bind(self.count)
        .fetch_one(connection)
        .await?;
        Ok((next - self.count).unsigned_abs())
    }
}

struct TakePooled {
    length: usize,
    count: u32,
}

#[async_trait]
impl Work for TakePooled {
    type Output = Vec<Code>;
    const OPERATION: &'static str = "take codes out of the pool";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<Code>, sqlx::Error> {
        // What somebody else is about to take is passed over instead of being waited for.
        let codes: Vec<String> = sqlx::query_scalar(concat!(
            "UPDATE code_pool SET status = 'used' FROM ",
            relaxed!(),
            " WHERE ctid = ANY(ARRAY(SELECT ctid FROM code_pool \
             WHERE length = $1 AND status = 'unused' ORDER BY id LIMIT $2 \
             FOR UPDATE SKIP LOCKED)) RETURNING code"
        ))
        .bind(self.length as i64)
        .bind(i64::from(self.count))
        .fetch_all(connection)
        .await?;
        codes
            .iter()
            .map(|code| code.parse().map_err(|_error| invalid("code_pool", "code")))
            .collect()
    }
}

struct FillPool<'a> {
    codes: Vec<Code>,
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for FillPool<'_> {
    type Output = u64;
    const OPERATION: &'static str = "fill the pool of codes";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        // Two who bring the same codes do it in the same order.
        self.codes
            .sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        let ids = ids_of(connection, self.numbering, &self.codes).await?;
        let codes: Vec<&str> = self.codes.iter().map(Code::as_str).collect();
        let new: i64 = sqlx::query_scalar(
            "WITH new AS (INSERT INTO code_pool (code, length, status) \
             SELECT code, length(code), 'unused' \
             FROM unnest($1::bigint[], $2::text[]) AS made (id, code) \
             WHERE NOT EXISTS (SELECT 1 FROM links WHERE links.id = made.id) \
             ON CONFLICT (code) DO NOTHING RETURNING length), \
             counted AS (INSERT INTO code_counters (name, next) \
             SELECT 'pooled:' || length, count(*) FROM new GROUP BY length ORDER BY length \
             ON CONFLICT (name) DO UPDATE SET next = code_counters.next + excluded.next) \
             SELECT count(*) FROM new",
        )
        .bind(ids)
        .bind(codes)
        .fetch_one(connection)
        .await?;
        Ok(new.unsigned_abs())
    }
}

struct VoidPooled {
    codes: Vec<Code>,
}

#[async_trait]
impl Work for VoidPooled {
    type Output = ();
    const OPERATION: &'static str = "void pooled codes";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<(), sqlx::Error> {
        let codes: Vec<&str> = self.codes.iter().map(Code::as_str).collect();
        sqlx::query("UPDATE code_pool SET status = 'void' WHERE code = ANY($1::text[])")
            .bind(codes)
            .execute(connection)
            .await?;
        Ok(())
    }
}

struct CountPooled {
    length: usize,
}

#[async_trait]
impl Work for CountPooled {
    type Output = PoolCounts;
    const OPERATION: &'static str = "count pooled codes";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<PoolCounts, sqlx::Error> {
        // Those that were used grow more and more, and are not counted one by one.
        let (all, unused, void): (i64, i64, i64) = sqlx::query_as(
            "SELECT coalesce((SELECT next FROM code_counters WHERE name = 'pooled:' || $1), 0), \
             (SELECT count(*) FROM code_pool WHERE length = $1 AND status = 'unused'), \
             (SELECT count(*) FROM code_pool WHERE length = $1 AND status = 'void')",
        )
        .bind(self.length as i64)
        .fetch_one(connection)
        .await?;
        Ok(PoolCounts {
            unused: unused.unsigned_abs(),
            used: u64::try_from(all - unused - void).unwrap_or_default(),
            void: void.unsigned_abs(),
        })
    }
}

struct ReadUsage {
    since_day: i64,
}

#[async_trait]
impl Work for ReadUsage {
    type Output = Vec<CodeUsage>;
    const OPERATION: &'static str = "read how many codes are used";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<CodeUsage>, sqlx::Error> {
        let rows: Vec<(i64, i64, i64)> = sqlx::query_as(
            "SELECT length, sum(links)::bigint, \
             coalesce(sum(links) FILTER (WHERE day >= $1), 0)::bigint \
             FROM code_usage GROUP BY length ORDER BY length",
        )
        .bind(self.since_day)
        .fetch_all(connection)
        .await?;
        let usage = rows.into_iter().map(|(length, links, lately)| CodeUsage {
            length: length as usize,
            links: u64::try_from(links).unwrap_or_default(),
            lately: u64::try_from(lately).unwrap_or_default(),
        });
        Ok(usage.collect())
    }
}
