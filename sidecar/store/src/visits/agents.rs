//! User agents of visits: stores them, and deletes those that no visit has any more.
//!
//! An agent has the last day on which a visit of it was stored. Retention deletes visits by their
//! days, and so their agents. Erasure and reclassification note the agents that may have lost their
//! last visit; once a day, all visits are read to find those that have not.
//!
//! Storing and deleting do not lock each other out: only agents are deleted that were not seen for
//! a whole day, and the deletion looks again at the day that storing has written meanwhile. The day
//! in between is for transactions around midnight and clocks that differ.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::StoreError;
use shortlink_core::visit::agent::Agent;

use super::erasure::overwrite;
use super::{agent_id, parts};
use crate::Store;
use crate::db::Db;
use crate::shared::DAY_MS;
use crate::sql::{IN_NUMBERS, sql};
use crate::value::{Row, args};

/// A pass that deletes the agents without visits, in portions.
#[derive(Clone, Copy, Debug)]
pub struct AgentsPass {
    part: Part,
    /// Agents were seen before this day if all their visits have been deleted by their age.
    expired: Option<i64>,
    /// Agents are checked that were noted and last seen before this day.
    unseen: i64,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    /// Deletes the agents of visits that were deleted by their age, behind this one.
    Expired(i64),
    /// Reads the agents of visits behind this one.
    Visits(i64),
    /// Deletes the noted agents that no visit has.
    Unused,
}

impl AgentsPass {
    /// Begins a pass. Visits before a moment have been deleted.
    pub fn new(now: Timestamp, deleted_before: Option<Timestamp>) -> Self {
        Self {
            part: Part::Expired(i64::MIN),
            expired: deleted_before.map(day_of),
            unseen: day_of(now) - 1,
        }
    }
}

fn day_of(moment: Timestamp) -> i64 {
    moment.as_millisecond().div_euclid(DAY_MS)
}

impl Store {
    /// Does a portion of a pass: looks at `limit` rows at most. Returns the number of deleted agents
    /// and the rest of the pass; `None` after the last portion.
    #[boxed]
    pub async fn forget_agents(
        &self,
        pass: AgentsPass,
        limit: u32,
    ) -> Result<(u64, Option<AgentsPass>), StoreError> {
        let operation = "delete unused user agents";
        let done = self.run_tx(operation, (pass, limit), |db, (pass, limit)| {
            Box::pin(async move {
                match pass.part {
                    Part::Expired(after) => forget_expired(db, pass, after, *limit).await,
                    Part::Visits(after) => check(db, pass, after, *limit).await,
                    Part::Unused => forget_unused(db, pass, *limit).await,
                }
            })
        });
        let (deleted, next) = done.await?;
        Ok((deleted, next.map(|part| AgentsPass { part, ..pass })))
    }
}

async fn forget_expired(
    db: &mut Db<'_>,
    pass: &AgentsPass,
    after: i64,
    limit: u32,
) -> Result<(u64, Option<Part>), sqlx::Error> {
    let Some(expired) = pass.expired else {
        return Ok((0, Some(Part::Visits(i64::MIN))));
    };
    // Visits may be left that are older than they should be: those behind others in SQLite, and those of
    // a day that is in use in PostgreSQL.
    let sql = sql!(
        "SELECT {min(day) AS day FROM visit_days|\
         min(to_date(substr(relname, 8), 'YYYYMMDD') - DATE '1970-01-01')::bigint AS day \
         FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid \
         WHERE inhparent = 'visits'::regclass AND relname ~ '^visits_[0-9]+$' \
         AND length(relname) = 15}"
    );
    let first: Option<i64> = db.get(sql, &[], |row| row.find("day")).await?;
    // A clock may have been a little behind that of a visit.
    let before = first.map_or(expired, |first| first.min(expired)) - 1;
    let sql = sql!("SELECT id, seen_day FROM visit_agents WHERE id > $1 ORDER BY id LIMIT $2");
    let read = |row: &Row| Ok((row.get("id")?, row.get("seen_day")?));
    let agents: Vec<(i64, i64)> = db.all(sql, args![after, limit], read).await?;
    let due = agents.iter().filter(|(_, seen_day)| *seen_day < before);
    let due: Vec<i64> = due.map(|(id, _)| *id).collect();
    let deleted = delete(db, due, before).await?;
    let next = agents.last().map(|(id, _)| Part::Expired(*id));
    Ok((deleted, next.or(Some(Part::Visits(i64::MIN)))))
}

/// Removes the notes of agents that visits have.
async fn check(
    db: &mut Db<'_>,
    pass: &AgentsPass,
    after: i64,
    limit: u32,
) -> Result<(u64, Option<Part>), sqlx::Error> {
    let sql = sql!("SELECT agent_id FROM visit_agent_checks WHERE day < $1 LIMIT 1");
    let read = |row: &Row| row.get::<i64>("agent_id");
    let noted = db.one(sql, args![pass.unseen], read).await?;
    if noted.is_none() {
        return Ok((0, None));
    }
    let sql = sql!("SELECT id, agent_id FROM visits WHERE id > $1 ORDER BY id LIMIT $2");
    let read = |row: &Row| Ok((row.get("id")?, row.get("agent_id")?));
    let visits: Vec<(i64, i64)> = db.all(sql, args![after, limit], read).await?;
    let Some((last, _)) = visits.last() else {
        return Ok((0, Some(Part::Unused)));
    };
    let agents: BTreeSet<i64> = visits.iter().map(|(_, agent)| *agent).collect();
    remove_notes(db, agents.into_iter().collect(), pass.unseen).await?;
    Ok((0, Some(Part::Visits(*last))))
}

