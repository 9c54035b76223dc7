//! Forgetting what is counted of times that are long past.

use async_trait::async_trait;

use crate::core::ports::OldCounts;
use crate::store::postgres::statements::Statements;
use crate::store::postgres::work::Work;
use crate::store::shared::DAY_MS;
use crate::store::visits::{EARLIER, HOUR_MS, MINUTE_MS};

pub(super) struct ForgetCounts {
    pub(super) old: OldCounts,
    pub(super) limit: u32,
}

#[async_trait]
impl Work for ForgetCounts {
    type Output = u64;
    const OPERATION: &'static str = "forget old counts";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let mut gone = 0;
        if let Some(before) = self.old.minutes_before {
            let done = sqlx::query(
                "DELETE FROM visit_domain_minutes WHERE (minute, host) IN \
                 (SELECT minute, host FROM visit_domain_minutes WHERE minute < $1 \
                 ORDER BY minute LIMIT $2)",
            )
            .bind(before.as_millisecond().div_euclid(MINUTE_MS))
            .bind(i64::from(self.limit))
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
                 WHERE hour < $1 ORDER BY hour LIMIT $2)",
                before.div_euclid(HOUR_MS),
            ),
            (
                "DELETE FROM visit_sketches WHERE (campaign_id, day) IN \
                 (SELECT campaign_id, day FROM visit_sketches WHERE day < $1 \
                 ORDER BY day LIMIT $2)",
                before.div_euclid(DAY_MS),
            ),
        ] {
            let done = sqlx::query(statement)
                .bind(before)
                .bind(i64::from(self.limit))
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
    connection: &mut Statements<'_>,
    before: i64,
    limit: u32,
) -> Result<u64, sqlx::Error> {
    let folded: i64 = sqlx::query_scalar(
        "WITH old AS (DELETE FROM visit_link_hours WHERE (code, hour, class) IN \
         (SELECT code, hour, class FROM visit_link_hours WHERE hour > $1 AND hour < $2 \
         ORDER BY hour LIMIT $3) RETURNING code, class, visits, last_at), \
         added AS (INSERT INTO visit_link_hours AS kept (code, hour, class, visits, last_at) \
         SELECT code, $1, class, sum(visits)::bigint, max(last_at) FROM old \
         GROUP BY code, class ORDER BY code, class \
         ON CONFLICT (code, hour, class) DO UPDATE SET visits = kept.visits + excluded.visits, \
         last_at = greatest(kept.last_at, excluded.last_at)) \
         SELECT count(*) FROM old",
    )
    .bind(EARLIER)
    .bind(before)
    .bind(i64::from(limit))
    .fetch_one(connection)
    .await?;
    Ok(folded.unsigned_abs())
}
