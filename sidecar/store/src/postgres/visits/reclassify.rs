//! Reclassifies stored visits and corrects their counts.

use std::collections::{BTreeSet, HashSet};

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::ports::{
    PeoplePage, ReclassifyStore, StaleDay, StoreError, TimeSpan, VisitPage,
};
use shortlink_core::visit::sketch::Sketch;
use shortlink_core::visit::stored::{StoredVisit, Verdict};

use super::keeping::{add, add_visitors, insert_agent_rows};
use crate::columns;
use crate::postgres::PostgresStore;
use crate::postgres::statements::Statements;
use crate::postgres::work::Work;
use crate::shared::DAY_MS;
use crate::visits::moves::Moves;
use crate::visits::people::{PersonRow, people_page, stale_days};
use crate::visits::{Counts, EARLIER, agent_id, stored_columns, with};

#[async_trait]
impl ReclassifyStore for PostgresStore {
    async fn visit_numbers(&self) -> Result<Option<(i64, i64)>, StoreError> {
        self.run(VisitNumbers).await
    }

    async fn visits_after(
        &self,
        after: i64,
        time: TimeSpan,
        limit: u32,
    ) -> Result<VisitPage, StoreError> {
        self.run(VisitsAfter { after, time, limit }).await
    }

    async fn reclassify_visits(
        &self,
        verdicts: Vec<(StoredVisit, Verdict)>,
        hours_since: Option<Timestamp>,
    ) -> Result<u64, StoreError> {
        let verdicts = &verdicts;
        let reclassify = ReclassifyVisits {
            verdicts,
            hours_since,
        };
        self.transact(reclassify).await
    }

    async fn stale_days(&self, limit: u32) -> Result<Vec<StaleDay>, StoreError> {
        self.run(StaleDays(limit)).await
    }

    async fn people_after(
        &self,
        after: i64,
        days: (i64, i64),
        limit: u32,
    ) -> Result<PeoplePage, StoreError> {
        self.run(PeopleAfter { after, days, limit }).await
    }

    async fn replace_people(
        &self,
        days: Vec<(StaleDay, Sketch)>,
    ) -> Result<Vec<StaleDay>, StoreError> {
        self.transact(ReplacePeople(&sorted(days))).await
    }

    async fn settle_people(&self, days: Vec<(StaleDay, Sketch)>) -> Result<u64, StoreError> {
        self.transact(SettlePeople(&sorted(days))).await
    }
}

/// Sorts days into the order in which all transactions lock them, which prevents deadlocks.
fn sorted(mut days: Vec<(StaleDay, Sketch)>) -> Vec<(StaleDay, Sketch)> {
    days.sort_unstable_by_key(|(day, _)| *day);
    days
}

struct VisitNumbers;

#[async_trait]
impl Work for VisitNumbers {
    type Output = Option<(i64, i64)>;
    const OPERATION: &'static str = "count stored visits";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<(i64, i64)>, sqlx::Error> {
        let (first, last): (Option<i64>, Option<i64>) =
            sqlx::query_as("SELECT min(id), max(id) FROM visits")
                .fetch_one(connection)
                .await?;
        Ok(first.zip(last))
    }
}

/// The beginning and the end of the days that a time is in, in milliseconds. Each day has a part
/// of its own, which is then read as a whole: none of its rows is skipped one by one.
fn whole_days(time: TimeSpan) -> (i64, i64) {
    let day = |moment: Timestamp| moment.as_millisecond().div_euclid(DAY_MS);
    (
        time.since.map_or(i64::MIN, |since| day(since) * DAY_MS),
        time.until
            .map_or(i64::MAX, |until| (day(until) + 1) * DAY_MS),
    )
}

struct VisitsAfter {
    after: i64,
    time: TimeSpan,
    limit: u32,
}

