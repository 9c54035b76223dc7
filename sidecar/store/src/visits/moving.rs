//! Moves stored visits, the counts of links and clicks from SQL to ClickHouse, while no sidecar runs.
//!
//! Nothing changes in SQL before everything is in ClickHouse; then one transaction notes the new place and deletes what was
//! moved. A move that was interrupted begins anew.

use std::collections::HashMap;

use shortlink_clickhouse::{
    Batch, CLOCKS_DIFFER_MS, ClickHouse, ClickedLink, Clicks, Columns, LinkClicks, LinkCount,
    VisitRow,
};
use shortlink_core::ports::{KeptVisit, StoreError};
use shortlink_core::visit::stored::StoredVisit;

use super::reclassify::stored_visit;
use super::sink::asked;
use super::{ALL, EARLIER, HOUR_MS, clicks, listing, marks, messages};
use crate::db::Db;
use crate::sql::{Sql, sql};
use crate::value::{Row, Value, args, invalid};
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
     class, reason, ruleset, variant, agent_id, browser, browser_version, os, os_version, device, app \
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

/// Reads clicks of links with their codes.
const CLICKS: Sql = sql!(
    "SELECT campaign_id, {link_id|code} AS link, \
     {coalesce((SELECT code FROM links WHERE links.id = clicked.link_id), '')|code} AS code, \
     first_at, last_at, visits FROM link_clicks AS clicked WHERE (campaign_id, {link_id|code}) > ($1, $2) \
     ORDER BY campaign_id, {link_id|code} LIMIT $3"
);

/// Clicks of a link, behind the values that they are sorted by.
struct ClicksOfLink {
    after: (i64, LinkValue),
    code: String,
    clicks: Clicks,
}

/// The numbers of a campaign's links by the hour of their first click.
type Hours = HashMap<(i64, i64), i64>;

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

impl LinkValue {
    fn read(row: &Row) -> Result<Self, sqlx::Error> {
        match row {
            Row::Sqlite(_) => row.get("link").map(Self::Id),
            Row::Postgres(_) => row.get("link").map(Self::Code),
        }
    }

    /// The value before all others.
    fn first(engine: &Engine) -> Self {
        match engine {
            Engine::Sqlite(_) => Self::Id(i64::MIN),
            Engine::Postgres(_) => Self::Code(String::new()),
        }
    }
}

impl<'a> From<&'a LinkValue> for Value<'a> {
    fn from(link: &'a LinkValue) -> Self {
        match link {
            LinkValue::Id(id) => (*id).into(),
            LinkValue::Code(code) => code.into(),
        }
    }
}

