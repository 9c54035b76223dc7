//! Deleting visits, and counts of times that are long past.

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{OldCounts, StoreError};

use super::sink::asked;
use super::{EARLIER, EARLIER_TEXT, HOUR_MS, MINUTE_MS, sketches};
use crate::db::Db;
use crate::shared::DAY_MS;
use crate::sql::{Sql, sql};
use crate::value::args;
use crate::{Engine, Scheme, Store};

/// The number of oldest visits, by their ids, among which SQLite finds those that are due.
const FORGET_AMONG: &str = "20000";

/// Deletes the days that no visit is left of.
const FORGET_DAYS: Sql = sql!(
    "DELETE FROM visit_days WHERE last_id < coalesce((SELECT min(id) FROM visits), last_id + 1)"
);

/// Locks the rows that are to be deleted, except those that another transaction of PostgreSQL has locked: they are
/// deleted later. Retention finds rows by their times, and others lock them in the order of their keys: to wait could
/// be a deadlock.
pub(super) const FREE: &str = "{| FOR UPDATE SKIP LOCKED}";

impl Store {
    /// Deletes some visits that were stored before a moment, at most `limit`, or those of one day
    /// together; returns their number.
    #[boxed]
    pub async fn forget_visits(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let dropped = match &self.engine {
            Engine::Sqlite(_) => 0,
            Engine::Postgres(store) => self.drop_days(&store.days, before).await?,
        };
        let deleted = self.run_tx("delete visits", (before, limit), |db, (before, limit)| {
            Box::pin(async move {
                // In SQLite visits have no index by time, and those of clocks that are ahead must not
                // hold up the others. In PostgreSQL most days have a part of their own.
                let sql = sql!(
                    "{|WITH due AS MATERIALIZED (SELECT id, at FROM visits_of_other_days WHERE at < $1 \
                     ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) }\
                     DELETE FROM {visits WHERE id IN (SELECT id FROM \
                     (SELECT id, at FROM visits ORDER BY id LIMIT ",
                    FORGET_AMONG,
                    ") WHERE at < $1 LIMIT $2)|visits_of_other_days WHERE (id, at) IN (SELECT id, at FROM due)}"
                );
                let deleted = db.run(sql, args![*before, *limit]).await?;
                if deleted == 0 {
                    let sql = sql!(
                        "DELETE FROM visit_origins WHERE origin IN \
                         (SELECT origin FROM visit_origins WHERE seen_at < $1",
                        FREE,
                        ")"
                    );
                    db.run(sql, args![*before]).await?;
                    let sql = sql!("DELETE FROM visit_quarantine WHERE at < $1");
                    db.run(sql, args![*before]).await?;
                    // The rest of their visits would replace their unique visitors.
                    let sql = sql!(
                        "DELETE FROM visit_stale_sketches WHERE (campaign_id, day) IN \
                         (SELECT campaign_id, day FROM visit_stale_sketches WHERE day < $1",
                        FREE,
                        ")"
                    );
                    let day = before.as_millisecond().div_euclid(DAY_MS);
                    db.run(sql, args![day]).await?;
                    if db.scheme() == Scheme::Sqlite {
                        db.run(FORGET_DAYS, &[]).await?;
                    }
                }
                Ok(deleted)
            })
        });
        Ok(dropped + deleted.await?)
    }

    /// Deletes some old counts, at most `limit` rows of each kind; returns their number. The totals
    /// of each link by class and the times of its last visits stay.
    #[boxed]
    pub async fn forget_counts(&self, old: OldCounts, limit: u32) -> Result<u64, StoreError> {
        if let (Some(sink), Some(before)) = (&self.sink, old.hours_before) {
            // ClickHouse rewrites parts of its table for this: once a day.
            let days = before.as_millisecond().div_euclid(DAY_MS);
            let day = Timestamp::from_millisecond(days * DAY_MS).unwrap_or(before);
            asked("delete old counts", sink.fold_hours(day).await)?;
        }
        self.run_tx("delete old counts", (old, limit), |db, (old, limit)| {
            Box::pin(forget_counts(db, *old, *limit))
        })
        .await
    }
}

