//! Reclassifies stored visits and corrects their counts.
//!
//! Every operation has bounded work, so that it can be called while visits are stored.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{PeoplePage, StaleDay, StoreError, TimeSpan, VisitPage};
use shortlink_core::visit::agent::Versioned;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::sketch::Sketch;
use shortlink_core::visit::stored::{StoredAgent, StoredVisit, Verdict};

use super::agents::{NewAgent, insert_agents, note_agents};
use super::counts::LINK;
use super::keeping::{add, keys};
use super::listing::IDS_OF_DAYS;
use super::moves::Moves;
use super::sink::asked;
use super::sketches::{self, Kept};
use super::values::name;
use super::{
    ALL, Counts, EARLIER_TEXT, asn, clicks, evidence, first_clicks, method, minutes, variants,
    visitor_id,
};
use crate::db::Db;
use crate::shared::DAY_MS;
use crate::sql::{FOR_UPDATE, sql, table};
use crate::value::{Row, args};
use crate::{Engine, Store, webhooks};

/// The columns that [`stored_visit`] reads.
pub(super) const STORED: &str = "SELECT visits.id, at, code, campaign_id, host, visitor, method, \
     status, purpose, evidence, user_agent, isp, asn, country, referrer_host, variant, class, reason, ruleset, agent_id, browser, \
     browser_version, os, os_version, device, app FROM ";

impl Store {
    /// The numbers of the first and the last visit; `None` without visits.
    #[boxed]
    pub async fn visit_numbers(&self) -> Result<Option<(i64, i64)>, StoreError> {
        if let Some(sink) = &self.sink {
            let times = (i64::MIN, i64::MAX);
            return asked("count stored visits", sink.numbers(times).await);
        }
        // Two questions: SQLite takes the first or the last of an index, and never both at once.
        let sql = sql!(
            "SELECT (SELECT min(id) FROM visits) AS first, (SELECT max(id) FROM visits) AS last"
        );
        let read = |row: &Row| Ok(row.find("first")?.zip(row.find("last")?));
        let numbers = self.one("count stored visits", sql, args![], read);
        Ok(numbers.await?.flatten())
    }

    /// Reads the visits of a time among the first `limit` behind a number.
    #[boxed]
    pub async fn visits_after(
        &self,
        after: i64,
        time: TimeSpan,
        limit: u32,
    ) -> Result<VisitPage, StoreError> {
        if let Some(sink) = &self.sink {
            return asked("read visits", sink.page(after, time, limit).await);
        }
        // SQLite has no index by time: all are walked through.
        let sql = sql!(
            STORED,
            "{visits CROSS|\
             (SELECT * FROM visits WHERE id > $1 AND at >= $2 AND at < $3 \
             ORDER BY id LIMIT $4) AS visits} JOIN visit_agents ON visit_agents.id = agent_id \
             {WHERE visits.id > $1 }ORDER BY visits.id{ LIMIT $4}"
        );
        let (since, until) = whole_days(time);
        let values = args![after, since, until, limit];
        let read = |row: &Row| Ok((row.get("id")?, stored_visit(row)?));
        let visits: Vec<_> = self.all("read visits", sql, values, read).await?;
        let mut page = VisitPage::default();
        for (number, visit) in visits {
            page.last = Some(number);
            page.visits.extend(visit);
        }
        page.visits.retain(|visit| time.has(visit.at));
        Ok(page)
    }

    /// Writes verdicts on visits as they were read, at most
    /// [`MAX_VERDICTS`](shortlink_core::ports::MAX_VERDICTS), and corrects the counts, all or, after an
    /// error, none. Visits that have changed since or are gone are skipped. Returns the number of the
    /// others. The counts of links are by the hour from `hours_since` on.
    #[boxed]
    pub async fn reclassify_visits(
        &self,
        verdicts: Vec<(StoredVisit, Verdict)>,
        hours_since: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        if let Some(sink) = &self.sink {
            return self.correct(sink, verdicts, hours_since, now).await;
        }
        let args = (verdicts, hours_since, now);
        self.run_tx(
            "classify visits again",
            args,
            |db, (verdicts, since, now)| Box::pin(reclassify(db, verdicts, *since, *now)),
        )
        .await
    }