impl Store {
    /// Copies all visits, counts of links and clicks to ClickHouse, and then deletes them here and notes the new place; false if
    /// visits were stored meanwhile, so that nothing was deleted.
    pub(crate) async fn move_visits(&self, sink: &ClickHouse) -> Result<bool, StoreError> {
        let operation = "move visits to ClickHouse";
        asked(operation, sink.clear().await)?;
        let mut moved = Moved::default();
        self.copy_visits(sink, &mut moved).await?;
        self.copy_counts(sink, &mut moved).await?;
        self.copy_clicks(sink, &mut moved).await?;
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
            let batch = Batch::new(id, rows.iter().map(Columns::from), [], []);
            asked(operation, sink.insert(&batch).await)?;
        }
    }

    async fn copy_counts(&self, sink: &ClickHouse, moved: &mut Moved) -> Result<(), StoreError> {
        let operation = "read the counts of links";
        let mut after = (LinkValue::first(&self.engine), i64::MIN, String::new());
        loop {
            let read = |row: &Row| {
                Ok(Count {
                    after: (LinkValue::read(row)?, row.get("hour")?, row.get("class")?),
                    code: row.find("code")?,
                    visits: row.get("visits")?,
                    last_at: row.get("last_at")?,
                })
            };
            let (link, hour, class) = &after;
            let values = [link.into(), (*hour).into(), class.into(), TOGETHER.into()];
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
            let batch = Batch::new(moved.batches, [], counts, []);
            asked(operation, sink.insert(&batch).await)?;
        }
    }

    async fn copy_clicks(&self, sink: &ClickHouse, moved: &mut Moved) -> Result<(), StoreError> {
        let operation = "read the clicks of links";
        let mut hours = Hours::new();
        let all = sql!("SELECT campaign_id, hour, links FROM campaign_clicks");
        let read = |row: &Row| {
            let hour = (row.get("campaign_id")?, row.get("hour")?);
            Ok((hour, row.get("links")?))
        };
        let found: Vec<_> = self.all(operation, all, &[], read).await?;
        hours.extend(found);
        let mut after = (i64::MIN, LinkValue::first(&self.engine));
        loop {
            let read = |row: &Row| {
                Ok(ClicksOfLink {
                    after: (row.get("campaign_id")?, LinkValue::read(row)?),
                    code: row.get("code")?,
                    clicks: clicks::read(row)?,
                })
            };
            let values = [after.0.into(), (&after.1).into(), TOGETHER.into()];
            let page: Vec<ClicksOfLink> = self.all(operation, CLICKS, &values, read).await?;
            let Some(last) = page.last() else { break };
            after = last.after.clone();
            let codes: Vec<&str> = page.iter().map(|it| &*it.code).collect();
            let links = self.links_by_code(&codes).await?;
            let mut rows = Vec::with_capacity(page.len());
            for it in &page {
                let link = links.get(&*it.code);
                let Some(link) = link.filter(|link| link.campaign == it.after.0) else {
                    continue;
                };
                rows.push(contribution(*link, it.clicks));
                if let Some(links) = hours.get_mut(&hour_of(link.campaign, &it.clicks)) {
                    *links -= 1;
                }
            }
            moved.batches += 1;
            let batch = Batch::new(moved.batches, [], [], rows);
            asked(operation, sink.insert(&batch).await)?;
        }
        moved.batches += 1;
        let rest = of_deleted(moved.batches, &hours);
        asked(operation, sink.insert(&rest).await)
    }

    async fn links_by_code<'a>(
        &self,
        codes: &[&'a str],
    ) -> Result<HashMap<&'a str, ClickedLink<'a>>, StoreError> {
        let links = self.clicked_links(codes).await?;
        Ok(links.into_iter().map(|it| (it.code, it)).collect())
    }

    /// Counts the clicks of the visits that are stored in ClickHouse, where none have been counted. A repetition changes
    /// nothing.
    pub(crate) async fn count_clicks(&self, sink: &ClickHouse) -> Result<(), StoreError> {
        let operation = "count the clicks of links";
        self.flush_to(sink, i64::MAX).await?;
        let mut all = asked(operation, sink.all_human_visits().await)?;
        let mut hours = Hours::new();
        loop {
            let page = asked(operation, all.next(TOGETHER as usize).await)?;
            if page.is_empty() {
                break;
            }
            let codes: Vec<&str> = page.iter().map(|it| &*it.code).collect();
            let links = self.links_by_code(&codes).await?;
            let (mut rows, mut reused) = (Vec::with_capacity(page.len()), Vec::new());
            for it in &page {
                let link = links.get(&*it.code);
                let link = link.filter(|link| link.campaign == it.campaign);
                match link {
                    Some(link) if link.created - CLOCKS_DIFFER_MS <= it.clicks.first_at => {
                        rows.push(contribution(*link, it.clicks));
                        continue;
                    }
                    // Of an earlier link of the code, and perhaps of this one.
                    Some(link) => reused.push(*link),
                    None => {}
                }
                if it.campaign != ALL {
                    *hours.entry(hour_of(it.campaign, &it.clicks)).or_default() += 1;
                }
            }
            let own = sink.human_visits(&reused, i64::MIN, i64::MAX, &[]).await;
            let own = asked(operation, own)?;
            for it in &own {
                let link = links.get(&*it.code);
                let link = link.filter(|link| link.campaign == it.campaign);
                rows.extend(link.map(|link| contribution(*link, it.clicks)));
            }
            // No batch is earlier, and each link has one row.
            let batch = Batch::new(1, [], [], rows);
            asked(operation, sink.insert(&batch).await)?;
        }
        asked(operation, sink.insert(&of_deleted(1, &hours)).await)
    }
}

fn contribution<'a>(link: ClickedLink<'a>, clicks: Clicks) -> LinkClicks<'a> {
    LinkClicks {
        link,
        clicks: Some(clicks),
        since: 0,
    }
}

/// The campaign and the hour in which a link is counted.
fn hour_of(campaign: i64, clicks: &Clicks) -> (i64, i64) {
    (campaign, clicks.first_at.div_euclid(HOUR_MS))
}

/// The batch with links that are deleted, by the hours of their first clicks.
fn of_deleted(batch: i64, hours: &Hours) -> Batch {
    let mut hours: Vec<_> = hours.iter().filter(|(_, links)| **links > 0).collect();
    hours.sort_unstable();
    let rows = hours.into_iter().map(|((campaign, hour), links)| {
        let link = ClickedLink {
            campaign: *campaign,
            created: hour * HOUR_MS,
            code: "",
        };
        let clicks = Clicks {
            visits: *links,
            ..Clicks::at(hour * HOUR_MS)
        };
        contribution(link, clicks)
    });
    Batch::new(batch, [], [], rows)
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
    marks::clear(db).await?;
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
    messages::leave(db).await?;
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
