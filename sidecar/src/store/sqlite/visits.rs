//! Visits in SQLite.

mod counts;
mod keeping;
mod pruning;
mod reclassify;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use jiff::civil::Date;
use sqlx::sqlite::SqliteConnection;
use sqlx::{QueryBuilder, Sqlite};
use vocabulary::Code;

use super::SqliteStore;
use super::links::find_id;
use super::upkeep::json_list;
use super::writer::Write;
use crate::core::codes::numbering::Numbering;
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
use crate::store::shared::Operation;
use crate::store::visits::{day_key, erasure, kept_columns, poison_entry, push_filters};
use keeping::KeepVisits;
use pruning::ForgetCounts;

#[async_trait]
impl VisitStore for SqliteStore {
    async fn keep_visits(
        &self,
        visits: Vec<Visit>,
        now: Timestamp,
    ) -> Result<KeptVisits, StoreError> {
        let numbering = Arc::clone(&self.numbering);
        let keep = KeepVisits {
            visits,
            now,
            numbering,
        };
        self.writer.write(keep).await
    }

    async fn list_visits(&self, listing: &VisitListing) -> Result<Vec<KeptVisit>, StoreError> {
        let list = async {
            let mut link_id = None;
            if let Some(code) = &listing.code {
                let Some(id) = self.find_id(code).await? else {
                    return Ok(Vec::new());
                };
                link_id = Some(id);
            }
            let mut query = listing_query("", listing, link_id);
            let rows = query.build().fetch_all(&self.readers).await?;
            rows.iter().map(columns::visit).collect()
        };
        list.operation("list visits").await
    }

    async fn count_visits(&self, query: &CountQuery) -> Result<Vec<TimeCount>, StoreError> {
        counts::by_time(self, query).operation("count visits").await
    }

    async fn count_by(
        &self,
        query: &CountQuery,
        dimension: Dimension,
    ) -> Result<Vec<ValueCount>, StoreError> {
        counts::by_value(self, query, dimension)
            .operation("count visits")
            .await
    }

    async fn count_over_time(
        &self,
        query: &CountQuery,
        dimension: Dimension,
        values: &[String],
        hours: Hours,
    ) -> Result<Vec<ValueTimeCount>, StoreError> {
        counts::over_time(self, query, dimension, values, hours)
            .operation("count visits")
            .await
    }

    async fn count_visitors(&self, query: &CountQuery) -> Result<Vec<DayVisitors>, StoreError> {
        counts::visitors(self, query)
            .operation("count visitors")
            .await
    }

    async fn visit_totals(&self, codes: &[Code]) -> Result<Vec<LinkTotal>, StoreError> {
        counts::totals(self, codes)
            .operation("count the visits of links")
            .await
    }

    async fn count_domains(&self, since: Timestamp) -> Result<Vec<DomainCount>, StoreError> {
        counts::domains(&self.readers, since)
            .operation("count the visits of domains")
            .await
    }

    async fn recorded_days(
        &self,
        before: Timestamp,
        days: u32,
    ) -> Result<Option<Timestamp>, StoreError> {
        counts::recorded_days(&self.readers, before, days)
            .operation("look on which days visits were recorded")
            .await
    }

    async fn forget_visits(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.writer.write(Forget { before, limit }).await
    }

    async fn forget_counts(&self, old: OldCounts, limit: u32) -> Result<u64, StoreError> {
        self.writer.write(ForgetCounts { old, limit }).await
    }

    async fn erase_visits(
        &self,
        codes: &[Code],
        key_id: &str,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let erase = Erase {
            codes: codes.to_vec(),
            key_id: key_id.to_owned(),
            now,
            numbering: Arc::clone(&self.numbering),
        };
        self.writer.write(erase).await
    }

    async fn quarantine(&self, poison: Vec<Poison>, now: Timestamp) -> Result<(), StoreError> {
        self.writer.write(Quarantine { poison, now }).await
    }

    async fn count_quarantine(&self) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM visit_quarantine")
            .fetch_one(&self.readers)
            .operation("count what is in quarantine")
            .await?;
        Ok(count.unsigned_abs())
    }
}

/// The statement that lists visits, of a link if its id is given.
fn listing_query(
    begin: &str,
    listing: &VisitListing,
    link_id: Option<i64>,
) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new(begin);
    query.push(concat!(
        "SELECT ",
        kept_columns!(),
        " FROM visits JOIN visit_agents ON visit_agents.id = agent_id WHERE "
    ));
    if let Some(id) = link_id {
        query.push("link_id = ").push_bind(id).push(" AND ");
    }
    push_filters(&mut query, listing);
    query
}

/// Keeps what is no visit.
struct Quarantine {
    poison: Vec<Poison>,
    now: Timestamp,
}