#[async_trait]
impl Work for VisitsAfter {
    type Output = VisitPage;
    const OPERATION: &'static str = "read visits";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<VisitPage, sqlx::Error> {
        let (since, until) = whole_days(self.time);
        let rows = sqlx::query(concat!(
            "SELECT ",
            stored_columns!(),
            " FROM (SELECT * FROM visits WHERE id > $1 AND at >= $2 AND at < $3 \
             ORDER BY id LIMIT $4) AS visits \
             JOIN visit_agents ON visit_agents.id = agent_id ORDER BY visits.id"
        ))
        .bind(self.after)
        .bind(since)
        .bind(until)
        .bind(i64::from(self.limit))
        .fetch_all(connection)
        .await?;
        columns::visit_page(&rows, self.time)
    }
}

struct ReclassifyVisits<'a> {
    verdicts: &'a [(StoredVisit, Verdict)],
    hours_since: Option<Timestamp>,
}

#[async_trait]
impl Work for ReclassifyVisits<'_> {
    type Output = u64;
    const OPERATION: &'static str = "classify visits again";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let agents = self.verdicts.iter();
        let agents = agents.map(|(visit, verdict)| (visit.user_agent.as_str(), &*verdict.agent));
        insert_agent_rows(connection, agents).await?;
        let changed = update(connection, self.verdicts).await?;
        let verdicts = self.verdicts.iter();
        let verdicts = verdicts.filter(|(visit, _)| changed.contains(&visit.number));
        let verdicts = verdicts.map(|both| (both, both.0.code.as_str()));
        let moves = Moves::of(verdicts, self.hours_since);
        // In the same order as counts of new visits.
        add(connection, &moves.counts).await?;
        remove_empty(connection, &moves.counts).await?;
        add_visitors(connection, &moves.counts).await?;
        mark_stale(connection, &moves.stale).await?;
        Ok(changed.len() as u64)
    }
}

/// Writes verdicts on visits that are unchanged since they were read; returns their numbers.
async fn update(
    connection: &mut Statements<'_>,
    verdicts: &[(StoredVisit, Verdict)],
) -> Result<HashSet<i64>, sqlx::Error> {
    fn all<'a, T>(
        verdicts: &'a [(StoredVisit, Verdict)],
        of: impl Fn(&'a StoredVisit, &'a Verdict) -> T,
    ) -> Vec<T> {
        let verdicts = verdicts.iter();
        verdicts
            .map(|(visit, verdict)| of(visit, verdict))
            .collect()
    }
    let times = || verdicts.iter().map(|(visit, _)| visit.at.as_millisecond());
    let numbers = || verdicts.iter().map(|(visit, _)| visit.number);
    // With the bounds, PostgreSQL does not examine other days' parts or the rest of a part's index.
    let changed: Vec<i64> = sqlx::query_scalar(
        "UPDATE visits SET class = found.class, reason = found.reason, \
         ruleset = found.ruleset, agent_id = found.agent_id \
         FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], \
         $6::integer[], $7::bigint[], $8::text[], $9::text[], $10::integer[], $11::bigint[]) \
         AS found(id, at, code, old_class, old_reason, old_ruleset, old_agent_id, \
         class, reason, ruleset, agent_id) \
         WHERE visits.id = found.id AND visits.at = found.at AND visits.code = found.code \
         AND visits.class = found.old_class AND visits.reason = found.old_reason \
         AND visits.ruleset = found.old_ruleset AND visits.agent_id = found.old_agent_id \
         AND visits.at BETWEEN $12 AND $13 AND visits.id BETWEEN $14 AND $15 \
         RETURNING visits.id",
    )
    .bind(all(verdicts, |it, _| it.number))
    .bind(all(verdicts, |it, _| it.at.as_millisecond()))
    .bind(all(verdicts, |it, _| it.code.as_str()))
    .bind(all(verdicts, |it, _| it.class.name()))
    .bind(all(verdicts, |it, _| it.reason.as_str()))
    .bind(all(verdicts, |it, _| i32::from(it.ruleset)))
    .bind(all(verdicts, |it, _| it.agent.id))
    .bind(all(verdicts, |_, to| to.classification.class.name()))
    .bind(all(verdicts, |_, to| to.classification.reason))
    .bind(all(verdicts, |_, to| i32::from(to.classification.ruleset)))
    .bind(all(verdicts, |it, to| agent_id(&it.user_agent, &to.agent)))
    .bind(times().min())
    .bind(times().max())
    .bind(numbers().min())
    .bind(numbers().max())
    .fetch_all(connection)
    .await?;
    Ok(changed.into_iter().collect())
}

