//! Visits in SQLite.

mod counts;
mod keeping;
mod reclassify;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
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
    StoreError, TimeCount, ValueCount, ValueTimeCount, VisitListing, VisitStore,
};
use crate::core::visit::Visit;
use crate::store::audit;
use crate::store::columns;
use crate::store::db::Db;
use crate::store::shared::Operation;
use crate::store::visits::{erasure, kept_columns, push_filters};
use keeping::KeepVisits;

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

#[cfg(test)]
mod tests;
