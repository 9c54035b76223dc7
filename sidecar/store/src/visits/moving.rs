//! Moves stored visits and the counts of links from SQL to ClickHouse, while no sidecar runs.
//!
//! Nothing changes in SQL before everything is in ClickHouse; then one transaction notes the new place and deletes what was
//! moved. A move that was interrupted begins anew.

use shortlink_clickhouse::{Batch, ClickHouse, Columns, LinkCount, VisitRow};
use shortlink_core::ports::{KeptVisit, StoreError};
use shortlink_core::visit::stored::StoredVisit;

use super::reclassify::stored_visit;
use super::sink::asked;
use super::{EARLIER, listing};
use crate::db::Db;
use crate::sql::{Sql, sql};
use crate::value::{Row, args, invalid};
use crate::{Engine, Store};

/// The most rows of a batch.
const TOGETHER: u32 = 5000;

/// The state of SQL when it was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    batches: i64,
    /// The number of the last visit, and the number of visits.
    last: i64,
    visits: i64,
    /// The sum of the counts of links.
    counted: i64,
}

/// The columns that [`listing::read`] and [`stored_visit`] read.
const VISITS: Sql = sql!(
    "SELECT visits.id, at, code, campaign_id, host, client, visitor, user_agent, referrer, \
     referrer_host, language, method, status, purpose, evidence, country, province, city, isp, asn, \
     class, reason, ruleset, agent_id, browser, browser_version, os, os_version, device, app \
     FROM visits JOIN visit_agents ON visit_agents.id = agent_id WHERE visits.id > $1 \
     ORDER BY visits.id LIMIT $2"
);

/// Reads the counts of links with their codes. In SQLite, a link that was deleted has its code in its visits, if any are left.
const COUNTS: Sql = sql!(
    "SELECT {link_id|code} AS link, hour, class, visits, last_at, \
     {coalesce((SELECT code FROM links WHERE links.id = counted.link_id), \
     (SELECT code FROM far_codes WHERE far_codes.id = -counted.link_id), \
     (SELECT code FROM visits WHERE visits.link_id = counted.link_id LIMIT 1))|code} AS code \
     FROM visit_link_hours AS counted WHERE ({link_id|code}, hour, class) > ($1, $2, $3) \
     ORDER BY {link_id|code}, hour, class LIMIT $4"
);

/// A count of a link, behind the values that it is sorted by.
struct Count {
    after: (LinkValue, i64, String),
    code: Option<String>,
    visits: i64,
    last_at: i64,
}

/// The sort value of the link of a count.
#[derive(Clone)]
enum LinkValue {
    Id(i64),
    Code(String),
}

impl Store {
    /// Copies all visits and counts of links to ClickHouse, and then deletes them here and notes the new place; false if
    /// visits were stored meanwhile, so that nothing was deleted.
    pub(crate) async fn move_visits(&self, sink: &ClickHouse) -> Result<bool, StoreError> {
        let operation = "move visits to ClickHouse";
        asked(operation, sink.clear().await)?;
        let mut moved = Moved::default();
        self.copy_visits(sink, &mut moved).await?;
        self.copy_counts(sink, &mut moved).await?;
        self.run_tx(operation, moved, |db, moved| Box::pin(settle(db, *moved)))
            .await
    }

    async fn copy_visits(&self, sink: &ClickHouse, moved: &mut Moved) -> Result<(), StoreError> {
        let operation = "read visits";
        moved.last = i64::MIN;
        loop {
            let read = |row: &Row| {
                let stored = stored_visit(row)?.ok_or_else(|| invalid("class"))?;
                Ok((listing::read(row)?, stored))
            };
            let values = args![moved.last, TOGETHER];
            let page: Vec<(KeptVisit, StoredVisit)> =
                self.all(operation, VISITS, values, read).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            moved.last = last.number;
            moved.visits += page.len() as i64;
            moved.batches += 1;
            let id = moved.batches;
            let rows = page.into_iter();
            let rows = rows.map(|(kept, stored)| VisitRow::moved(kept, &stored, id));
            let rows: Vec<VisitRow> = rows.collect();
            let batch = Batch::new(id, rows.iter().map(Columns::from), []);
            asked(operation, sink.insert(&batch).await)?;
        }
    }

