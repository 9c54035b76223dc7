//! The state of the strategies for codes, in PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use shortlink_core::codes::numbering::{CodeKey, Numbering};
use shortlink_core::link::Link;
use shortlink_core::ports::{CodeStore, StoreError};
use vocabulary::Code;

use super::PostgresStore;
use super::creation::ids_of;
use super::statements::Statements;
use super::work::Work;
use crate::shared::usage;

#[async_trait]
impl CodeStore for PostgresStore {
    fn numbering(&self) -> Arc<Numbering> {
        Arc::clone(&self.numbering)
    }

    fn code_key(&self) -> CodeKey {
        self.code_key.clone()
    }

    async fn fill_pool(&self, codes: Vec<Code>) -> Result<u64, StoreError> {
        let fill = FillPool {
            codes,
            numbering: &self.numbering,
        };
        self.transact(fill).await
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

/// Values that [`count!`] adds for new links: lengths, days and numbers of links.
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

struct FillPool<'a> {
    codes: Vec<Code>,
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for FillPool<'_> {
    type Output = u64;
    const OPERATION: &'static str = "fill the pool of codes";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        // All transactions insert codes in the same order.
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
