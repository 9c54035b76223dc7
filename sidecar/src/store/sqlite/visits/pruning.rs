//! Forgetting what is counted of times that are long past.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;

use crate::core::ports::OldCounts;
use crate::store::shared::DAY_MS;
use crate::store::sqlite::writer::Write;
use crate::store::visits::{EARLIER, HOUR_MS, MINUTE_MS};

pub(super) struct ForgetCounts {
    pub(super) old: OldCounts,
    pub(super) limit: u32,
}

#[async_trait]
impl Write for ForgetCounts {
    type Output = u64;
    const OPERATION: &'static str = "forget old counts";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let mut gone = 0;
        if let Some(before) = self.old.minutes_before {
            let done = sqlx::query(
                "DELETE FROM visit_domain_minutes WHERE (minute, host) IN \
                 (SELECT minute, host FROM visit_domain_minutes WHERE minute < ?1 \
                 ORDER BY minute LIMIT ?2)",
            )
            .bind(before.as_millisecond().div_euclid(MINUTE_MS))
            .bind(self.limit)
            .execute(&mut *connection)
            .await?;
            gone += done.rows_affected();
        }
        let Some(before) = self.old.hours_before else {
            return Ok(gone);
        };
        let before = before.as_millisecond();
        gone += fold_links(connection, before.div_euclid(HOUR_MS), self.limit).await?;
        for (statement, before) in [
            (
                "DELETE FROM visit_hours WHERE (campaign_id, dimension, hour, value, class) IN \
                 (SELECT campaign_id, dimension, hour, value, class FROM visit_hours \
                 INDEXED BY visit_hours_by_hour WHERE hour < ?1 ORDER BY hour LIMIT ?2)",
                before.div_euclid(HOUR_MS),
            ),
            (
                "DELETE FROM visit_sketches WHERE (campaign_id, day) IN \
                 (SELECT campaign_id, day FROM visit_sketches INDEXED BY visit_sketches_by_day \
                 WHERE day < ?1 ORDER BY day LIMIT ?2)",
                before.div_euclid(DAY_MS),
            ),
        ] {
            let done = sqlx::query(statement)
                .bind(before)
                .bind(self.limit)
                .execute(&mut *connection)
                .await?;
            gone += done.rows_affected();
        }
        Ok(gone)
    }
}

/// Adds the hours of links that are old to what they were visited earlier: how often a link was
/// visited, and when last, is known for ever.
async fn fold_links(
    connection: &mut SqliteConnection,
    before: i64,
    limit: u32,
) -> Result<u64, sqlx::Error> {
    // The hours that are folded; the same ones whenever it is asked within the transaction. With the
    // number in its text SQLite knows that the index has all of them.
    let old = |columns: &str| {
        format!(
            "(SELECT {columns} FROM visit_link_hours INDEXED BY visit_link_hours_by_hour \
             WHERE hour > {EARLIER} AND hour < ?1 ORDER BY hour, link_id, class LIMIT ?2)"
        )
    };
    let add = format!(
        "INSERT INTO visit_link_hours (link_id, hour, class, visits, last_at) \
         SELECT link_id, {EARLIER}, class, sum(visits), max(last_at) FROM {} \
         WHERE true GROUP BY link_id, class ON CONFLICT DO UPDATE SET \
         visits = visits + excluded.visits, last_at = max(last_at, excluded.last_at)",
        old("link_id, class, visits, last_at")
    );
    sqlx::query(AssertSqlSafe(add))
        .bind(before)
        .bind(limit)
        .execute(&mut *connection)
        .await?;
    let delete = format!(
        "DELETE FROM visit_link_hours WHERE (link_id, hour, class) IN {}",
        old("link_id, hour, class")
    );
    let done = sqlx::query(AssertSqlSafe(delete))
        .bind(before)
        .bind(limit)
        .execute(connection)
        .await?;
    Ok(done.rows_affected())
}
