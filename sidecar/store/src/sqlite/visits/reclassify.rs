//! Reclassifies stored visits and corrects their counts.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::ports::{
    PeoplePage, ReclassifyStore, StaleDay, StoreError, TimeSpan, VisitPage,
};
use shortlink_core::visit::sketch::Sketch;
use shortlink_core::visit::stored::{StoredVisit, Verdict};
use sqlx::sqlite::SqliteConnection;

use super::keeping::{add, add_visitors, insert_agent_rows};
use crate::columns;
use crate::shared::Operation;
use crate::sqlite::links::link_ids;
use crate::sqlite::writer::Write;
use crate::sqlite::{SqliteStore, failed};
use crate::visits::moves::Moves;
use crate::visits::people::{PersonRow, people_page, stale_days};
use crate::visits::{Counts, EARLIER, agent_id, stored_columns, with};

#[async_trait]
impl ReclassifyStore for SqliteStore {
    async fn visit_numbers(&self) -> Result<Option<(i64, i64)>, StoreError> {
        // Two questions: SQLite takes the first or the last of an index, and never both at once.
        let (first, last): (Option<i64>, Option<i64>) =
            sqlx::query_as("SELECT (SELECT min(id) FROM visits), (SELECT max(id) FROM visits)")
                .fetch_one(&self.readers)
                .operation("count stored visits")
                .await?;
        Ok(first.zip(last))
    }

    async fn visits_after(
        &self,
        after: i64,
        time: TimeSpan,
        limit: u32,
    ) -> Result<VisitPage, StoreError> {
        const OPERATION: &str = "read visits";
        // There is no index by time: all are walked through.
        let rows = sqlx::query(concat!(
            "SELECT ",
            stored_columns!(),
            " FROM visits CROSS JOIN visit_agents ON visit_agents.id = agent_id \
             WHERE visits.id > ?1 ORDER BY visits.id LIMIT ?2"
        ))
        .bind(after)
        .bind(limit)
        .fetch_all(&self.readers)
        .operation(OPERATION)
        .await?;
        columns::visit_page(&rows, time).map_err(failed(OPERATION))
    }

    async fn reclassify_visits(
        &self,
        verdicts: Vec<(StoredVisit, Verdict)>,
        hours_since: Option<Timestamp>,
    ) -> Result<u64, StoreError> {
        let reclassify = ReclassifyVisits {
            verdicts,
            hours_since,
            numbering: Arc::clone(&self.numbering),
        };
        self.writer.write(reclassify).await
    }

    async fn stale_days(&self, limit: u32) -> Result<Vec<StaleDay>, StoreError> {
        let days: Vec<(i64, i64, i64)> = sqlx::query_as(
            "SELECT campaign_id, day, generation FROM visit_stale_sketches \
             ORDER BY campaign_id, day LIMIT ?1",
        )
        .bind(limit)
        .fetch_all(&self.readers)
        .operation("read stale days")
        .await?;
        Ok(stale_days(days))
    }

    async fn people_after(
        &self,
        after: i64,
        days: (i64, i64),
        limit: u32,
    ) -> Result<PeoplePage, StoreError> {
        let rows: Vec<PersonRow> = sqlx::query_as(
            "SELECT id, at, campaign_id, iif(class = 'human', visitor, NULL) \
             FROM visits WHERE id > ?1 ORDER BY id LIMIT ?2",
        )
        .bind(after)
        .bind(limit)
        .fetch_all(&self.readers)
        .operation("read visitors")
        .await?;
        Ok(people_page(rows, days))
    }

    async fn replace_people(
        &self,
        days: Vec<(StaleDay, Sketch)>,
    ) -> Result<Vec<StaleDay>, StoreError> {
        self.writer.write(ReplacePeople(days)).await
    }

    async fn settle_people(&self, days: Vec<(StaleDay, Sketch)>) -> Result<u64, StoreError> {
        self.writer.write(SettlePeople(days)).await
    }
}

struct ReclassifyVisits {
    verdicts: Vec<(StoredVisit, Verdict)>,
    hours_since: Option<Timestamp>,
    numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for ReclassifyVisits {
    type Output = u64;
    const OPERATION: &'static str = "classify visits again";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let agents = self.verdicts.iter();
        let agents = agents.map(|(visit, verdict)| {
            let id = agent_id(&visit.user_agent, &verdict.agent);
            (id, visit.user_agent.as_str(), &*verdict.agent)
        });
        insert_agent_rows(connection, agents).await?;
        let mut changed = Vec::with_capacity(self.verdicts.len());
        for both in &self.verdicts {
            let (
                visit,
                Verdict {
                    classification,
                    agent,
                },
            ) = both;
            let done = sqlx::query(
                "UPDATE visits SET class = ?2, reason = ?3, ruleset = ?4, agent_id = ?5 \
                 WHERE id = ?1 AND at = ?6 AND code = ?7 AND class = ?8 AND reason = ?9 \
                 AND ruleset = ?10 AND agent_id = ?11",
            )
            .bind(visit.number)
            .bind(classification.class.name())
            .bind(classification.reason)
            .bind(classification.ruleset)
            .bind(agent_id(&visit.user_agent, agent))
            .bind(visit.at.as_millisecond())
            .bind(&visit.code)
            .bind(visit.class.name())
            .bind(&visit.reason)
            .bind(visit.ruleset)
            .bind(visit.agent.id)
            .execute(&mut *connection)
            .await?;
            if done.rows_affected() > 0 {
                changed.push(both);
            }
        }
        let written = changed.len() as u64;
        let codes = changed.iter().map(|(visit, _)| visit.code.as_str());
        let ids = link_ids(connection, &self.numbering, codes).await?;
        let moves = Moves::of(changed.into_iter().zip(ids), self.hours_since);
        add(connection, &moves.counts).await?;
        remove_empty(connection, &moves.counts).await?;
        add_visitors(connection, &moves.counts).await?;
        for (campaign, day) in moves.stale {
            sqlx::query(
                "INSERT INTO visit_stale_sketches (campaign_id, day, generation) \
                 VALUES (?1, ?2, 1) ON CONFLICT DO UPDATE SET generation = generation + 1",
            )
            .bind(campaign)
            .bind(day)
            .execute(&mut *connection)
            .await?;
        }
        Ok(written)
    }
}

