//! Visits in the order in which they were stored, for exports and the feed.
//!
//! An export reads up to a visit below which no other can appear. Transactions with new visits share a lock before they
//! take ids, and an export waits for it ([`erasure::wait_for_ingestion`]): then all ids up to the last one are of visits
//! that are committed, or of none. In SQLite, which has one writer, they always are. Visits in ClickHouse get their
//! numbers one transaction after another (`visit_sink`), and all batches are inserted before a visit is read.

use std::collections::HashMap;

use jiff::Timestamp;
use shortlink_clickhouse::CLOCKS_DIFFER_MS;
use shortlink_core::boxed;
use shortlink_core::ports::{ExportedVisit, StoreError, VisitsToExport};
use vocabulary::{CampaignId, Code};

use super::listing::{self, COLUMNS};
use super::sink::asked;
use super::{click_ids, erasure};
use crate::Store;
use crate::db::Db;
use crate::rows::known_ids;
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::texts::to_tags;
use crate::value::{Row, args};

const STORED: Sql = sql!(
    "SELECT {last_id|last_value - CASE WHEN is_called THEN 0 ELSE 1 END} AS stored, \
     (SELECT min(first_id) - 1 FROM visit_stretches) AS judged FROM visit_ids"
);

/// Of visits in ClickHouse.
const NUMBERED: Sql = sql!(
    "SELECT numbers AS stored, (SELECT min(first_id) - 1 FROM visit_stretches) AS judged FROM visit_sink"
);

fn to_export(row: &Row) -> Result<VisitsToExport, sqlx::Error> {
    let stored: i64 = row.get("stored")?;
    let judged: Option<i64> = row.find("judged")?;
    let judged = judged.unwrap_or(stored).min(stored);
    Ok(VisitsToExport { stored, judged })
}

impl Store {
    /// The identity of this database, which its backups have, too: 16 hexadecimal digits.
    pub fn export_identity(&self) -> String {
        crate::value::hex(&self.code_key.derive("visit exports")[..8])
    }

    /// Finds up to which visits an export can go: visits that are stored later have greater numbers.
    #[boxed]
    pub async fn visits_to_export(&self) -> Result<VisitsToExport, StoreError> {
        let in_clickhouse = self.sink.is_some();
        let found = self
            .run_tx(
                "find visits to export",
                in_clickhouse,
                |db, in_clickhouse| {
                    Box::pin(async move {
                        if *in_clickhouse {
                            return db.get(NUMBERED, &[], to_export).await;
                        }
                        erasure::wait_for_ingestion(db).await?;
                        db.get(STORED, &[], to_export).await
                    })
                },
            )
            .await?;
        self.flush_visits().await?;
        Ok(found)
    }

    /// Returns the greatest number that a visit may have by now. Visits with lower numbers may still appear.
    #[boxed]
    pub async fn last_visit_number(&self) -> Result<i64, StoreError> {
        let sql = if self.sink.is_some() {
            NUMBERED
        } else {
            STORED
        };
        let read = |row: &Row| row.get("stored");
        let last = self.one("look for new visits", sql, &[], read).await?;
        Ok(last.unwrap_or_default())
    }

    /// Reads the visits behind the number `after` up to the number `last` in their order, at most `limit`.
    #[boxed]
    pub async fn exported_visits(
        &self,
        after: i64,
        last: i64,
        limit: u32,
    ) -> Result<Vec<ExportedVisit>, StoreError> {
        let operation = "read visits to export";
        if let Some(sink) = &self.sink {
            let visits = asked(operation, sink.exported((after, last), limit).await)?;
            return self
                .read(operation, visits, |db, visits| {
                    let mut visits = visits.clone();
                    Box::pin(async move {
                        complete(db, &mut visits).await?;
                        Ok(visits)
                    })
                })
                .await;
        }
        self.read(operation, (after, last, limit), |db, args| {
            let (after, last, limit) = *args;
            Box::pin(async move {
                let sql = sql!(
                    "SELECT ",
                    COLUMNS,
                    ", campaign_id FROM {visits CROSS|(SELECT * FROM visits WHERE id > $1 AND id <= $2 \
                     ORDER BY id LIMIT $3) AS visits} JOIN visit_agents ON visit_agents.id = agent_id \
                     {WHERE visits.id > $1 AND visits.id <= $2 }ORDER BY visits.id{ LIMIT $3}"
                );
                let mut visits: Vec<ExportedVisit> = db.all(sql, args![after, last, limit], read).await?;
                complete(db, &mut visits).await?;
                Ok(visits)
            })
        })
        .await
    }
}

