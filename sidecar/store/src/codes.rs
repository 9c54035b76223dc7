//! The state of the strategies for codes: counters, and the pool.

use shortlink_core::boxed;
use shortlink_core::ports::{CodeUsage, PoolCounts, StoreError};
use vocabulary::Code;

use super::db::Db;
use super::rows::ids_of;
use super::shared::usage;
use super::sql::{IN_TEXTS, relaxed, sql, table};
use super::value::{Row, args};
use super::{Scheme, Store};

/// Begins an addition to the counts of links; behind it is a table with the lengths of their codes, the
/// days, and how many they are.
pub(super) const COUNT: &str = "INSERT INTO code_usage (length, day, {|slot, }links) \
     SELECT length, day, {|pg_backend_pid() % 16, }links FROM ";

/// Ends it.
pub(super) const COUNTED: &str = " WHERE true ON CONFLICT (length, day{|, slot}) \
     DO UPDATE SET links = code_usage.links + excluded.links";

/// Rows of the counts.
const ROWS: &str = table!("new": 1 "length" "bigint", 2 "day" "bigint", 3 "links" "bigint");

/// Adds new links, as their codes and creation times in milliseconds, to the counts in the transaction
/// that stores them, or those that are deleted with `sign` -1.
pub(super) async fn count(
    db: &mut Db<'_>,
    links: impl Iterator<Item = (&Code, i64)>,
    sign: i64,
) -> Result<(), sqlx::Error> {
    let rows = usage(links).into_iter();
    let rows: Vec<_> = rows
        .map(|((length, day), links)| [length.into(), day.into(), (sign * links).into()])
        .collect();
    let sql = match db.scheme() {
        // Never below 0. In PostgreSQL, one slot may be, as another session has counted the link.
        Scheme::Sqlite if sign < 0 => sql!(
            "UPDATE code_usage SET links = max(code_usage.links + new.links, 0) FROM ",
            ROWS,
            " WHERE code_usage.length = new.length AND code_usage.day = new.day"
        ),
        _ => sql!(COUNT, ROWS, COUNTED),
    };
    db.run_table(sql, rows.into_iter(), &[]).await?;
    Ok(())
}

impl Store {
    /// Moves a counter forward, to `floor` first if it is behind, and returns its value before: only
    /// the caller may use the `count` numbers from there on.
    #[boxed]
    pub async fn lease(&self, counter: &str, floor: u64, count: u64) -> Result<u64, StoreError> {
        let operation = "lease codes";
        let read = |row: &Row| row.get::<i64>("next");
        if (floor, count) == (0, 0) {
            let sql = sql!("SELECT next FROM code_counters WHERE name = $1");
            let next = self.one(operation, sql, args![counter], read).await?;
            return Ok(next.unwrap_or_default().unsigned_abs());
        }
        let args = (counter.to_owned(), floor, count);
        self.run_one(operation, args, move |db, (counter, floor, count)| {
            Box::pin(async move {
                // With `WHERE true`, SQLite does not parse `ON` as the beginning of a join.
                let sql = sql!(
                    "INSERT INTO code_counters (name, next) \
                     SELECT $1, CAST($2 AS bigint) + $3 ",
                    concat!("{WHERE true|FROM ", relaxed!(), "}"),
                    " ON CONFLICT (name) DO UPDATE SET \
                     next = {max|greatest}(code_counters.next, $2) + $3 RETURNING next"
                );
                let next = db.one(sql, args![counter, *floor, *count], read).await?;
                let next = next.ok_or(sqlx::Error::RowNotFound)?;
                Ok(next.unsigned_abs() - count)
            })
        })
        .await
    }

    /// Takes unused codes of a length out of the pool, at most `count`: they are used.
    #[boxed]
    pub async fn take_pooled(&self, length: usize, count: u32) -> Result<Vec<Code>, StoreError> {
        let args = (length as u64, count);
        self.run_one("take codes out of the pool", args, |db, (length, count)| {
            Box::pin(take_pooled(db, *length, *count))
        })
        .await
    }

    /// Puts codes into the pool; those that are in it already, or that links have, are left out.
    /// Returns the number of new ones.
    #[boxed]
    pub async fn fill_pool(&self, codes: Vec<Code>) -> Result<u64, StoreError> {
        self.run_tx("fill the pool of codes", codes, |db, codes| {
            Box::pin(fill_pool(db, codes))
        })
        .await
    }

    /// Notes that pooled codes were found taken.
    #[boxed]
    pub async fn void_pooled(&self, codes: Vec<Code>) -> Result<(), StoreError> {
        let codes: Vec<&str> = codes.iter().map(Code::as_str).collect();
        let sql = sql!(
            "UPDATE code_pool SET status = 'void' \
             WHERE code",
            IN_TEXTS
        );
        self.run("void pooled codes", sql, args![codes]).await?;
        Ok(())
    }

