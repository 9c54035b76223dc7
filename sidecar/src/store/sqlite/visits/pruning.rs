//! Forgetting what is counted of times that are long past.

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;

use crate::domain::ports::OldCounts;
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
    /// The hours that are folded; the same ones whenever it is asked within the transaction.
    macro_rules! old {
        ($columns:literal) => {
            concat!(
                "(SELECT ",
                $columns,
                " FROM visit_link_hours INDEXED BY visit_link_hours_by_hour \
                 WHERE hour > ?1 AND hour < ?2 ORDER BY hour, code, class LIMIT ?3)"
            )
        };
    }
    sqlx::query(concat!(
        "INSERT INTO visit_link_hours (code, hour, class, visits, last_at) \
         SELECT code, ?1, class, sum(visits), max(last_at) FROM ",
        old!("code, class, visits, last_at"),
        " WHERE true GROUP BY code, class ON CONFLICT DO UPDATE SET \
         visits = visits + excluded.visits, last_at = max(last_at, excluded.last_at)"
    ))
    .bind(EARLIER)
    .bind(before)
    .bind(limit)
    .execute(&mut *connection)
    .await?;
    let done = sqlx::query(concat!(
        "DELETE FROM visit_link_hours WHERE (code, hour, class) IN ",
        old!("code, hour, class")
    ))
    .bind(EARLIER)
    .bind(before)
    .bind(limit)
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