/// Returns the greatest number that a visit may have by now.
pub(crate) async fn last_number(db: &mut Db<'_>, in_clickhouse: bool) -> Result<i64, sqlx::Error> {
    let sql = if in_clickhouse { NUMBERED } else { STORED };
    db.get(sql, &[], |row| row.get("stored")).await
}

/// Reads visits in SQL by their numbers and times.
pub(crate) async fn by_numbers(
    db: &mut Db<'_>,
    visits: &[(i64, i64)],
) -> Result<Vec<ExportedVisit>, sqlx::Error> {
    let times = visits.iter().map(|(_, at)| *at);
    let (Some(first), Some(last)) = (times.clone().min(), times.max()) else {
        return Ok(Vec::new());
    };
    // PostgreSQL looks only into the parts of these days.
    let sql = sql!(
        "SELECT ",
        COLUMNS,
        ", campaign_id FROM visits JOIN visit_agents ON visit_agents.id = agent_id WHERE visits.id",
        IN_NUMBERS,
        " AND at >= $2 AND at <= $3"
    );
    let numbers: Vec<i64> = visits.iter().map(|(number, _)| *number).collect();
    let mut visits: Vec<ExportedVisit> = db.all(sql, args![numbers, first, last], read).await?;
    complete(db, &mut visits).await?;
    Ok(visits)
}

fn read(row: &Row) -> Result<ExportedVisit, sqlx::Error> {
    let campaign: Option<i64> = row.find("campaign_id")?;
    Ok(ExportedVisit {
        visit: listing::read(row)?,
        campaign: campaign.and_then(|id| CampaignId::new(id.unsigned_abs())),
        external_id: None,
        created_by: None,
        tags: Vec::new(),
    })
}

/// The data of a link that visits are served with.
#[derive(Clone)]
struct OfLink {
    external_id: Option<String>,
    created_at: Timestamp,
    created_by: String,
    tags: Vec<String>,
}

/// Adds the click ids of visits, and the external ids, the creators and the tags of their links as they are now.
async fn complete(db: &mut Db<'_>, visits: &mut [ExportedVisit]) -> Result<(), sqlx::Error> {
    click_ids::fill(db, visits.iter_mut().map(|it| &mut it.visit)).await?;
    let codes: Vec<Option<Code>> = visits.iter().map(|it| it.visit.code.parse().ok()).collect();
    let known: Vec<Code> = codes.iter().flatten().copied().collect();
    let mut ids = known_ids(db, &known).await?.into_iter();
    let ids: Vec<Option<i64>> = codes
        .iter()
        .map(|code| code.and_then(|_code| ids.next().flatten()))
        .collect();
    let mut wanted: Vec<i64> = ids.iter().flatten().copied().collect();
    // In the order in which the rows lie.
    wanted.sort_unstable();
    wanted.dedup();
    let sql = sql!(
        "SELECT id, external_id, created_at, created_by, tags FROM links WHERE id",
        IN_NUMBERS
    );
    let read = |row: &Row| {
        let link = OfLink {
            external_id: row.find("external_id")?,
            created_at: row.get("created_at")?,
            created_by: row.get("created_by")?,
            tags: to_tags(row.find("tags")?)?,
        };
        Ok((row.get("id")?, link))
    };
    let found: Vec<(i64, OfLink)> = db.all(sql, args![wanted], read).await?;
    let found: HashMap<i64, OfLink> = found.into_iter().collect();
    for (visit, id) in visits.iter_mut().zip(ids) {
        let Some(link) = id.and_then(|id| found.get(&id)) else {
            continue;
        };
        if link.created_at.as_millisecond() <= visit.visit.at.as_millisecond() + CLOCKS_DIFFER_MS {
            let link = link.clone();
            visit.external_id = link.external_id;
            visit.created_by = Some(link.created_by);
            visit.tags = link.tags;
        }
    }
    Ok(())
}