    async fn copy_counts(&self, sink: &ClickHouse, moved: &mut Moved) -> Result<(), StoreError> {
        let operation = "read the counts of links";
        let first = match &self.engine {
            Engine::Sqlite(_) => LinkValue::Id(i64::MIN),
            Engine::Postgres(_) => LinkValue::Code(String::new()),
        };
        let mut after = (first, i64::MIN, String::new());
        loop {
            let read = |row: &Row| {
                let link = match row {
                    Row::Sqlite(_) => LinkValue::Id(row.get("link")?),
                    Row::Postgres(_) => LinkValue::Code(row.get("link")?),
                };
                Ok(Count {
                    after: (link, row.get("hour")?, row.get("class")?),
                    code: row.find("code")?,
                    visits: row.get("visits")?,
                    last_at: row.get("last_at")?,
                })
            };
            let (link, hour, class) = &after;
            let link = match link {
                LinkValue::Id(id) => (*id).into(),
                LinkValue::Code(code) => code.into(),
            };
            let values = [link, (*hour).into(), class.into(), TOGETHER.into()];
            let page: Vec<Count> = self.all(operation, COUNTS, &values, read).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = last.after.clone();
            moved.counted += page.iter().map(|count| count.visits).sum::<i64>();
            moved.batches += 1;
            let mut counts: Vec<LinkCount<'_>> = page
                .iter()
                .filter_map(|count| {
                    Some(LinkCount {
                        code: count.code.as_deref()?,
                        class: &count.after.2,
                        visits: count.visits,
                        last_at: count.last_at,
                        is_earlier: count.after.1 == EARLIER,
                    })
                })
                .collect();
            counts.sort_by(|one, other| one.code.cmp(other.code));
            let batch = Batch::new(moved.batches, [], counts);
            asked(operation, sink.insert(&batch).await)?;
        }
    }
}

/// Notes the new place and deletes what was moved, unless there is more of it now.
async fn settle(db: &mut Db<'_>, moved: Moved) -> Result<bool, sqlx::Error> {
    // Transactions that store visits hold this row, and see the new place after this one.
    // New visits continue behind all that ever were, also erased ones: exports have gone so far.
    let note = sql!(
        "UPDATE visit_sink SET place = 'clickhouse', batches = $1, \
         numbers = {max|greatest}($2, (SELECT {last_id|last_value - CASE WHEN is_called THEN 0 ELSE 1 END} \
         FROM visit_ids)) WHERE id = 1"
    );
    db.run(note, args![moved.batches, moved.last.max(0)])
        .await?;
    let all = sql!(
        "SELECT (SELECT max(id) FROM visits) AS last, (SELECT count(*) FROM visits) AS visits, \
         (SELECT CAST(sum(visits) AS bigint) FROM visit_link_hours) AS counted"
    );
    let now = db
        .get(all, &[], |row| {
            Ok(Moved {
                batches: moved.batches,
                last: row.find("last")?.unwrap_or(i64::MIN),
                visits: row.get("visits")?,
                counted: row.find("counted")?.unwrap_or_default(),
            })
        })
        .await?;
    if now != moved {
        let back =
            sql!("UPDATE visit_sink SET place = 'sql', batches = 0, numbers = 0 WHERE id = 1");
        db.run(back, &[]).await?;
        return Ok(false);
    }
    for sql in [
        sql!("{DELETE FROM|TRUNCATE} visits"),
        sql!("{DELETE FROM|TRUNCATE} visit_link_hours"),
        sql!("{DELETE FROM|TRUNCATE} link_clicks"),
        sql!("{DELETE FROM|TRUNCATE} campaign_clicks"),
        sql!("{DELETE FROM|TRUNCATE} visit_agents"),
        sql!("{DELETE FROM|TRUNCATE} visit_agent_checks"),
        sql!("{DELETE FROM visit_days|SELECT 1}"),
    ] {
        db.run(sql, &[]).await?;
    }
    Ok(true)
}