    /// Finds days, before the day `before`, whose unique visitors include one that was reclassified as
    /// no visitor: those behind a campaign and day, at most `limit`.
    #[boxed]
    pub async fn stale_days(
        &self,
        before: i64,
        after: (i64, i64),
        limit: u32,
    ) -> Result<Vec<StaleDay>, StoreError> {
        let sql = sql!(
            "SELECT campaign_id, day, generation FROM visit_stale_sketches \
             WHERE (campaign_id, day) > ($1, $2) AND day < $3 ORDER BY campaign_id, day LIMIT $4"
        );
        let values = args![after.0, after.1, before, limit];
        self.all("read stale days", sql, values, |row| {
            Ok(StaleDay {
                campaign: row.get("campaign_id")?,
                day: row.get("day")?,
                generation: row.get("generation")?,
            })
        })
        .await
    }

    /// The numbers of the first and the last visit of a range of days, both ends included, as far
    /// as the store knows them; `None` without visits.
    #[boxed]
    pub async fn numbers_of_days(
        &self,
        (first, last): (i64, i64),
    ) -> Result<Option<(i64, i64)>, StoreError> {
        if let Some(sink) = &self.sink {
            let days = (
                first.saturating_mul(DAY_MS),
                (last + 1).saturating_mul(DAY_MS),
            );
            return asked("find the visits of days", sink.numbers(days).await);
        }
        if matches!(self.engine, Engine::Postgres(_)) {
            // It has a part of the table for each day.
            return Ok(Some((i64::MIN, i64::MAX)));
        }
        let read = |row: &Row| Ok(row.find("first_id")?.zip(row.find("last_id")?));
        let values = args![first, last];
        let found = self.one("find the visits of days", IDS_OF_DAYS, values, read);
        Ok(found.await?.flatten())
    }

    /// Reads the visitors of a range of days, both ends included, among the first `limit` visits
    /// behind a number.
    #[boxed]
    pub async fn people_after(
        &self,
        after: i64,
        days: (i64, i64),
        limit: u32,
    ) -> Result<PeoplePage, StoreError> {
        if let Some(sink) = &self.sink {
            return asked("read visitors", sink.people(after, days, limit).await);
        }
        let sql = sql!(
            "SELECT id, at, campaign_id, CASE WHEN class = 'human' THEN visitor END AS visitor \
             FROM visits WHERE id > $1 {|AND at >= $2 AND at < $3 }ORDER BY id LIMIT $4"
        );
        let (since, until) = (
            days.0.saturating_mul(DAY_MS),
            (days.1 + 1).saturating_mul(DAY_MS),
        );
        let values = args![after, since, until, limit];
        let read = |row: &Row| {
            let day = row.get::<i64>("at")?.div_euclid(DAY_MS);
            let campaign = row.find("campaign_id")?.unwrap_or_default();
            let visitor = visitor_id(row.find("visitor")?);
            Ok((
                row.get("id")?,
                visitor.map(|visitor| (campaign, day, visitor)),
            ))
        };
        let rows: Vec<_> = self.all("read visitors", sql, values, read).await?;
        let last = rows.last().map(|(id, _)| *id);
        let mut people: Vec<_> = rows.into_iter().filter_map(|(_, person)| person).collect();
        people.retain(|(_, day, _)| (days.0..=days.1).contains(day));
        Ok(PeoplePage { people, last })
    }

    /// Replaces the sketches of the unique visitors of days whose generation is unchanged; returns
    /// those days. A visit that is stored meanwhile adds to the sketch that is replaced here, so
    /// the visitors of these days must be read a second time and passed to
    /// [`Store::settle_people`].
    #[boxed]
    pub async fn replace_people(
        &self,
        days: Vec<(StaleDay, Sketch)>,
    ) -> Result<Vec<StaleDay>, StoreError> {
        let operation = "count the unique visitors of a day again";
        self.run_tx(operation, sorted(days), |db, days| {
            Box::pin(async move {
                let days = lock_untouched(db, days).await?;
                let sketches = days.iter();
                let sketches = sketches.map(|(_, people, kept)| (kept, *people));
                sketches::put(db, sketches).await?;
                let mut replaced = Vec::with_capacity(days.len());
                for (day, ..) in days {
                    let generation = day.generation + 1;
                    let sql = sql!(
                        "UPDATE visit_stale_sketches SET generation = $3 \
                         WHERE campaign_id = $1 AND day = $2"
                    );
                    db.run(sql, args![day.campaign, day.day, generation])
                        .await?;
                    replaced.push(StaleDay { generation, ..day });
                }
                Ok(replaced)
            })
        })
        .await
    }