#[async_trait]
impl Write for Quarantine {
    type Output = ();
    const OPERATION: &'static str = "put something into quarantine";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for poison in &self.poison {
            sqlx::query(
                "INSERT OR IGNORE INTO visit_quarantine (entry, at, reason, bytes) \
                 VALUES (?1, ?2, ?3, ?4)",
            )
            .bind(poison_entry(poison))
            .bind(self.now.as_millisecond())
            .bind(&poison.reason)
            .bind(&poison.bytes)
            .execute(&mut *connection)
            .await?;
        }
        sqlx::query(
            "DELETE FROM visit_quarantine WHERE id <= (SELECT max(id) FROM visit_quarantine) - ?1",
        )
        .bind(MAX_POISON)
        .execute(connection)
        .await?;
        Ok(())
    }
}

#[async_trait]
impl DayKeys for SqliteStore {
    async fn day_key(&self, day: Date, fresh: DayKey) -> Result<DayKey, StoreError> {
        let take = TakeDayKey { day, fresh };
        self.writer.write(take).await
    }

    async fn known_day_key(&self, day: Date) -> Result<Option<DayKey>, StoreError> {
        let query = "SELECT key FROM visit_day_keys WHERE day = ?1";
        sqlx::query_scalar(query)
            .bind(day.to_string())
            .fetch_optional(&self.readers)
            .map(|key| key.and_then(|key: Option<Vec<u8>>| key.map(day_key).transpose()))
            .operation("look for the key of a day")
            .await
    }

    async fn destroy_day_keys(&self, before: Date) -> Result<u64, StoreError> {
        self.writer.write(DestroyDayKeys(before)).await
    }
}

/// Deletes the visits that were stored first, as long as they are of before a moment.
/// The number of oldest visits, by their ids, among which those are found that are due.
const FORGET_AMONG: u32 = 20_000;

struct Forget {
    before: Timestamp,
    limit: u32,
}

#[async_trait]
impl Write for Forget {
    type Output = u64;
    const OPERATION: &'static str = "forget visits";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        // Visits have no index by time. Those of clocks that are ahead must not hold up the others.
        let done = sqlx::query(
            "DELETE FROM visits WHERE id IN (SELECT id FROM \
             (SELECT id, at FROM visits ORDER BY id LIMIT ?3) WHERE at < ?1 LIMIT ?2)",
        )
        .bind(self.before.as_millisecond())
        .bind(self.limit)
        .bind(FORGET_AMONG)
        .execute(&mut *connection)
        .await?;
        if done.rows_affected() == 0 {
            sqlx::query("DELETE FROM visit_origins WHERE seen_at < ?1")
                .bind(self.before.as_millisecond())
                .execute(connection)
                .await?;
        }
        Ok(done.rows_affected())
    }
}

const ERASE: &str = "DELETE FROM visits WHERE link_id IN (SELECT value FROM json_each(?1))";

struct Erase {
    codes: Vec<Code>,
    key_id: String,
    now: Timestamp,
    numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for Erase {
    type Output = u64;
    const OPERATION: &'static str = "erase visits";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let mut ids = Vec::with_capacity(self.codes.len());
        for code in &self.codes {
            audit::append(
                &mut Db::Sqlite(connection),
                &erasure(*code, &self.key_id, self.now),
            )
            .await?;
            // Every code that visits are kept of has an id.
            ids.extend(find_id(&mut *connection, &self.numbering, code).await?);
        }
        let done = sqlx::query(ERASE)
            .bind(json_list(&ids))
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
impl Write for TakeDayKey {
    type Output = DayKey;
    const OPERATION: &'static str = "take the key of a day";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<DayKey, sqlx::Error> {
        let key: Vec<u8> = sqlx::query_scalar(
            "INSERT INTO visit_day_keys (day, key) VALUES (?1, ?2) \
             ON CONFLICT (day) DO UPDATE SET key = key RETURNING key",
        )
        .bind(self.day.to_string())
        .bind(self.fresh.expose().as_slice())
        .fetch_one(connection)
        .await?;
        day_key(key)
    }
}

struct DestroyDayKeys(Date);

#[async_trait]
impl Write for DestroyDayKeys {
    type Output = u64;
    const OPERATION: &'static str = "destroy the keys of days";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        // What is deleted is overwritten; else it would stay in the file for as long as nothing
        // else takes its place.
        sqlx::query("PRAGMA secure_delete = ON")
            .execute(&mut *connection)
            .await?;
        let done = sqlx::query("DELETE FROM visit_day_keys WHERE day < ?1")
            .bind(self.0.to_string())
            .execute(&mut *connection)
            .await;
        sqlx::query("PRAGMA secure_delete = OFF")
            .execute(connection)
            .await?;
        Ok(done?.rows_affected())
    }
}

#[cfg(test)]
mod tests;
