//! Visits in PostgreSQL.

mod copy;
mod counts;
mod days;
mod keeping;
mod pruning;
mod reclassify;

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::civil::Date;
use sqlx::{Postgres, QueryBuilder};
use vocabulary::Code;

use super::PostgresStore;
use super::statements::Statements;
use super::work::Work;
use crate::core::ports::{
    CountQuery, DayVisitors, Dimension, DomainCount, Hours, KeptVisit, KeptVisits, LinkTotal,
    MAX_POISON, OldCounts, Poison, StoreError, TimeCount, ValueCount, ValueTimeCount, VisitListing,
    VisitStore,
};
use crate::core::visit::Visit;
use crate::core::visit::visitor::{DayKey, DayKeys};
use crate::store::audit;
use crate::store::columns;
use crate::store::db::Db;
use crate::store::visits::{day_key, erasure, kept_columns, poison_entry, push_filters};
use counts::{
    CountByTime, CountByValue, CountDomains, CountOverTime, CountTotals, CountVisitors,
    FindRecordedDays,
};
use keeping::KeepVisits;
use pruning::ForgetCounts;

pub(super) use days::Days;

#[async_trait]
impl VisitStore for PostgresStore {
    async fn keep_visits(
        &self,
        visits: Vec<Visit>,
        now: Timestamp,
    ) -> Result<KeptVisits, StoreError> {
        self.make_days(&visits, now).await?;
        let keep = KeepVisits {
            visits: &visits,
            now,
            numbering: &self.numbering,
        };
        self.transact(keep).await
    }

    async fn list_visits(&self, listing: &VisitListing) -> Result<Vec<KeptVisit>, StoreError> {
        self.run(ListVisits(listing)).await
    }

    async fn count_visits(&self, query: &CountQuery) -> Result<Vec<TimeCount>, StoreError> {
        self.run(CountByTime(query)).await
    }

    async fn count_by(
        &self,
        query: &CountQuery,
        dimension: Dimension,
    ) -> Result<Vec<ValueCount>, StoreError> {
        self.run(CountByValue { query, dimension }).await
    }

    async fn count_over_time(
        &self,
        query: &CountQuery,
        dimension: Dimension,
        values: &[String],
        hours: Hours,
    ) -> Result<Vec<ValueTimeCount>, StoreError> {
        let count = CountOverTime {
            query,
            dimension,
            values,
            hours,
        };
        self.run(count).await
    }

    async fn count_visitors(&self, query: &CountQuery) -> Result<Vec<DayVisitors>, StoreError> {
        self.run(CountVisitors(query)).await
    }

    async fn visit_totals(&self, codes: &[Code]) -> Result<Vec<LinkTotal>, StoreError> {
        self.run(CountTotals(codes)).await
    }

    async fn count_domains(&self, since: Timestamp) -> Result<Vec<DomainCount>, StoreError> {
        self.run(CountDomains(since)).await
    }

    async fn recorded_days(
        &self,
        before: Timestamp,
        days: u32,
    ) -> Result<Option<Timestamp>, StoreError> {
        self.run(FindRecordedDays { before, days }).await
    }

    async fn forget_visits(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let dropped = self.drop_days(before).await?;
        let deleted = self.transact(Forget { before, limit }).await?;
        Ok(dropped + deleted)
    }

    async fn forget_counts(&self, old: OldCounts, limit: u32) -> Result<u64, StoreError> {
        self.transact(ForgetCounts { old, limit }).await
    }

    async fn erase_visits(
        &self,
        codes: &[Code],
        key_id: &str,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let erase = Erase { codes, key_id, now };
        self.transact(erase).await
    }

    async fn quarantine(&self, poison: Vec<Poison>, now: Timestamp) -> Result<(), StoreError> {
        let poison = &poison;
        self.transact(Quarantine { poison, now }).await
    }

    async fn count_quarantine(&self) -> Result<u64, StoreError> {
        self.run(CountQuarantine).await
    }
}

#[async_trait]
impl DayKeys for PostgresStore {
    async fn day_key(&self, day: Date, fresh: DayKey) -> Result<DayKey, StoreError> {
        self.run(TakeDayKey { day, fresh }).await
    }

    async fn known_day_key(&self, day: Date) -> Result<Option<DayKey>, StoreError> {
        self.run(FindDayKey(day)).await
    }

    async fn destroy_day_keys(&self, before: Date) -> Result<u64, StoreError> {
        self.run(DestroyDayKeys(before)).await
    }
}

struct CountQuarantine;

#[async_trait]
impl Work for CountQuarantine {
    type Output = u64;
    const OPERATION: &'static str = "count what is in quarantine";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM visit_quarantine")
            .fetch_one(connection)
            .await?;
        Ok(count.unsigned_abs())
    }
}

/// Keeps what is no visit.
struct Quarantine<'a> {
    poison: &'a [Poison],
    now: Timestamp,
}