async fn forget_counts(db: &mut Db<'_>, old: OldCounts, limit: u32) -> Result<u64, sqlx::Error> {
    let mut gone = 0;
    if let Some(before) = old.minutes_before {
        let sql = sql!(
            "WITH old AS MATERIALIZED (SELECT minute, host FROM visit_domain_minutes \
             WHERE minute < $1 ORDER BY minute LIMIT $2",
            FREE,
            ") DELETE FROM visit_domain_minutes \
             WHERE (minute, host) IN (SELECT minute, host FROM old)"
        );
        let before = before.as_millisecond().div_euclid(MINUTE_MS);
        gone += db.run(sql, args![before, limit]).await?;
    }
    let Some(before) = old.hours_before else {
        return Ok(gone);
    };
    let before = before.as_millisecond();
    let hour = before.div_euclid(HOUR_MS);
    gone += fold_links(db, hour, limit).await?;
    let sql = sql!(
        "WITH old AS MATERIALIZED (SELECT campaign_id, dimension, hour, value, class \
         FROM visit_hours {INDEXED BY visit_hours_by_hour }WHERE hour < $1 ORDER BY hour LIMIT $2",
        FREE,
        ") DELETE FROM visit_hours WHERE (campaign_id, dimension, hour, value, class) IN \
         (SELECT campaign_id, dimension, hour, value, class FROM old)"
    );
    gone += db.run(sql, args![hour, limit]).await?;
    // Only those of whole days: a value keeps its name as long as the day is counted.
    let day = before.div_euclid(DAY_MS);
    let sql = sql!(
        "WITH old AS MATERIALIZED (SELECT campaign_id, dimension, day, value \
         FROM visit_values {INDEXED BY visit_values_by_day }WHERE day < $1 ORDER BY day LIMIT $2",
        FREE,
        ") DELETE FROM visit_values WHERE (campaign_id, dimension, day, value) IN \
         (SELECT campaign_id, dimension, day, value FROM old)"
    );
    gone += db.run(sql, args![day, limit]).await?;
    gone += sketches::forget(db, day, limit).await?;
    Ok(gone)
}

/// Adds old hourly counts of links to their earlier visits: the number of a link's visits and the time
/// of the last one are never deleted.
async fn fold_links(db: &mut Db<'_>, before: i64, limit: u32) -> Result<u64, sqlx::Error> {
    if db.scheme() == Scheme::Postgres {
        let sql = sql!(
            "WITH due AS MATERIALIZED (SELECT code, hour, class FROM visit_link_hours \
             WHERE hour > $1 AND hour < $2 ORDER BY hour LIMIT $3",
            FREE,
            "), old AS (DELETE FROM visit_link_hours WHERE (code, hour, class) IN \
             (SELECT code, hour, class FROM due) RETURNING code, class, visits, last_at), \
             added AS (INSERT INTO visit_link_hours AS kept (code, hour, class, visits, last_at) \
             SELECT code, $1, class, sum(visits)::bigint, max(last_at) FROM old \
             GROUP BY code, class ORDER BY code, class \
             ON CONFLICT (code, hour, class) DO UPDATE SET visits = kept.visits + excluded.visits, \
             last_at = greatest(kept.last_at, excluded.last_at)) \
             SELECT count(*) AS folded FROM old"
        );
        let values = args![EARLIER, before, limit];
        let folded = db.one(sql, values, |row| row.get("folded")).await?;
        return Ok(folded.unwrap_or_default());
    }
    // The hours that are folded: both statements find the same ones.
    const OLD: [&str; 3] = [
        " FROM visit_link_hours INDEXED BY visit_link_hours_by_hour WHERE hour > ",
        EARLIER_TEXT,
        " AND hour < $1 ORDER BY hour, link_id, class LIMIT $2)",
    ];
    let add = sql!(
        "INSERT INTO visit_link_hours (link_id, hour, class, visits, last_at) \
         SELECT link_id, ",
        EARLIER_TEXT,
        ", class, sum(visits), max(last_at) FROM (SELECT link_id, class, visits, last_at",
        OLD[0],
        OLD[1],
        OLD[2],
        " WHERE true GROUP BY link_id, class ON CONFLICT DO UPDATE SET \
         visits = visits + excluded.visits, last_at = max(last_at, excluded.last_at)"
    );
    db.run(add, args![before, limit]).await?;
    let delete = sql!(
        "DELETE FROM visit_link_hours WHERE (link_id, hour, class) IN \
         (SELECT link_id, hour, class",
        OLD[0],
        OLD[1],
        OLD[2],
    );
    db.run(delete, args![before, limit]).await
}