/// Removes counts of 0 or less: a count that was deleted before visits were subtracted is below 0. A
/// negative count of [`EARLIER`] stays: earlier hours are still to be added to it.
async fn remove_empty(
    connection: &mut Statements<'_>,
    counts: &Counts<&str>,
) -> Result<(), sqlx::Error> {
    let less = counts.links.iter().filter(|(_, (by, _))| *by < 0);
    let (mut codes, mut hours, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    for ((code, hour, class), _) in less {
        codes.push(*code);
        hours.push(*hour);
        classes.push(*class);
    }
    sqlx::query(
        "DELETE FROM visit_link_hours AS kept \
         USING unnest($1::text[], $2::bigint[], $3::text[]) AS less(code, hour, class) \
         WHERE kept.code = less.code AND kept.hour = less.hour AND kept.class = less.class \
         AND (visits = 0 OR visits < 0 AND kept.hour > $4)",
    )
    .bind(codes)
    .bind(hours)
    .bind(classes)
    .bind(EARLIER)
    .execute(&mut *connection)
    .await?;
    let less = counts.hours.iter().filter(|(_, by)| **by < 0);
    let (mut campaigns, mut dimensions, mut hours) = (Vec::new(), Vec::new(), Vec::new());
    let (mut values, mut classes) = (Vec::new(), Vec::new());
    for ((campaign, dimension, hour, value, class), _) in less {
        campaigns.push(*campaign);
        dimensions.push(*dimension);
        hours.push(*hour);
        values.push(value.as_str());
        classes.push(*class);
    }
    sqlx::query(
        "DELETE FROM visit_hours AS kept USING unnest($1::bigint[], $2::text[], $3::bigint[], \
         $4::text[], $5::text[]) AS less(campaign_id, dimension, hour, value, class) \
         WHERE kept.campaign_id = less.campaign_id AND kept.dimension = less.dimension \
         AND kept.hour = less.hour AND kept.value = less.value AND kept.class = less.class \
         AND visits <= 0",
    )
    .bind(campaigns)
    .bind(dimensions)
    .bind(hours)
    .bind(values)
    .bind(classes)
    .execute(connection)
    .await?;
    Ok(())
}

/// Marks the campaigns and days whose unique visitors have to be counted again.
async fn mark_stale(
    connection: &mut Statements<'_>,
    stale: &BTreeSet<(i64, i64)>,
) -> Result<(), sqlx::Error> {
    let (campaigns, days): (Vec<i64>, Vec<i64>) = stale.iter().copied().unzip();
    sqlx::query(
        "INSERT INTO visit_stale_sketches AS stale (campaign_id, day, generation) \
         SELECT *, 1 FROM unnest($1::bigint[], $2::bigint[]) \
         ON CONFLICT (campaign_id, day) DO UPDATE SET generation = stale.generation + 1",
    )
    .bind(campaigns)
    .bind(days)
    .execute(connection)
    .await?;
    Ok(())
}

struct StaleDays(u32);

#[async_trait]
impl Work for StaleDays {
    type Output = Vec<StaleDay>;
    const OPERATION: &'static str = "read stale days";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<StaleDay>, sqlx::Error> {
        let rows: Vec<(i64, i64, i64)> = sqlx::query_as(
            "SELECT campaign_id, day, generation FROM visit_stale_sketches \
             ORDER BY campaign_id, day LIMIT $1",
        )
        .bind(i64::from(self.0))
        .fetch_all(connection)
        .await?;
        Ok(stale_days(rows))
    }
}

struct PeopleAfter {
    after: i64,
    days: (i64, i64),
    limit: u32,
}

