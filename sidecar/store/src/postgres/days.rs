//! The parts of the table of visits: one a day.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::civil::Date;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use shortlink_core::ports::StoreError;
use shortlink_core::visit::Visit;
use shortlink_core::visit::visitor::day_of;

use crate::Store;
use crate::db::{Db, Text};
use crate::sql::sql;
use crate::value::args;

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
pub(crate) struct Days {
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

impl Store {
    /// Makes the parts that visits need.
    pub(crate) async fn make_days(
        &self,
        days: &Days,
        visits: &[Visit],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let needed: BTreeSet<Date> = visits
            .iter()
            .filter(|visit| (now - PAST..now + FUTURE).contains(&visit.at))
            .map(|visit| day_of(visit.at))
            .collect();
        for day in needed.into_iter().filter(|&day| !days.has(day)) {
            let operation = "create the part for the visits of a day";
            let made = self.run_one(operation, day, |db, day| Box::pin(make_day(db, *day)));
            if let Err(error) = made.await {
                // Visits of the day are in the default part already, as after a restore: there
                // the others go too.
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    %day,
                    "the visits of a day have no partition of their own"
                );
            }
            days.known().insert(day);
        }
        Ok(())
    }

    /// Drops the part of the first day with visits that ended before a moment; returns the number of
    /// its visits. Returns 0 as well if others use the part, which is then dropped later.
    pub(crate) async fn drop_days(
        &self,
        days: &Arc<Days>,
        before: Timestamp,
    ) -> Result<u64, StoreError> {
        let args = (before, Arc::clone(days));
        let dropped = self.run_one("drop the visits of a day", args, |db, (before, days)| {
            Box::pin(drop_days(db, *before, days))
        });
        let dropped = dropped.await?;
        days.known()
            .retain(|day| begin(*day).is_some_and(|begin| begin >= before.as_millisecond()));
        Ok(dropped)
    }
}

async fn make_day(db: &mut Db<'_>, day: Date) -> Result<(), sqlx::Error> {
    let (Some(begin), Some(end)) = (begin(day), day.tomorrow().ok().and_then(begin)) else {
        return Ok(());
    };
    let statement = format!(
        "CREATE TABLE IF NOT EXISTS {} PARTITION OF visits FOR VALUES FROM ({begin}) TO ({end})",
        name(day)
    );
    match db.run_raw(statement).await {
        // Another process has created it at the same time.
        Err(sqlx::Error::Database(error))
            if matches!(error.code().as_deref(), Some("23505" | "42P07")) =>
        {
            Ok(())
        }
        done => done,
    }
}

async fn drop_days(db: &mut Db<'_>, before: Timestamp, days: &Days) -> Result<u64, sqlx::Error> {
    let sql = sql!(
        "SELECT relname::text AS relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid \
         WHERE inhparent = 'visits'::regclass AND relname ~ '^visits_[0-9]+$' \
         AND length(relname) = 15 \
         AND relname < $1 ORDER BY relname"
    );
    let first = name(day_of(before));
    let names: Vec<String> = db.all(sql, args![first], |row| row.get("relname")).await?;
    let mut dropped = 0_i64;
    for name in names {
        let missed = days.missed().take();
        let mut part = match missed.filter(|missed| missed.name == name) {
            Some(missed) => missed,
            None => Missed {
                visits: count(db, &name).await?,
                name,
                misses: 0,
            },
        };
        if !drop_part(db, &part).await? {
            part.misses += 1;
            let (misses, table) = (part.misses, &part.name);
            if misses < MANY_MISSES {
                tracing::debug!(
                    table,
                    misses,
                    "the visits of a day are in use; they are dropped later"
                );
            } else {
                tracing::warn!(
                    table,
                    misses,
                    "the visits of a day are in use; they are dropped later"
                );
            }
            *days.missed() = Some(part);
            break;
        }
        dropped += part.visits;
        if part.visits > 0 {
            break;
        }
    }
    Ok(dropped.unsigned_abs())
}

async fn count(db: &mut Db<'_>, name: &str) -> Result<i64, sqlx::Error> {
    let count = format!("SELECT count(*) AS visits FROM {name}");
    db.get(Text::Built(&count), &[], |row| row.get("visits"))
        .await
}

/// Drops a part; returns `false` if it gets no lock in time.
async fn drop_part(db: &mut Db<'_>, part: &Missed) -> Result<bool, sqlx::Error> {
    let wait_ms = FIRST_WAIT_MS.saturating_mul(2_u32.saturating_pow(part.misses));
    let statement = format!(
        "SELECT set_config('lock_timeout', least({wait_ms}, setting::bigint)::text, true) \
         FROM pg_settings WHERE name = 'lock_timeout'; DROP TABLE IF EXISTS {}",
        part.name
    );
    match db.run_raw(statement).await {
        // The wait for the lock has reached its own limit, or that of statements.
        Err(sqlx::Error::Database(error))
            if matches!(error.code().as_deref(), Some("55P03" | "57014")) =>
        {
            Ok(false)
        }
        done => done.map(|()| true),
    }
}