    /// Merges the visitors of the second reading into the sketches and marks the days as correct,
    /// as long as their generation is unchanged; returns the number of those days.
    #[boxed]
    pub async fn settle_people(&self, days: Vec<(StaleDay, Sketch)>) -> Result<u64, StoreError> {
        let operation = "settle the unique visitors of a day";
        self.run_tx(operation, sorted(days), |db, days| {
            Box::pin(async move {
                let days = lock_untouched(db, days).await?;
                let mut merged = Vec::with_capacity(days.len());
                for (_, people, kept) in &days {
                    let mut sketch = kept.sketch()?;
                    sketch.merge(people);
                    merged.push((kept, sketch));
                }
                let sketches = merged.iter();
                sketches::put(db, sketches.map(|(kept, sketch)| (*kept, sketch))).await?;
                let settled = days.len() as u64;
                for (day, ..) in days {
                    let sql = sql!(
                        "DELETE FROM visit_stale_sketches WHERE campaign_id = $1 AND day = $2"
                    );
                    db.run(sql, args![day.campaign, day.day]).await?;
                }
                Ok(settled)
            })
        })
        .await
    }
}

/// Sorts days into the order in which all transactions lock them, which prevents deadlocks.
fn sorted(mut days: Vec<(StaleDay, Sketch)>) -> Vec<(StaleDay, Sketch)> {
    days.sort_unstable_by_key(|(day, _)| *day);
    days
}

/// The beginning and the end of the days that a time is in, in milliseconds. In PostgreSQL each day has
/// a part of its own, which is then read as a whole: none of its rows is skipped one by one.
fn whole_days(time: TimeSpan) -> (i64, i64) {
    let day = |moment: Timestamp| moment.as_millisecond().div_euclid(DAY_MS);
    (
        time.since.map_or(i64::MIN, |since| day(since) * DAY_MS),
        time.until
            .map_or(i64::MAX, |until| (day(until) + 1) * DAY_MS),
    )
}

/// Reads a visit that is to be judged again, with its agent; `None` for a class that a later
/// version has.
pub(super) fn stored_visit(row: &Row) -> Result<Option<StoredVisit>, sqlx::Error> {
    let versioned = |name, version| -> Result<Option<Versioned>, sqlx::Error> {
        let Some(name) = row.find(name)? else {
            return Ok(None);
        };
        let version = row.find(version)?;
        Ok(Some(Versioned { name, version }))
    };
    let Some(class) = Class::by_name(row.get("class")?) else {
        return Ok(None);
    };
    Ok(Some(StoredVisit {
        number: row.get("id")?,
        at: row.get("at")?,
        code: row.get("code")?,
        campaign: row.find("campaign_id")?.unwrap_or(ALL),
        host: row.get("host")?,
        visitor: visitor_id(row.find("visitor")?),
        method: method(row.get("method")?),
        status: row.get("status")?,
        purpose: row.find("purpose")?.unwrap_or_default(),
        evidence: evidence(row)?,
        user_agent: row.get("user_agent")?,
        isp: row.find("isp")?,
        asn: asn(row)?,
        country: row.find("country")?,
        referrer_host: row.find("referrer_host")?,
        variant: row.find("variant")?,
        class,
        reason: row.get("reason")?,
        ruleset: row.get("ruleset")?,
        agent: StoredAgent {
            id: row.get("agent_id")?,
            browser: versioned("browser", "browser_version")?,
            os: versioned("os", "os_version")?,
            device: row.get("device")?,
            app: row.find("app")?,
        },
    }))
}

