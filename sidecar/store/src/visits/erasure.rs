//! Erasure of visits: the steps of its job, and the tombstones that keep late events out.
//!
//! A tombstone is stored before the first visit is deleted. It names a link or a campaign and a time: ingestion drops
//! events of visits up to then, however late they arrive, until it is forgotten ([`Store::forget_erasures`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::bulk::Erased;
use shortlink_core::ports::StoreError;
use vocabulary::Code;

use super::agents::note_agents;
use super::counts::LINK;
use super::erased::{COLUMNS, Erased as ErasedCounts, ErasedVisit};
use super::listing::IDS_OF_DAYS;
use super::{EARLIER, LinkKey, OF_LINKS, Taken, clicks};
use crate::db::Db;
use crate::shared::DAY_MS;
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::sqlite::CLEAN;
use crate::value::{Row, Value, args};
use crate::webhooks::events::remove_of_visits;
use crate::{Scheme, Store};

/// The most visits that a step deletes or examines.
const VISITS_PER_STEP: u32 = 5_000;

/// Finds visits of some links. PostgreSQL looks only into the parts of the days between two times.
pub(super) const OF_SOME_LINKS: Sql = sql!(
    "SELECT id, at FROM visits WHERE ",
    OF_LINKS,
    " AND at >= $4 AND at <= $2 LIMIT $3"
);

/// Deletes visits of one day, by their ids: with the visits of several days, PostgreSQL would rather read all of these
/// days than look for each visit in the part of every day.
pub(super) const OF_A_DAY: Sql = sql!(
    "DELETE FROM visits WHERE id",
    IN_NUMBERS,
    " AND at >= $2 AND at < $3 RETURNING ",
    COLUMNS
);

/// Deletes those of a campaign among some visits, which are of the time between two times.
pub(super) const OF_A_CAMPAIGN: Sql = sql!(
    "DELETE FROM visits WHERE id > $1 AND id <= $2 AND campaign_id = $3 AND at >= $5 AND at <= $4 RETURNING ",
    COLUMNS
);

/// The hours in which some links were visited.
const HOURS_OF_LINKS: Sql = sql!(
    "SELECT min(hour) AS first, max(last_at) AS last FROM visit_link_hours WHERE ",
    OF_LINKS
);

/// The lock that transactions with new visits share: "shorburi".
const LOCK: i64 = 0x7368_6f72_6275_7269;

/// Waits on PostgreSQL for transactions that have looked for tombstones and may still store visits; those that come
/// later wait until this transaction ends. SQLite has one writer.
pub(crate) async fn wait_for_ingestion(db: &mut Db<'_>) -> Result<(), sqlx::Error> {
    if db.scheme() == Scheme::Postgres {
        // In the order in which they lock both.
        let sql = sql!("SELECT id FROM visit_sink WHERE id = 1 FOR UPDATE");
        db.run(sql, &[]).await?;
    }
    db.lock(LOCK).await
}

/// Stores the tombstones of links and campaigns, by their names.
pub(crate) async fn bury(
    db: &mut Db<'_>,
    subjects: impl Iterator<Item = String>,
    until: Timestamp,
) -> Result<(), sqlx::Error> {
    let subjects: BTreeSet<String> = subjects.collect();
    let rows: Vec<_> = subjects
        .into_iter()
        .map(|subject| [subject.into(), until.into()])
        .collect();
    let into = sql!("INSERT INTO visit_erasures AS kept (subject, until)");
    let end = sql!(
        " ON CONFLICT (subject) DO UPDATE SET until = {max|greatest}(kept.until, excluded.until)"
    );
    db.insert(into, ["text", "bigint"], end, rows.into_iter())
        .await
}

impl Store {
    /// Deletes tombstones of erasures before a moment, at most `limit`; returns their number.
    #[boxed]
    pub async fn forget_erasures(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let sql = sql!(
            "DELETE FROM visit_erasures WHERE subject IN (SELECT subject FROM visit_erasures \
             WHERE until < $1 ORDER BY until LIMIT $2) AND until < $1"
        );
        self.run("forget erasures of visits", sql, args![before, limit])
            .await
    }
}

/// The name of a link among tombstones.
pub(crate) fn of_link(code: &str) -> String {
    format!("link:{code}")
}

/// The name of a campaign among tombstones.
pub(crate) fn of_campaign(id: i64) -> String {
    format!("campaign:{id}")
}