async fn forget_unused(
    db: &mut Db<'_>,
    pass: &AgentsPass,
    limit: u32,
) -> Result<(u64, Option<Part>), sqlx::Error> {
    let sql =
        sql!("SELECT agent_id FROM visit_agent_checks WHERE day < $1 ORDER BY agent_id LIMIT $2");
    let read = |row: &Row| row.get("agent_id");
    let unused: Vec<i64> = db.all(sql, args![pass.unseen, limit], read).await?;
    if unused.is_empty() {
        return Ok((0, None));
    }
    let deleted = delete(db, unused.clone(), pass.unseen).await?;
    remove_notes(db, unused, pass.unseen).await?;
    Ok((deleted, Some(Part::Unused)))
}

/// Deletes those of some agents that were last seen before a day.
async fn delete(db: &mut Db<'_>, ids: Vec<i64>, before: i64) -> Result<u64, sqlx::Error> {
    let sql = sql!(
        "DELETE FROM visit_agents WHERE id",
        IN_NUMBERS,
        " AND seen_day < $2"
    );
    overwrite(db, true).await?;
    let deleted = db.run(sql, args![ids, before]).await;
    overwrite(db, false).await?;
    deleted
}

async fn remove_notes(db: &mut Db<'_>, ids: Vec<i64>, before: i64) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "DELETE FROM visit_agent_checks WHERE agent_id",
        IN_NUMBERS,
        " AND day < $2"
    );
    db.run(sql, args![ids, before]).await?;
    Ok(())
}

/// Notes agents that may have lost their last visit.
pub(super) async fn note_agents(
    db: &mut Db<'_>,
    ids: BTreeSet<i64>,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let rows = ids.into_iter().map(|id| [id.into(), day_of(now).into()]);
    let into = sql!("INSERT INTO visit_agent_checks (agent_id, day)");
    let end = sql!(" ON CONFLICT (agent_id) DO UPDATE SET day = excluded.day");
    let rows: Vec<_> = rows.collect();
    db.insert(into, ["bigint"; 2], end, rows.into_iter()).await
}

/// A user agent and its classification, behind the id of its row.
#[derive(Clone, Copy)]
pub(super) struct NewAgent<'a>(pub(super) i64, &'a str, &'a Agent);

impl<'a> From<(&'a str, &'a Agent)> for NewAgent<'a> {
    fn from((user_agent, agent): (&'a str, &'a Agent)) -> Self {
        Self(agent_id(user_agent, agent), user_agent, agent)
    }
}

/// Stores user agents with their classifications, as seen now.
pub(super) async fn insert_agents(
    db: &mut Db<'_>,
    agents: &[NewAgent<'_>],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    // By id: all transactions insert them in the same order.
    let mut agents: BTreeMap<i64, (&str, &Agent)> = agents
        .iter()
        .map(|NewAgent(id, user_agent, agent)| (*id, (*user_agent, *agent)))
        .collect();
    // Most of them were seen today, and need not even be bound.
    let today = day_of(now);
    let ids: Vec<i64> = agents.keys().copied().collect();
    let sql = sql!(
        "SELECT {value AS id FROM json_each($1) WHERE NOT EXISTS \
         (SELECT 1 FROM visit_agents WHERE visit_agents.id = value AND seen_day >= $2)|\
         id FROM unnest($1::bigint[]) AS asked (id) EXCEPT \
         SELECT id FROM visit_agents WHERE id = ANY($1) AND seen_day >= $2}"
    );
    let unseen: HashSet<i64> = db.all(sql, args![ids, today], |row| row.get("id")).await?;
    agents.retain(|id, _| unseen.contains(id));
    let rows = agents.into_iter().map(|(id, (user_agent, agent))| {
        let (browser, browser_version) = parts(agent.browser.as_ref());
        let (os, os_version) = parts(agent.os.as_ref());
        [
            id.into(),
            user_agent.into(),
            browser.into(),
            browser_version.into(),
            os.into(),
            os_version.into(),
            agent.device.kind.name().into(),
            agent.app.into(),
            today.into(),
        ]
    });
    let types = [
        "bigint", "text", "text", "text", "text", "text", "text", "text", "bigint",
    ];
    let into = sql!(
        "INSERT INTO visit_agents AS kept (id, user_agent, browser, browser_version, os, \
         os_version, device, app, seen_day)"
    );
    let end = sql!(
        " ON CONFLICT (id) DO UPDATE SET seen_day = excluded.seen_day \
         WHERE kept.seen_day < excluded.seen_day"
    );
    db.insert(into, types, end, rows).await
}