#[async_trait]
impl Work for PeopleAfter {
    type Output = PeoplePage;
    const OPERATION: &'static str = "read visitors";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<PeoplePage, sqlx::Error> {
        let (first, last) = self.days;
        let rows: Vec<PersonRow> = sqlx::query_as(
            "SELECT id, at, campaign_id, CASE WHEN class = 'human' THEN visitor END \
             FROM visits WHERE id > $1 AND at >= $2 AND at < $3 ORDER BY id LIMIT $4",
        )
        .bind(self.after)
        .bind(first.saturating_mul(DAY_MS))
        .bind((last + 1).saturating_mul(DAY_MS))
        .bind(i64::from(self.limit))
        .fetch_all(connection)
        .await?;
        Ok(people_page(rows, self.days))
    }
}

/// Locks the sketches of days, in their order and before anything else of them, as transactions that
/// add visitors do; returns the sketches.
async fn lock_sketches(
    connection: &mut Statements<'_>,
    days: &[(StaleDay, Sketch)],
) -> Result<Vec<Vec<u8>>, sqlx::Error> {
    let nobody = Sketch::default();
    let mut sketches = Vec::with_capacity(days.len());
    for (day, _) in days {
        let kept = sqlx::query_scalar(
            "INSERT INTO visit_sketches AS kept (campaign_id, day, registers) \
             VALUES ($1, $2, $3) ON CONFLICT (campaign_id, day) \
             DO UPDATE SET registers = kept.registers RETURNING registers",
        )
        .bind(day.campaign)
        .bind(day.day)
        .bind(nobody.as_bytes())
        .fetch_one(&mut *connection)
        .await?;
        sketches.push(kept);
    }
    Ok(sketches)
}

/// Returns whether a day is unchanged since its generation was read, and locks it until the
/// transaction ends.
async fn is_untouched(connection: &mut Statements<'_>, day: StaleDay) -> Result<bool, sqlx::Error> {
    let generation: Option<i64> = sqlx::query_scalar(
        "SELECT generation FROM visit_stale_sketches WHERE campaign_id = $1 AND day = $2 \
         FOR UPDATE",
    )
    .bind(day.campaign)
    .bind(day.day)
    .fetch_optional(connection)
    .await?;
    Ok(generation == Some(day.generation))
}

async fn put_sketch(
    connection: &mut Statements<'_>,
    day: StaleDay,
    sketch: &Sketch,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE visit_sketches SET registers = $3 WHERE campaign_id = $1 AND day = $2")
        .bind(day.campaign)
        .bind(day.day)
        .bind(sketch.as_bytes())
        .execute(connection)
        .await?;
    Ok(())
}

struct ReplacePeople<'a>(&'a [(StaleDay, Sketch)]);

#[async_trait]
impl Work for ReplacePeople<'_> {
    type Output = Vec<StaleDay>;
    const OPERATION: &'static str = "count the unique visitors of a day again";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<StaleDay>, sqlx::Error> {
        lock_sketches(connection, self.0).await?;
        let mut replaced = Vec::with_capacity(self.0.len());
        for (day, sketch) in self.0 {
            if !is_untouched(connection, *day).await? {
                continue;
            }
            put_sketch(connection, *day, sketch).await?;
            let generation = day.generation + 1;
            sqlx::query(
                "UPDATE visit_stale_sketches SET generation = $3 \
                 WHERE campaign_id = $1 AND day = $2",
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

struct SettlePeople<'a>(&'a [(StaleDay, Sketch)]);

#[async_trait]
impl Work for SettlePeople<'_> {
    type Output = u64;
    const OPERATION: &'static str = "settle the unique visitors of a day";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u64, sqlx::Error> {
        let kept = lock_sketches(connection, self.0).await?;
        let mut settled = 0;
        for ((day, people), kept) in self.0.iter().zip(kept) {
            if !is_untouched(connection, *day).await? {
                continue;
            }
            let mut sketch = with(Some(kept), &[])?;
            sketch.merge(people);
            put_sketch(connection, *day, &sketch).await?;
            sqlx::query("DELETE FROM visit_stale_sketches WHERE campaign_id = $1 AND day = $2")
                .bind(day.campaign)
                .bind(day.day)
                .execute(&mut *connection)
                .await?;
            settled += 1;
        }
        Ok(settled)
    }
}