/// Removes counts of 0 or less: a count that was deleted before visits were subtracted is below 0. A
/// negative count of [`EARLIER`] stays: earlier hours are still to be added to it.
async fn remove_empty(
    connection: &mut SqliteConnection,
    counts: &Counts<i64>,
) -> Result<(), sqlx::Error> {
    for ((link_id, hour, class), _) in counts.links.iter().filter(|(_, (by, _))| *by < 0) {
        sqlx::query(
            "DELETE FROM visit_link_hours \
             WHERE link_id = ?1 AND hour = ?2 AND class = ?3 \
             AND (visits = 0 OR visits < 0 AND hour > ?4)",
        )
        .bind(link_id)
        .bind(hour)
        .bind(class)
        .bind(EARLIER)
        .execute(&mut *connection)
        .await?;
    }
    let less = counts.hours.iter().filter(|(_, by)| **by < 0);
    for ((campaign, dimension, hour, value, class), _) in less {
        sqlx::query(
            "DELETE FROM visit_hours WHERE campaign_id = ?1 AND dimension = ?2 AND hour = ?3 \
             AND value = ?4 AND class = ?5 AND visits <= 0",
        )
        .bind(campaign)
        .bind(dimension)
        .bind(hour)
        .bind(value)
        .bind(class)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Returns whether a day is unchanged since its generation was read.
async fn is_untouched(
    connection: &mut SqliteConnection,
    day: StaleDay,
) -> Result<bool, sqlx::Error> {
    let generation: Option<i64> = sqlx::query_scalar(
        "SELECT generation FROM visit_stale_sketches WHERE campaign_id = ?1 AND day = ?2",
    )
    .bind(day.campaign)
    .bind(day.day)
    .fetch_optional(connection)
    .await?;
    Ok(generation == Some(day.generation))
}

async fn put_sketch(
    connection: &mut SqliteConnection,
    day: StaleDay,
    sketch: &Sketch,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO visit_sketches (campaign_id, day, registers) VALUES (?1, ?2, ?3) \
         ON CONFLICT DO UPDATE SET registers = excluded.registers",
    )
    .bind(day.campaign)
    .bind(day.day)
    .bind(sketch.as_bytes())
    .execute(connection)
    .await?;
    Ok(())
}

struct ReplacePeople(Vec<(StaleDay, Sketch)>);

#[async_trait]
impl Write for ReplacePeople {
    type Output = Vec<StaleDay>;
    const OPERATION: &'static str = "count the unique visitors of a day again";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<Vec<StaleDay>, sqlx::Error> {
        let mut replaced = Vec::with_capacity(self.0.len());
        for (day, sketch) in &self.0 {
            if !is_untouched(connection, *day).await? {
                continue;
            }
            put_sketch(connection, *day, sketch).await?;
            let generation = day.generation + 1;
            sqlx::query(
                "UPDATE visit_stale_sketches SET generation = ?3 \
                 WHERE campaign_id = ?1 AND day = ?2",
            )
            .bind(day.campaign)
            .bind(day.day)
            .bind(generation)
            .execute(&mut *connection)
            .await?;
            replaced.push(StaleDay { generation, ..*day });
        }
        Ok(replaced)
    }
}

struct SettlePeople(Vec<(StaleDay, Sketch)>);

#[async_trait]
impl Write for SettlePeople {
    type Output = u64;
    const OPERATION: &'static str = "settle the unique visitors of a day";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        let mut settled = 0;
        for (day, people) in &self.0 {
            if !is_untouched(connection, *day).await? {
                continue;
            }
            let kept: Option<Vec<u8>> = sqlx::query_scalar(
                "SELECT registers FROM visit_sketches WHERE campaign_id = ?1 AND day = ?2",
            )
            .bind(day.campaign)
            .bind(day.day)
            .fetch_optional(&mut *connection)
            .await?;
            let mut sketch = with(kept, &[])?;
            sketch.merge(people);
            put_sketch(connection, *day, &sketch).await?;
            sqlx::query("DELETE FROM visit_stale_sketches WHERE campaign_id = ?1 AND day = ?2")
                .bind(day.campaign)
                .bind(day.day)
                .execute(&mut *connection)
                .await?;
            settled += 1;
        }
        Ok(settled)
    }
}