#[async_trait]
impl Work for Quarantine<'_> {
    type Output = ();
    const OPERATION: &'static str = "put something into quarantine";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<(), sqlx::Error> {
        for poison in self.poison {
            sqlx::query(
                "INSERT INTO visit_quarantine (entry, at, reason, bytes) \
                 VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            )
            .bind(poison_entry(poison))
            .bind(self.now.as_millisecond())
            .bind(&poison.reason)
            .bind(&poison.bytes)
            .execute(&mut *connection)
            .await?;
        }
        sqlx::query(
            "DELETE FROM visit_quarantine WHERE id <= (SELECT max(id) FROM visit_quarantine) - $1",
        )
        .bind(i64::from(MAX_POISON))
        .execute(connection)
        .await?;
        Ok(())
    }
}

struct ListVisits<'a>(&'a VisitListing);

#[async_trait]
impl Work for ListVisits<'_> {
    type Output = Vec<KeptVisit>;
    const OPERATION: &'static str = "list visits";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<KeptVisit>, sqlx::Error> {
        let listing = self.0;
        let mut query = QueryBuilder::<Postgres>::new(concat!(
            "SELECT ",
            kept_columns!(),
            " FROM visits JOIN visit_agents ON visit_agents.id = agent_id WHERE "
        ));
        if let Some(code) = &listing.code {
            query
                .push("code = ")
                .push_bind(code.to_string())
                .push(" AND ");
        }
        push_filters(&mut query, listing);
        let rows = query.build().fetch_all(connection).await?;
        rows.iter().map(columns::visit).collect()
    }
}

/// Deletes visits of days without a part of their own, and origins that nothing is heard of.
struct Forget {
    before: Timestamp,
    limit: u32,
}

#[async_trait]
impl Work for Forget {
    type Output = u64;
    const OPERATION: &'static str = "forget visits";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let before = self.before.as_millisecond();
        let done = sqlx::query(
            "DELETE FROM visits_of_other_days WHERE (id, at) IN \
             (SELECT id, at FROM visits_of_other_days WHERE at < $1 ORDER BY id LIMIT $2)",
        )
        .bind(before)
        .bind(i64::from(self.limit))
        .execute(&mut *connection)
        .await?;
        if done.rows_affected() == 0 {
            sqlx::query("DELETE FROM visit_origins WHERE seen_at < $1")
                .bind(before)
                .execute(connection)
                .await?;
        }
        Ok(done.rows_affected())
    }
}

struct Erase<'a> {
    codes: &'a [Code],
    key_id: &'a str,
    now: Timestamp,
}

#[async_trait]
impl Work for Erase<'_> {
    type Output = u64;
    const OPERATION: &'static str = "erase visits";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        for code in self.codes {
            audit::append(
                &mut Db::postgres(connection.connection()),
                &erasure(*code, self.key_id, self.now),
            )
            .await?;
        }
        let codes: Vec<&str> = self.codes.iter().map(Code::as_str).collect();
        let done = sqlx::query("DELETE FROM visits WHERE code = ANY($1::text[])")
            .bind(codes)
            .execute(connection)
            .await?;
        Ok(done.rows_affected())
    }
}

struct TakeDayKey {
    day: Date,
    fresh: DayKey,
}

#[async_trait]
impl Work for TakeDayKey {
    type Output = DayKey;
    const OPERATION: &'static str = "take the key of a day";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<DayKey, sqlx::Error> {
        // The update that changes nothing makes it answer with the row that is there.
        let key: Vec<u8> = sqlx::query_scalar(
            "INSERT INTO visit_day_keys (day, key) VALUES ($1, $2) \
             ON CONFLICT (day) DO UPDATE SET key = visit_day_keys.key RETURNING key",
        )
        .bind(self.day.to_string())
        .bind(self.fresh.expose().as_slice())
        .fetch_one(connection)
        .await?;
        day_key(key)
    }
}

struct FindDayKey(Date);

#[async_trait]
impl Work for FindDayKey {
    type Output = Option<DayKey>;
    const OPERATION: &'static str = "look for the key of a day";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<DayKey>, sqlx::Error> {
        let query = "SELECT key FROM visit_day_keys WHERE day = $1";
        let key: Option<Vec<u8>> = sqlx::query_scalar(query)
            .bind(self.0.to_string())
            .fetch_optional(connection)
            .await?;
        key.map(day_key).transpose()
    }
}

struct DestroyDayKeys(Date);

#[async_trait]
impl Work for DestroyDayKeys {
    type Output = u64;
    const OPERATION: &'static str = "destroy the keys of days";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let done = sqlx::query("DELETE FROM visit_day_keys WHERE day < $1")
            .bind(self.0.to_string())
            .execute(&mut *connection)
            .await?;
        if done.rows_affected() > 0 {
            // Else the dead rows stay in the table's file until the server thinks of it.
            sqlx::query("VACUUM visit_day_keys")
                .execute(connection)
                .await?;
        }
        Ok(done.rows_affected())
    }
}