async fn reclassify(
    db: &mut Db<'_>,
    verdicts: &[(StoredVisit, Verdict)],
    hours_since: Option<Timestamp>,
    now: Timestamp,
) -> Result<u64, sqlx::Error> {
    if verdicts.is_empty() {
        return Ok(0);
    }
    let agents = verdicts.iter();
    let agents = agents.map(|(visit, verdict)| (&*visit.user_agent, &*verdict.agent));
    let agents: Vec<NewAgent<'_>> = agents.map(NewAgent::from).collect();
    insert_agents(db, &agents, now).await?;
    let changed = update(db, verdicts, &agents).await?;
    let left = verdicts.iter().zip(&agents);
    let left = left
        .filter(|((visit, _), agent)| changed.contains(&visit.number) && visit.agent.id != agent.0);
    let left = left.map(|((visit, _), _)| visit.agent.id);
    note_agents(db, left.collect(), now).await?;
    let verdicts = verdicts.iter();
    let verdicts: Vec<_> = verdicts
        .filter(|(visit, _)| changed.contains(&visit.number))
        .collect();
    let codes: Vec<&str> = verdicts.iter().map(|it| it.0.code.as_str()).collect();
    let keys = keys(db, &codes).await?;
    let verdicts: Vec<_> = verdicts.into_iter().zip(keys).collect();
    let mut moves = Moves::of(verdicts.iter().copied(), hours_since, minutes::since(now));
    // In the same order as counts of new visits.
    name(db, &mut moves.counts).await?;
    add(db, &moves.counts).await?;
    remove_empty(db, &moves.counts).await?;
    let wants_first = webhooks::wants_first_clicks(db).await?;
    let first = clicks::correct(db, verdicts.iter().copied(), wants_first).await?;
    variants::correct(db, verdicts.iter().map(|(it, _)| *it)).await?;
    sketches::add(db, &moves.counts.visitors).await?;
    mark_stale(db, &moves.stale).await?;
    first_clicks::report_corrected(db, &first, &verdicts, now).await?;
    Ok(changed.len() as u64)
}

/// Marks the campaigns and days whose unique visitors have to be counted again.
pub(super) async fn mark_stale(
    db: &mut Db<'_>,
    stale: &BTreeSet<(i64, i64)>,
) -> Result<(), sqlx::Error> {
    let stale = stale.iter();
    let stale = stale.map(|(campaign, day)| [(*campaign).into(), (*day).into()]);
    let sql = sql!(
        "INSERT INTO visit_stale_sketches AS stale (campaign_id, day, generation) \
         SELECT campaign_id, day, 1 FROM ",
        table!("new": 1 "campaign_id" "bigint", 2 "day" "bigint"),
        " WHERE true \
         ON CONFLICT (campaign_id, day) DO UPDATE SET generation = stale.generation + 1"
    );
    db.run_table(sql, stale, &[]).await?;
    Ok(())
}

