//! The parts of the table of visits: one a day.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use jiff::civil::Date;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use sqlx::AssertSqlSafe;

use crate::core::ports::StoreError;
use crate::core::visit::Visit;
use crate::core::visit::visitor::day_of;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::statements::Statements;
use crate::store::postgres::work::Work;

/// How far from now a day may be to get a part of its own: a clock that is wrong must not fill the
/// database with parts.
const PAST: SignedDuration = SignedDuration::from_hours(24 * 40);
const FUTURE: SignedDuration = SignedDuration::from_hours(24 * 2);

/// What every part's name begins with; the day follows as `20261121`.
const PREFIX: &str = "visits_";

/// The days whose parts are known to be there.
#[derive(Debug, Default)]
pub(in crate::store::postgres) struct Days(Mutex<BTreeSet<Date>>);

impl Days {
    fn has(&self, day: Date) -> bool {
        self.known().contains(&day)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeSet<Date>> {
        // Days are put in and taken out whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a day begins, in milliseconds since 1970.
fn begin(day: Date) -> Option<i64> {
    let moment = Offset::UTC.to_timestamp(day.to_datetime(jiff::civil::time(0, 0, 0, 0)));
    moment.ok().map(Timestamp::as_millisecond)
}

fn name(day: Date) -> String {
    format!("{PREFIX}{}", day.strftime("%Y%m%d"))
}

impl PostgresStore {
    /// Makes the parts that visits need.
    pub(super) async fn make_days(
        &self,
        visits: &[Visit],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let days: BTreeSet<Date> = visits
            .iter()
            .filter(|visit| (now - PAST..now + FUTURE).contains(&visit.at))
            .map(|visit| day_of(visit.at))
            .collect();
        for day in days.into_iter().filter(|&day| !self.days.has(day)) {
            if let Err(error) = self.run(MakeDay(day)).await {
                // Visits of the day are in the default part already, as after a restore: there
                // the others go too.
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    %day,
                    "the visits of a day have no part of their own"
                );
            }
            self.days.known().insert(day);
        }
        Ok(())
    }

    /// Drops the part of the first day with visits that ended before a moment; answers how many
    /// visits that were.
    pub(in crate::store) async fn drop_days(&self, before: Timestamp) -> Result<u64, StoreError> {
        let dropped = self.run(DropDays(before)).await?;
        self.days
            .known()
            .retain(|day| begin(*day).is_some_and(|begin| begin >= before.as_millisecond()));
        Ok(dropped)
    }
}

struct MakeDay(Date);

#[async_trait]
impl Work for MakeDay {
    type Output = ();
    const OPERATION: &'static str = "make room for the visits of a day";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<(), sqlx::Error> {
        let (Some(begin), Some(end)) = (begin(self.0), self.0.tomorrow().ok().and_then(begin))
        else {
            return Ok(());
        };
        let statement = format!(
            "CREATE TABLE IF NOT EXISTS {} PARTITION OF visits FOR VALUES FROM ({begin}) TO ({end})",
            name(self.0)
        );
        let done = sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut *connection)
            .await;
        match done {
            // Somebody else has made it at the same time.
            Err(sqlx::Error::Database(error))
                if matches!(error.code().as_deref(), Some("23505" | "42P07")) =>
            {
                Ok(())
            }
            done => done.map(|_done| ()),
        }
    }
}

struct DropDays(Timestamp);

#[async_trait]
impl Work for DropDays {
    type Output = u64;
    const OPERATION: &'static str = "drop the visits of a day";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let names: Vec<String> = sqlx::query_scalar(
            "SELECT relname::text FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid \
             WHERE inhparent = 'visits'::regclass AND relname ~ '^visits_[0-9]{8}$' \
             AND relname < $1 ORDER BY relname",
        )
        .bind(name(day_of(self.0)))
        .fetch_all(&mut *connection)
        .await?;
        let mut dropped = 0_i64;
        for name in names {
            let count = format!("SELECT count(*) FROM {name}");
            let visits: i64 = sqlx::query_scalar(AssertSqlSafe(count))
                .fetch_one(&mut *connection)
                .await?;
            // Those who store visits wait behind this statement while it waits for readers.
            let statement =
                format!("SET LOCAL lock_timeout = '100ms'; DROP TABLE IF EXISTS {name}");
            sqlx::raw_sql(AssertSqlSafe(statement))
                .execute(&mut *connection)
                .await?;
            dropped += visits;
            if visits > 0 {
                break;
            }
        }
        Ok(dropped.unsigned_abs())
    }
}
