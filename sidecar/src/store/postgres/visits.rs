//! Visits in PostgreSQL.

mod copy;
mod counts;
mod days;
mod keeping;
mod reclassify;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{Postgres, QueryBuilder};
use vocabulary::Code;

use super::PostgresStore;
use super::statements::Statements;
use super::work::Work;
use crate::core::ports::{
    CountQuery, DayVisitors, Dimension, DomainCount, Hours, KeptVisit, KeptVisits, LinkTotal,
    StoreError, TimeCount, ValueCount, ValueTimeCount, VisitListing, VisitStore,
};
use crate::core::visit::Visit;
use crate::store::audit;
use crate::store::columns;
use crate::store::db::Db;
use crate::store::visits::{erasure, kept_columns, push_filters};
use counts::{
    CountByTime, CountByValue, CountDomains, CountOverTime, CountTotals, CountVisitors,
    FindRecordedDays,
};
use keeping::KeepVisits;

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

    async fn erase_visits(
        &self,
        codes: &[Code],
        key_id: &str,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let erase = Erase { codes, key_id, now };
        self.transact(erase).await
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
