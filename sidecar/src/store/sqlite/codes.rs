//! What the strategies for codes have to remember, in SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;
use vocabulary::Code;

use super::links::id_of;
use super::writer::Write;
use super::{SqliteStore, invalid};
use crate::core::codes::numbering::{CodeKey, Numbering};
use crate::core::link::Link;
use crate::core::ports::{CodeStore, CodeUsage, PoolCounts, StoreError};
use crate::store::shared::{Operation, usage};

#[async_trait]
impl CodeStore for SqliteStore {
    fn numbering(&self) -> Arc<Numbering> {
        Arc::clone(&self.numbering)
    }

    fn code_key(&self) -> CodeKey {
        self.code_key.clone()
    }

    async fn lease(&self, counter: &str, floor: u64, count: u64) -> Result<u64, StoreError> {
        let lease = Lease {
            counter: counter.to_owned(),
            floor: floor as i64,
            count: count as i64,
        };
        self.writer.write(lease).await
    }

    async fn take_pooled(&self, length: usize, count: u32) -> Result<Vec<Code>, StoreError> {
        self.writer.write(TakePooled { length, count }).await
    }

    async fn fill_pool(&self, codes: Vec<Code>) -> Result<u64, StoreError> {
        let numbering = Arc::clone(&self.numbering);
        self.writer.write(FillPool { codes, numbering }).await
    }

    async fn void_pooled(&self, codes: Vec<Code>) -> Result<(), StoreError> {
        self.writer.write(VoidPooled { codes }).await
    }

    async fn count_pooled(&self, length: usize) -> Result<PoolCounts, StoreError> {
        let (unused, used, void): (i64, i64, i64) = sqlx::query_as(
            "SELECT count(*) FILTER (WHERE status = 'unused'), \
             count(*) FILTER (WHERE status = 'used'), \
             count(*) FILTER (WHERE status = 'void') FROM code_pool WHERE length = ?1",
        )
        .bind(length as i64)
        .fetch_one(&self.readers)
        .operation("count pooled codes")
        .await?;
        Ok(PoolCounts {
            unused: unused.unsigned_abs(),
            used: used.unsigned_abs(),
            void: void.unsigned_abs(),
        })
    }

    async fn code_usage(&self, since_day: i64) -> Result<Vec<CodeUsage>, StoreError> {
        let rows: Vec<(i64, i64, i64)> = sqlx::query_as(
            "SELECT length, sum(links), sum(CASE WHEN day >= ?1 THEN links ELSE 0 END) \
             FROM code_usage GROUP BY length ORDER BY length",
        )
        .bind(since_day)
        .fetch_all(&self.readers)
        .operation("read how many codes are used")
        .await?;
        let usage = rows.into_iter().map(|(length, links, lately)| CodeUsage {
            length: length as usize,
            links: links.unsigned_abs(),
            lately: lately.unsigned_abs(),
        });
        Ok(usage.collect())
    }
}

/// Counts new links, in the transaction that keeps them.
pub(super) async fn count_usage(
    connection: &mut SqliteConnection,
    links: impl Iterator<Item = &Link>,
) -> Result<(), sqlx::Error> {
    for ((length, day), links) in usage(links) {
        sqlx::query(
            "INSERT INTO code_usage (length, day, links) VALUES (?1, ?2, ?3) \
             ON CONFLICT (length, day) DO UPDATE SET links = links + excluded.links",
        )
        .bind(length)
        .bind(day)
        .bind(links)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

struct Lease {
    counter: String,
    floor: i64,
    count: i64,
}

#[async_trait]
impl Write for Lease {
    type Output = u64;
    const OPERATION: &'static str = "lease codes";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let next: i64 = sqlx::query_scalar(
            "INSERT INTO code_counters (name, next) VALUES (?1, ?2 + ?3) \
             ON CONFLICT (name) DO UPDATE SET next = max(next, ?2) + ?3 RETURNING next",
        )
        .bind(&self.counter)
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
impl Write for TakePooled {
    type Output = Vec<Code>;
    const OPERATION: &'static str = "take codes out of the pool";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<Vec<Code>, sqlx::Error> {
        let codes: Vec<String> = sqlx::query_scalar(
            "UPDATE code_pool SET status = 'used' WHERE id IN (\
             SELECT id FROM code_pool INDEXED BY code_pool_unused \
             WHERE length = ?1 AND status = 'unused' ORDER BY id LIMIT ?2) RETURNING code",
        )
        .bind(self.length as i64)
        .bind(self.count)
        .fetch_all(connection)
        .await?;
        codes
            .iter()
            .map(|code| code.parse().map_err(|_error| invalid("code_pool", "code")))
            .collect()
    }
}

struct FillPool {
    codes: Vec<Code>,
    numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for FillPool {
    type Output = u64;
    const OPERATION: &'static str = "fill the pool of codes";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let mut rows = Vec::with_capacity(self.codes.len());
        for code in &self.codes {
            rows.push((id_of(&mut *connection, &self.numbering, code).await?, code));
        }
        // Neighbours in the index are looked for one after the other.
        rows.sort_unstable();
        let rows = rows.iter().map(|(id, code)| format!("[{id},\"{code}\"]"));
        let rows: Vec<String> = rows.collect();
        let done = sqlx::query(
            "INSERT INTO code_pool (code, length, status) \
             SELECT value ->> 1, length(value ->> 1), 'unused' FROM json_each(?1) \
             WHERE NOT EXISTS (SELECT 1 FROM links WHERE id = value ->> 0) \
             ON CONFLICT (code) DO NOTHING",
        )
        .bind(format!("[{}]", rows.join(",")))
        .execute(connection)
        .await?;
        Ok(done.rows_affected())
    }
}

struct VoidPooled {
    codes: Vec<Code>,
}

#[async_trait]
impl Write for VoidPooled {
    type Output = ();
    const OPERATION: &'static str = "void pooled codes";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for code in &self.codes {
            sqlx::query("UPDATE code_pool SET status = 'void' WHERE code = ?1")
                .bind(code.as_str())
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    }
}