/// Writes verdicts on visits that are unchanged since they were read; returns their numbers.
async fn update(
    db: &mut Db<'_>,
    verdicts: &[(StoredVisit, Verdict)],
    agents: &[NewAgent<'_>],
) -> Result<HashSet<i64>, sqlx::Error> {
    let rows = verdicts.iter().zip(agents);
    let rows = rows.map(|((visit, verdict), agent)| {
        let classification = &verdict.classification;
        [
            visit.number.into(),
            visit.at.into(),
            (&visit.code).into(),
            visit.class.name().into(),
            (&visit.reason).into(),
            visit.ruleset.into(),
            visit.agent.id.into(),
            classification.class.name().into(),
            classification.reason.into(),
            classification.ruleset.into(),
            agent.0.into(),
        ]
    });
    let mut values = db.table(rows);
    let times = || verdicts.iter().map(|(visit, _)| visit.at);
    let numbers = || verdicts.iter().map(|(visit, _)| visit.number);
    values.extend([times().min().into(), times().max().into()]);
    values.extend([numbers().min().into(), numbers().max().into()]);
    // With the bounds, PostgreSQL does not examine other days' parts or the rest of a part's index.
    let sql = sql!(
        "UPDATE visits SET class = found.class, reason = found.reason, \
         ruleset = found.ruleset, agent_id = found.agent_id FROM ",
        table!("found": 1 "id" "bigint", 2 "at" "bigint", 3 "code" "text", 4 "old_class" "text",
            5 "old_reason" "text", 6 "old_ruleset" "bigint", 7 "old_agent_id" "bigint",
            8 "class" "text", 9 "reason" "text", 10 "ruleset" "bigint", 11 "agent_id" "bigint"),
        " WHERE visits.id = found.id AND visits.at = found.at AND visits.code = found.code \
         AND visits.class = found.old_class AND visits.reason = found.old_reason \
         AND visits.ruleset = found.old_ruleset AND visits.agent_id = found.old_agent_id \
         {|AND visits.at BETWEEN $12 AND $13 AND visits.id BETWEEN $14 AND $15 }\
         RETURNING visits.id"
    );
    db.all(sql, &values, |row| row.get("id")).await
}

/// Removes counts of 0 or less: a count that was deleted before visits were subtracted is below 0. A
/// negative count of [`EARLIER`] stays: earlier hours are still to be added to it. Returns the removed counts of values, each
/// with its campaign, dimension, hour, value and class.
pub(super) async fn remove_empty(
    db: &mut Db<'_>,
    counts: &Counts<'_>,
) -> Result<HashSet<(i64, String, i64, String, String)>, sqlx::Error> {
    let less = counts.links.iter().filter(|(_, (by, _))| *by < 0);
    let less = less.map(|((key, hour, class), _)| [(*key).into(), (*hour).into(), (*class).into()]);
    let less: Vec<_> = less.collect();
    let from = sql!("DELETE FROM visit_link_hours");
    let key = [
        (sql!(LINK), "text"),
        (sql!("hour"), "bigint"),
        (sql!("class"), "text"),
    ];
    let end = sql!(
        " AND (visits = 0 OR visits < 0 AND kept.hour > ",
        EARLIER_TEXT,
        ")"
    );
    db.delete(from, key, less.into_iter(), end).await?;
    let less = counts.hours.iter().filter(|(_, by)| **by < 0);
    let less = less.map(|((campaign, dimension, hour, value, class), _)| {
        let (campaign, hour) = ((*campaign).into(), (*hour).into());
        [
            campaign,
            (*dimension).into(),
            hour,
            (*value).into(),
            (*class).into(),
        ]
    });
    let less: Vec<_> = less.collect();
    let from = sql!("DELETE FROM visit_hours");
    let key = [
        (sql!("campaign_id"), "bigint"),
        (sql!("dimension"), "text"),
        (sql!("hour"), "bigint"),
        (sql!("value"), "text"),
        (sql!("class"), "text"),
    ];
    let end = sql!(" AND visits <= 0 RETURNING campaign_id, dimension, hour, value, class");
    let read = |row: &Row| {
        let text = |name| row.get::<String>(name);
        let (campaign, hour) = (row.get("campaign_id")?, row.get("hour")?);
        Ok((
            campaign,
            text("dimension")?,
            hour,
            text("value")?,
            text("class")?,
        ))
    };
    let removed = db
        .delete_returning(from, key, less.into_iter(), end, read)
        .await?;
    minutes::remove_empty(db, counts).await?;
    Ok(removed.into_iter().collect())
}

/// Locks the sketches of days, in their order and before anything else of them, as transactions that
/// add visitors do. Returns the days that are unchanged since their generation was read, which are
/// locked until the transaction ends, and their sketches.
async fn lock_untouched<'a>(
    db: &mut Db<'_>,
    days: &'a [(StaleDay, Sketch)],
) -> Result<Vec<(StaleDay, &'a Sketch, Kept)>, sqlx::Error> {
    let wanted = days.iter().map(|(day, _)| (day.campaign, day.day));
    let locked = sketches::lock(db, wanted).await?;
    let mut untouched = Vec::with_capacity(days.len());
    for ((day, people), kept) in days.iter().zip(locked) {
        let sql = sql!(
            "SELECT generation FROM visit_stale_sketches WHERE campaign_id = $1 AND day = $2",
            FOR_UPDATE
        );
        let values = args![day.campaign, day.day];
        let generation = db.one(sql, values, |row| row.get("generation")).await?;
        if generation == Some(day.generation) {
            untouched.push((*day, people, kept));
        }
    }
    Ok(untouched)
}
