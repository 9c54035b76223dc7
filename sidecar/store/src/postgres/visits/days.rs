//! The parts of the table of visits: one a day.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::civil::Date;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use shortlink_core::ports::StoreError;
use shortlink_core::visit::Visit;
use shortlink_core::visit::visitor::day_of;
use sqlx::AssertSqlSafe;

use crate::postgres::PostgresStore;
use crate::postgres::statements::Statements;
use crate::postgres::work::Work;

/// Maximum distance between now and a day with a part of its own: a wrong clock must not fill the
/// database with parts.
const PAST: SignedDuration = SignedDuration::from_hours(24 * 40);
const FUTURE: SignedDuration = SignedDuration::from_hours(24 * 2);

/// Prefix of every part's name; the day follows as `20261121`.
const PREFIX: &str = "visits_";

/// Milliseconds that the first attempt to drop a part waits for its lock. They double after every
/// failed attempt, up to the session's limit: transactions that store visits wait behind an attempt,
/// but long locks of others must not preserve a part for ever.
const FIRST_WAIT_MS: u32 = 100;

/// The misses after which an operator should know.
const MANY_MISSES: u32 = 5;

/// The days whose parts are known to be there, and the part that is dropped next.
#[derive(Debug, Default)]
pub(in crate::postgres) struct Days {
    known: Mutex<BTreeSet<Date>>,
    missed: Mutex<Option<Missed>>,
}

/// A part that could not be locked yet.
#[derive(Clone, Debug)]
struct Missed {
    name: String,
    /// The number of its visits. They are counted once, before the lock: under it ingestion would
    /// wait for the count.
    visits: i64,
    misses: u32,
}

impl Days {
    fn has(&self, day: Date) -> bool {
        self.known().contains(&day)
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<Date>> {
        // Days are put in and taken out whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missed(&self) -> MutexGuard<'_, Option<Missed>> {
        // It is replaced whole.
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the start of a day, in milliseconds since 1970.
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

    /// Drops the part of the first day with visits that ended before a moment; returns the number of
    /// its visits. Returns 0 as well if others use the part, which is then dropped later.
    pub(crate) async fn drop_days(&self, before: Timestamp) -> Result<u64, StoreError> {
        let days = &self.days;
        let dropped = self.run(DropDays { before, days }).await?;
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
    const OPERATION: &'static str = "create the part for the visits of a day";

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
            // Another process has created it at the same time.
            Err(sqlx::Error::Database(error))
                if matches!(error.code().as_deref(), Some("23505" | "42P07")) =>
            {
                Ok(())
            }
            done => done.map(|_done| ()),
        }
    }
}

struct DropDays<'a> {
    before: Timestamp,
    days: &'a Days,
}

#[async_trait]
impl Work for DropDays<'_> {
    type Output = u64;
    const OPERATION: &'static str = "drop the visits of a day";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let names: Vec<String> = sqlx::query_scalar(
            "SELECT relname::text FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid \
             WHERE inhparent = 'visits'::regclass AND relname ~ '^visits_[0-9]{8}$' \
             AND relname < $1 ORDER BY relname",
        )
        .bind(name(day_of(self.before)))
        .fetch_all(&mut *connection)
        .await?;
        let mut dropped = 0_i64;
        for name in names {
            let missed = self.days.missed().take();
            let mut part = match missed.filter(|missed| missed.name == name) {
                Some(missed) => missed,
                None => Missed {
                    visits: count(connection, &name).await?,
                    name,
                    misses: 0,
                },
            };
            if !drop_part(connection, &part).await? {
                part.misses += 1;
                let (misses, table) = (part.misses, &part.name);
                if misses < MANY_MISSES {
                    tracing::debug!(
                        table,
                        misses,
                        "a day of visits is in use; it is dropped later"
                    );
                } else {
                    tracing::warn!(
                        table,
                        misses,
                        "a day of visits is in use; it is dropped later"
                    );
                }
                *self.days.missed() = Some(part);
                break;
            }
            dropped += part.visits;
            if part.visits > 0 {
                break;
            }
        }
        Ok(dropped.unsigned_abs())
    }
}

async fn count(connection: &mut Statements<'_>, name: &str) -> Result<i64, sqlx::Error> {
    let count = format!("SELECT count(*) FROM {name}");
    sqlx::query_scalar(AssertSqlSafe(count))
        .fetch_one(connection)
        .await
}

/// Drops a part; returns `false` if it gets no lock in time.
async fn drop_part(connection: &mut Statements<'_>, part: &Missed) -> Result<bool, sqlx::Error> {
    let wait_ms = FIRST_WAIT_MS.saturating_mul(2_u32.saturating_pow(part.misses));
    let statement = format!(
        "SELECT set_config('lock_timeout', least({wait_ms}, setting::bigint)::text, true) \
         FROM pg_settings WHERE name = 'lock_timeout'; DROP TABLE IF EXISTS {}",
        part.name
    );
    let done = sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(connection)
        .await;
    match done {
        // The wait for the lock has reached its own limit, or that of statements.
        Err(sqlx::Error::Database(error))
            if matches!(error.code().as_deref(), Some("55P03" | "57014")) =>
        {
            Ok(false)
        }
        done => done.map(|_done| true),
    }
}