/// Returns the places of visits that are not erased. Most batches have only visits that are later than each erasure.
pub(super) async fn alive(
    db: &mut Db<'_>,
    visits: &[Taken<'_>],
) -> Result<Vec<usize>, sqlx::Error> {
    let all = || (0..visits.len()).collect();
    let Some(first) = visits.iter().map(|it| it.visit.at).min() else {
        return Ok(Vec::new());
    };
    db.share_lock(LOCK).await?;
    let subjects = || {
        let links = visits.iter().map(|it| of_link(&it.visit.code));
        let campaigns = visits.iter().filter_map(Taken::campaign);
        links.chain(campaigns.map(of_campaign)).collect()
    };
    let erased = erased_until(db, first, subjects).await?;
    if erased.is_empty() {
        return Ok(all());
    }
    let is_erased = |name: String, at| erased.get(&name).is_some_and(|until| at <= *until);
    let places = visits.iter().enumerate().filter(|(_, it)| {
        let at = it.visit.at;
        let of_campaign = it.campaign().map(of_campaign);
        !is_erased(of_link(&it.visit.code), at) && !of_campaign.is_some_and(|of| is_erased(of, at))
    });
    Ok(places.map(|(place, _)| place).collect())
}

/// Returns until when links and campaigns are erased, by their names, of those of some that are, if any is since a moment.
pub(crate) async fn erased_until(
    db: &mut Db<'_>,
    since: Timestamp,
    subjects: impl FnOnce() -> BTreeSet<String>,
) -> Result<HashMap<String, Timestamp>, sqlx::Error> {
    let sql = sql!("SELECT 1 AS any FROM visit_erasures WHERE until >= $1 LIMIT 1");
    let any: Option<i32> = db.one(sql, args![since], |_row| Ok(1)).await?;
    if any.is_none() {
        return Ok(HashMap::new());
    }
    let subjects = subjects();
    let subjects: Vec<&str> = subjects.iter().map(String::as_str).collect();
    let sql = sql!(
        "SELECT subject, until FROM visit_erasures WHERE subject",
        crate::sql::IN_TEXTS
    );
    let read = |row: &Row| {
        Ok((
            row.get::<String>("subject")?,
            row.get::<Timestamp>("until")?,
        ))
    };
    db.all(sql, args![subjects], read).await
}

/// Erases visits of links up to a time. Returns false if there may be more of them.
pub(crate) async fn erase_of_links(
    db: &mut Db<'_>,
    codes: &[Code],
    until: Timestamp,
    now: Timestamp,
    erased: &mut Erased,
) -> Result<bool, sqlx::Error> {
    let keys = LinkKey::known(db, codes).await?;
    let wanted = LinkKey::list(db, keys.keys());
    let (first, last) = times(db, &wanted, until).await?;
    let values = [wanted, last.into(), VISITS_PER_STEP.into(), first.into()];
    let read = |row: &Row| Ok((row.get("id")?, row.get("at")?));
    let found: Vec<(i64, i64)> = db.all(OF_SOME_LINKS, &values, read).await?;
    let mut days: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (id, at) in &found {
        days.entry(at.div_euclid(DAY_MS)).or_default().push(*id);
    }
    let days = days.into_iter();
    let days = days.map(|(day, ids)| {
        [
            ids.into(),
            (day * DAY_MS).into(),
            ((day + 1) * DAY_MS).into(),
        ]
    });
    let counts = delete(db, OF_A_DAY, days, now, erased).await?;
    let is_last = found.len() < VISITS_PER_STEP as usize;
    if is_last {
        erased.counts += blur(db, &keys, until).await?;
    }
    erased.counts += counts.take_out(db).await?;
    if !is_last {
        return Ok(false);
    }
    clicks::recount(db, &keys, until.as_millisecond()).await?;
    Ok(true)
}

/// The times, in milliseconds since 1970, between which all visits of links up to a time are: their counts know the
/// hours.
async fn times(
    db: &mut Db<'_>,
    links: &Value<'_>,
    until: Timestamp,
) -> Result<(i64, i64), sqlx::Error> {
    let until = until.as_millisecond();
    let read = |row: &Row| Ok((row.find::<i64>("first")?, row.find::<i64>("last")?));
    let (first, last) = db
        .get(HOURS_OF_LINKS, std::slice::from_ref(links), read)
        .await?;
    // Hours that have been added to the totals are not known any more.
    let first = first.filter(|first| *first > EARLIER);
    let first = first.map_or(i64::MIN, |first| first * super::HOUR_MS);
    // The last time may have been rounded down to its day.
    let last = last.map_or(until, |last| until.min(last.saturating_add(DAY_MS)));
    Ok((first, last))
}

/// Erases visits of a campaign up to a time, also those of links that are deleted, among the visits behind an id and
/// since the campaign was created; returns the last of these.
pub(crate) async fn erase_of_campaign(
    db: &mut Db<'_>,
    campaign: i64,
    after: i64,
    until: Timestamp,
    now: Timestamp,
    erased: &mut Erased,
) -> Result<Option<i64>, sqlx::Error> {
    let Some((after, since)) = begin_of(db, campaign, after).await? else {
        return Ok(None);
    };
    let sql = sql!(
        "SELECT max(id) AS last, count(*) AS visits, min(at) AS first_at, max(at) AS last_at FROM \
         (SELECT id, at FROM visits WHERE id > $1{| AND at >= $3} ORDER BY id LIMIT $2) AS examined"
    );
    let values = args![after, VISITS_PER_STEP, since];
    let values = match db.scheme() {
        Scheme::Sqlite => &values[..2],
        Scheme::Postgres => &values[..],
    };
    let read = |row: &Row| {
        let visits: i64 = row.get("visits")?;
        let Some(last) = row.find::<i64>("last")? else {
            return Ok(None);
        };
        let times = (row.get::<i64>("first_at")?, row.get::<i64>("last_at")?);
        Ok(Some((last, visits, times)))
    };
    let Some((last, visits, (first_at, last_at))) = db.get(sql, values, read).await? else {
        return Ok(None);
    };
    let last_at = last_at.min(until.as_millisecond());
    let values = [after, last, campaign, last_at, first_at].map(Value::from);
    let counts = delete(db, OF_A_CAMPAIGN, [values].into_iter(), now, erased).await?;
    erased.counts += counts.take_out(db).await?;
    // Visits that are stored meanwhile do not prolong the walk for ever.
    Ok(Some(last).filter(|_| visits == i64::from(VISITS_PER_STEP)))
}

/// The id behind which the visits of a campaign are, at least the given one, and the begin of the first day of their
/// times, in milliseconds since 1970; `None` if there are no visits of that time. The clock of an edge may be behind by a
/// day.
async fn begin_of(
    db: &mut Db<'_>,
    campaign: i64,
    after: i64,
) -> Result<Option<(i64, i64)>, sqlx::Error> {
    let sql = sql!("SELECT created_at FROM campaigns WHERE id = $1");
    let read = |row: &Row| row.get::<i64>("created_at");
    let Some(created_at) = db.one(sql, args![campaign], read).await? else {
        return Ok(Some((after, i64::MIN)));
    };
    let day = created_at.div_euclid(DAY_MS) - 1;
    if db.scheme() == Scheme::Postgres {
        return Ok(Some((after, day * DAY_MS)));
    }
    let read = |row: &Row| row.find::<i64>("first_id");
    let first_id = db.get(IDS_OF_DAYS, args![day, i64::MAX], read).await?;
    Ok(first_id.map(|first_id| (after.max(first_id - 1), day * DAY_MS)))
}

/// Deletes visits by a statement, once for each of some lists of values, so that SQLite overwrites them. Notes their
/// agents; returns the counts that they are in.
async fn delete<const N: usize>(
    db: &mut Db<'_>,
    sql: Sql,
    lists: impl Iterator<Item = [Value<'_>; N]>,
    now: Timestamp,
    erased: &mut Erased,
) -> Result<ErasedCounts, sqlx::Error> {
    overwrite(db, true).await?;
    let deleted = async {
        let mut visits: Vec<ErasedVisit> = Vec::new();
        for values in lists {
            let deleted: Vec<ErasedVisit> = db.all(sql, &values, ErasedVisit::read).await?;
            visits.extend(deleted);
        }
        let ids: Vec<i64> = visits.iter().map(|visit| visit.id).collect();
        remove_of_visits(db, &ids).await?;
        Ok::<_, sqlx::Error>(visits)
    };
    let deleted = deleted.await;
    overwrite(db, false).await?;
    let deleted = deleted?;
    erased.visits += deleted.len() as u64;
    let counts = ErasedCounts::of(db, &deleted).await?;
    let agents: BTreeSet<i64> = deleted.iter().map(|visit| visit.agent).collect();
    let day = now.as_millisecond().div_euclid(DAY_MS);
    let noted = sql!(
        "SELECT count(*) AS noted FROM visit_agent_checks WHERE agent_id",
        IN_NUMBERS,
        " AND day = $2"
    );
    let ids: Vec<i64> = agents.iter().copied().collect();
    let noted: u64 = db
        .get(noted, args![ids, day], |row| row.get("noted"))
        .await?;
    erased.agents += agents.len() as u64 - noted;
    note_agents(db, agents, now).await?;
    Ok(counts)
}

/// Has SQLite overwrite all that is deleted: else the bytes stay in free pages of the file until others take their place.
/// Otherwise it overwrites only in pages that it writes anyway ([`CLEAN`]).
pub(crate) async fn overwrite(db: &mut Db<'_>, is_on: bool) -> Result<(), sqlx::Error> {
    if db.scheme() == Scheme::Sqlite {
        let sql = match is_on {
            true => sql!("PRAGMA secure_delete = ON"),
            false => sql!("PRAGMA secure_delete = ", CLEAN),
        };
        db.run(sql, &[]).await?;
    }
    Ok(())
}

/// Counts the visits of links in the hour of an erasure that came after it.
const LATER: [&str; 5] = [
    "SELECT ",
    LINK,
    " AS link, class, count(*) AS visits, max(at) AS last_at FROM visits WHERE ",
    OF_LINKS,
    " AND at > $2 AND at < $3 GROUP BY link, class",
];

/// Adds the hourly counts of links to their earlier visits, and rounds the times of their last visits down to days: the
/// hours of a recipient's link are those of one person. Of the last hour, the visits after the erasure stay: they can
/// still be reclassified, and are subtracted where they were added. Returns the number of hours.
async fn blur(
    db: &mut Db<'_>,
    keys: &HashMap<LinkKey<'_>, &Code>,
    until: Timestamp,
) -> Result<u64, sqlx::Error> {
    let last_hour = until.as_millisecond().div_euclid(super::HOUR_MS);
    let wanted = LinkKey::list(db, keys.keys());
    let end = (last_hour + 1).saturating_mul(super::HOUR_MS);
    let hours = [wanted.clone(), EARLIER.into(), last_hour.into()];
    let later: [Value<'_>; 3] = [wanted, until.into(), end.into()];
    if db.scheme() == Scheme::Postgres {
        // In the order in which visits are counted. From now on, the counts of these hours and the visits agree.
        let lock = sql!(
            "SELECT hour FROM visit_link_hours WHERE ",
            OF_LINKS,
            " AND hour > $2 AND hour <= $3 ORDER BY code, hour, class FOR UPDATE"
        );
        db.run(lock, &hours).await?;
    }
    let add = sql!(
        "INSERT INTO visit_link_hours AS kept (",
        LINK,
        ", hour, class, visits, last_at) SELECT ",
        LINK,
        ", $4, counted.class, CAST(sum(counted.visits - coalesce(later.visits, 0)) AS bigint), \
         max(counted.last_at) / $6 * $6 FROM visit_link_hours AS counted LEFT JOIN (",
        LATER[0],
        LATER[1],
        LATER[2],
        LATER[3],
        LATER[4],
        ") AS later ON link = ",
        LINK,
        " AND later.class = counted.class AND hour = $5 WHERE ",
        OF_LINKS,
        " AND hour > $4 AND hour <= $5 GROUP BY ",
        LINK,
        ", counted.class HAVING sum(counted.visits - coalesce(later.visits, 0)) <> 0 ON CONFLICT (",
        LINK,
        ", hour, class) DO UPDATE SET visits = kept.visits + excluded.visits, \
         last_at = {max|greatest}(kept.last_at, excluded.last_at)"
    );
    let folded = [EARLIER.into(), last_hour.into(), DAY_MS.into()];
    db.run(add, &[&later[..], &folded].concat()).await?;
    let delete = sql!(
        "DELETE FROM visit_link_hours WHERE ",
        OF_LINKS,
        " AND hour > $2 AND hour <= $3"
    );
    overwrite(db, true).await?;
    let deleted = db.run(delete, &hours).await;
    overwrite(db, false).await?;
    let deleted = deleted?;
    let stay = sql!(
        "INSERT INTO visit_link_hours (",
        LINK,
        ", hour, class, visits, last_at) SELECT link, $4, class, visits, last_at FROM (",
        LATER[0],
        LATER[1],
        LATER[2],
        LATER[3],
        LATER[4],
        // A row that has come since has later visits only, all of them.
        ") AS later WHERE true ON CONFLICT DO NOTHING"
    );
    db.run(stay, &[&later[..], &[last_hour.into()]].concat())
        .await?;
    Ok(deleted)
}