    /// Counts the pool's codes of a length by status: unused, used, void.
    #[boxed]
    pub async fn count_pooled(&self, length: usize) -> Result<PoolCounts, StoreError> {
        // Used codes grow more and more: they are not counted one by one.
        let sql = sql!(
            "SELECT unused, {max|greatest}(filled - unused - void, 0) AS used, void FROM (SELECT \
             coalesce((SELECT next FROM code_counters WHERE name = 'pooled:' || $1), 0) AS filled, \
             (SELECT count(*) FROM code_pool WHERE length = $1 AND status = 'unused') AS unused, \
             (SELECT count(*) FROM code_pool WHERE length = $1 AND status = 'void') AS void) AS pool"
        );
        let read = |row: &Row| {
            Ok(PoolCounts {
                unused: row.get("unused")?,
                used: row.get("used")?,
                void: row.get("void")?,
            })
        };
        let values = args![length as u64];
        let counts = self.one("count pooled codes", sql, values, read);
        Ok(counts.await?.unwrap_or_default())
    }

    /// Counts the links that were created, by the length of their codes: in all, and since a day (in
    /// days since 1970).
    #[boxed]
    pub async fn code_usage(&self, since_day: i64) -> Result<Vec<CodeUsage>, StoreError> {
        let sql = sql!(
            "SELECT length, CAST(sum(links) AS bigint) AS links, \
             CAST(sum(CASE WHEN day >= $1 THEN links ELSE 0 END) AS bigint) AS lately \
             FROM code_usage GROUP BY length ORDER BY length"
        );
        let read = |row: &Row| {
            let count = |column| {
                row.get::<i64>(column)
                    .map(|count| count.max(0).unsigned_abs())
            };
            Ok(CodeUsage {
                length: row.get::<u16>("length")?.into(),
                links: count("links")?,
                lately: count("lately")?,
            })
        };
        let operation = "count used codes";
        self.all(operation, sql, args![since_day], read).await
    }
}

/// Takes unused codes of a length out of the pool.
pub(super) async fn take_pooled(
    db: &mut Db<'_>,
    length: u64,
    count: u32,
) -> Result<Vec<Code>, sqlx::Error> {
    // PostgreSQL skips codes that another session is taking instead of waiting for it.
    let sql = sql!(
        "UPDATE code_pool SET status = 'used' ",
        concat!(
            "{WHERE id IN (SELECT id FROM code_pool INDEXED BY code_pool_unused \
             WHERE length = $1 AND status = 'unused' ORDER BY id LIMIT $2)|FROM ",
            relaxed!(),
            " WHERE ctid = ANY(ARRAY(SELECT ctid FROM code_pool \
             WHERE length = $1 AND status = 'unused' ORDER BY id LIMIT $2 \
             FOR UPDATE SKIP LOCKED))}"
        ),
        " RETURNING code"
    );
    db.all(sql, args![length, count], |row| row.get("code"))
        .await
}

async fn fill_pool(db: &mut Db<'_>, codes: &[Code]) -> Result<u64, sqlx::Error> {
    if codes.is_empty() {
        return Ok(0);
    }
    // All transactions insert codes in the same order.
    let mut codes: Vec<&str> = codes.iter().map(Code::as_str).collect();
    codes.sort_unstable();
    let ids = ids_of(db, &codes).await?;
    let mut rows: Vec<(i64, &str)> = ids.into_iter().zip(codes).collect();
    if db.scheme() == Scheme::Sqlite {
        // Neighbours in the table of links are looked up in sequence.
        rows.sort_unstable();
    }
    let rows = rows.into_iter();
    let values = db.table(rows.map(|(id, code)| [id.into(), code.into()]));
    // The codes that were ever put in are counted here: they grow more and more.
    let sql = sql!(
        "{|WITH new AS (}INSERT INTO code_pool (code, length, status) \
         SELECT code, length(code), 'unused' FROM ",
        table!("made": 1 "id" "bigint", 2 "code" "text"),
        " WHERE NOT EXISTS (SELECT 1 FROM links WHERE links.id = made.id) \
         ON CONFLICT (code) DO NOTHING{| RETURNING length), \
         counted AS (INSERT INTO code_counters (name, next) \
         SELECT 'pooled:' || length, count(*) FROM new GROUP BY length ORDER BY length \
         ON CONFLICT (name) DO UPDATE SET next = code_counters.next + excluded.next) \
         SELECT count(*) AS added FROM new}"
    );
    if db.scheme() == Scheme::Postgres {
        return db.get(sql, &values, |row| row.get("added")).await;
    }
    let added = db.run(sql, &values).await?;
    // SQLite has one writer, which has appended them.
    let count = sql!(
        "INSERT INTO code_counters (name, next) SELECT 'pooled:' || length, count(*) FROM \
         (SELECT length FROM code_pool ORDER BY id DESC LIMIT $1) AS new WHERE true GROUP BY length \
         ON CONFLICT (name) DO UPDATE SET next = code_counters.next + excluded.next"
    );
    db.run(count, args![added]).await?;
    Ok(added)
}
