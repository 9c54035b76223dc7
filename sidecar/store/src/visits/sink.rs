//! Visits that ClickHouse stores: what SQL decides of them, and the order of both commits.
//!
//! SQL commits first: which visits are new, their numbers, all counts that it has, and the rows for ClickHouse as a batch
//! (`visit_batches`). The rows are then inserted, and the batch is deleted. Until that is done, any process repeats it:
//! rows have keys, so a repetition changes nothing. [`shortlink_clickhouse`] has the other half.

pub(super) mod clicks;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use shortlink_clickhouse::{Batch, ClickHouse, Columns, Fault, LinkCount, VisitRow};
use shortlink_core::boxed;
use shortlink_core::ports::StoreError;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::{StoredVisit, Verdict};
use vocabulary::Code;

use self::clicks::Corrected;
use super::erasure::overwrite;
use super::keeping::add;
use super::moves::Moves;
use super::reclassify::{mark_stale, remove_empty};
use super::values::name;
use super::{Counts, EARLIER, LinkKey, marks, minutes, sketches, variants};
use crate::Store;
use crate::db::Db;
use crate::shared::failed;
use crate::sql::{sql, table};
use crate::value::{Row, Value, args, invalid};

/// The most batches that are read together.
const TOGETHER: u32 = 16;

/// The number of attempts to correct visits that others correct as well.
const ATTEMPTS: u32 = 20;

/// A batch that was stored and is to be inserted.
pub(super) struct Pending {
    pub(super) batch: Batch,
    /// The links with a limit that were visited.
    pub(super) limits: Vec<Limit>,
}

/// The human visits of a link with a limit.
pub(super) struct Limit {
    code: Code,
    most: i64,
    since: i64,
    visits: i64,
    /// The visits of batches before `since`, if they are known.
    earlier: Option<i64>,
}

/// The start of the process of the database's server, in microseconds since 1970; 0 for SQLite. Numbers are drawn only where
/// those of this process were compared with ClickHouse: it may lack the latest, as after a failover.
pub(super) const SERVER: &str =
    "{0|CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS bigint)}";

/// Numbers of batches and of visits that are left out where the database has lost some: ClickHouse may still get those that
/// another process had drawn.
const BATCHES_AHEAD: i64 = 1_000;
const NUMBERS_AHEAD: i64 = 1_000_000;

/// Numbers have to be compared with ClickHouse before another one is drawn.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database's server was replaced or restarted; its numbers of visits are compared with ClickHouse first"
)]
struct Behind;

/// Draws the number of a batch, and numbers for visits; returns the batch and the first number. Other transactions that
/// write visits wait for this one. An error unless [`Store::renew_ids`] has compared them with ClickHouse.
pub(super) async fn number(db: &mut Db<'_>, visits: usize) -> Result<(i64, i64), sqlx::Error> {
    let sql = sql!(
        "UPDATE visit_sink SET batches = batches + 1, numbers = numbers + $1 WHERE id = 1 AND server = ",
        SERVER,
        " RETURNING batches, numbers"
    );
    let visits = visits as i64;
    let read = |row: &Row| Ok((row.get::<i64>("batches")?, row.get::<i64>("numbers")?));
    let drawn = db.one(sql, args![visits], read).await?;
    let (batch, last) = drawn.ok_or_else(|| sqlx::Error::Configuration(Box::new(Behind)))?;
    let first = last - visits + 1;
    marks::mark(db, batch, first).await?;
    Ok((batch, first))
}

/// Visits are in ClickHouse, and this process would store them in SQL.
#[derive(Debug, thiserror::Error)]
#[error("visits are in ClickHouse now; set visits.clickhouse to its URL, and restart this process")]
struct Elsewhere;

/// Holds visits in SQL until the transaction ends; an error if they are in ClickHouse.
pub(super) async fn stay_in_sql(db: &mut Db<'_>) -> Result<(), sqlx::Error> {
    let sql = sql!("SELECT place FROM visit_sink WHERE id = 1{| FOR SHARE}");
    let place: String = db.get(sql, &[], |row| row.get("place")).await?;
    match &*place {
        "sql" => Ok(()),
        _ => Err(sqlx::Error::Configuration(Box::new(Elsewhere))),
    }
}

/// Stores a batch until ClickHouse has it.
pub(super) async fn store(
    db: &mut Db<'_>,
    batch: &Batch,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let sql = sql!("INSERT INTO visit_batches (id, stored_at, rows) VALUES ($1, $2, $3)");
    let rows = batch.to_stored();
    db.run(sql, args![batch.id, now, rows.as_slice()]).await?;
    Ok(())
}

/// Takes the counts of links out of counts, as contributions for ClickHouse.
pub(super) fn of_links<'a>(counts: &mut Counts<'a>) -> Vec<LinkCount<'a>> {
    let links = std::mem::take(&mut counts.links).into_iter();
    let links = links.filter_map(|((key, hour, class), (visits, last_at))| {
        let LinkKey::Code(code) = key else {
            return None;
        };
        Some(LinkCount {
            code,
            class,
            visits,
            last_at,
            is_earlier: hour == EARLIER,
        })
    });
    links.collect()
}

/// Adds the human visits among contributions to those of links with a limit. Links of `limited` are counted from now on.
async fn add_to_limits(
    db: &mut Db<'_>,
    counts: &[LinkCount<'_>],
    limited: &[(&str, i64)],
    batch: i64,
) -> Result<(), sqlx::Error> {
    let new = limited
        .iter()
        .map(|(code, _)| [(*code).into(), batch.into(), 0_i64.into()]);
    let into = sql!("INSERT INTO visit_limits (code, since, visits)");
    let end = sql!(" ON CONFLICT (code) DO NOTHING");
    db.insert(into, ["text", "bigint", "bigint"], end, new)
        .await?;
    let any = sql!("SELECT 1 AS any FROM visit_limits LIMIT 1");
    if db.one(any, &[], |_row| Ok(())).await?.is_none() {
        return Ok(());
    }
    let mut human: BTreeMap<&str, i64> = BTreeMap::new();
    for count in counts.iter().filter(|it| it.class == Class::Human.name()) {
        *human.entry(count.code).or_default() += count.visits;
    }
    let rows = human
        .iter()
        .map(|(code, visits)| [(*code).into(), (*visits).into()]);
    let sql = sql!(
        "UPDATE visit_limits SET visits = visit_limits.visits + new.visits FROM ",
        table!("new": 1 "code" "text", 2 "visits" "bigint"),
        " WHERE visit_limits.code = new.code"
    );
    db.run_table(sql, rows, &[]).await?;
    Ok(())
}

/// Counts the human visits of a batch for links with a limit, each with the limit; returns their state.
pub(super) async fn limits(
    db: &mut Db<'_>,
    counts: &[LinkCount<'_>],
    limited: &[(&str, i64)],
    batch: i64,
) -> Result<Vec<Limit>, sqlx::Error> {
    add_to_limits(db, counts, limited, batch).await?;
    if limited.is_empty() {
        return Ok(Vec::new());
    }
    let most: HashMap<&str, i64> = limited.iter().copied().collect();
    let sql = sql!(
        "SELECT code, since, visits, earlier FROM visit_limits WHERE code",
        crate::sql::IN_TEXTS
    );
    let codes: Vec<&str> = most.keys().copied().collect();
    let read = |row: &Row| {
        let code: &str = row.get("code")?;
        Ok(Limit {
            code: code.parse().map_err(|_error| invalid("code"))?,
            most: most.get(code).copied().ok_or_else(|| invalid("code"))?,
            since: row.get("since")?,
            visits: row.get("visits")?,
            earlier: row.find("earlier")?,
        })
    };
    db.all(sql, args![codes], read).await
}

/// The links that have reached their limit by the visits that are known.
pub(super) fn known_ended(limits: &[Limit]) -> Vec<Code> {
    let ended = limits
        .iter()
        .filter(|limit| limit.visits + limit.earlier.unwrap_or_default() >= limit.most);
    let mut ended: Vec<Code> = ended.map(|limit| limit.code).collect();
    ended.sort_unstable_by_key(Code::to_string);
    ended
}

impl Store {
    /// Has this database draw only ids that ClickHouse does not have: it may have been restored from a backup, or have lost
    /// transactions in a failover. Does nothing once that is done, until [`Store::doubt_ids`].
    pub(super) async fn renew_ids(&self, sink: &ClickHouse) -> Result<(), StoreError> {
        if self.has_new_ids.load(Ordering::Relaxed) {
            return Ok(());
        }
        let operation = "number visits";
        let (batch, number) = asked(operation, sink.last_ids().await)?;
        let sql = sql!(
            "UPDATE visit_sink SET batches = CASE WHEN batches < $1 THEN $1 + $3 ELSE batches END, \
             numbers = CASE WHEN numbers < $2 THEN $2 + $4 ELSE numbers END, server = ",
            SERVER,
            " WHERE id = 1"
        );
        let values = args![batch, number, BATCHES_AHEAD, NUMBERS_AHEAD];
        self.run(operation, sql, values).await?;
        self.has_new_ids.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// As [`Store::renew_ids`], also if the process of the database's server has become another one.
    pub(super) async fn check_ids(&self, sink: &ClickHouse) -> Result<(), StoreError> {
        let sql = sql!(
            "SELECT 1 AS any FROM visit_sink WHERE id = 1 AND server = ",
            SERVER
        );
        let known = self.one("check the numbers of visits", sql, &[], |_row| Ok(()));
        if known.await?.is_none() {
            self.doubt_ids();
        }
        self.renew_ids(sink).await
    }

    /// Has the next [`Store::renew_ids`] compare ids again.
    pub(super) fn doubt_ids(&self) {
        self.has_new_ids.store(false, Ordering::Relaxed);
    }

    /// Inserts a batch into ClickHouse that was stored.
    pub(super) async fn send(&self, sink: &ClickHouse, batch: &Batch) -> Result<(), StoreError> {
        let operation = "insert visits into ClickHouse";
        sink.insert(batch).await.map_err(failed(operation))?;
        self.run_tx(operation, batch.id, |db, id| {
            Box::pin(async move {
                // Erasure does not reach what is left of it in free pages of SQLite.
                overwrite(db, true).await?;
                let sql = sql!("DELETE FROM visit_batches WHERE id = $1");
                let deleted = db.run(sql, args![*id]).await;
                overwrite(db, false).await?;
                deleted
            })
        })
        .await?;
        Ok(())
    }

    /// Inserts all stored batches into ClickHouse, also those of other processes; does nothing if visits are in SQL.
    #[boxed]
    pub async fn flush_visits(&self) -> Result<(), StoreError> {
        self.flush_visits_since(i64::MAX).await
    }

    /// As [`Store::flush_visits`] for batches that were stored at least `idle_ms` ago: their process is gone, or its
    /// insertion has failed.
    #[boxed]
    pub async fn flush_abandoned_visits(
        &self,
        now: Timestamp,
        idle_ms: i64,
    ) -> Result<(), StoreError> {
        self.flush_visits_since(now.as_millisecond() - idle_ms)
            .await
    }

    async fn flush_visits_since(&self, before: i64) -> Result<(), StoreError> {
        match &self.sink {
            Some(sink) => self.flush_to(sink, before).await,
            None => Ok(()),
        }
    }

    /// Inserts batches that were stored up to a time into ClickHouse.
    pub(super) async fn flush_to(&self, sink: &ClickHouse, before: i64) -> Result<(), StoreError> {
        let sql =
            sql!("SELECT id, rows FROM visit_batches WHERE stored_at <= $1 ORDER BY id LIMIT $2");
        let read = |row: &Row| {
            let batch = Batch::from_stored(row.get("id")?, row.get("rows")?);
            batch.ok_or_else(|| invalid("rows"))
        };
        loop {
            let operation = "read batches of visits";
            let batches: Vec<Batch> = self
                .all(operation, sql, args![before, TOGETHER], read)
                .await?;
            for batch in &batches {
                self.send(sink, batch).await?;
            }
            if batches.len() < TOGETHER as usize {
                return Ok(());
            }
        }
    }

    /// The links that have reached their limit of visits. Those of earlier batches are asked for once.
    pub(super) async fn ended(
        &self,
        sink: &ClickHouse,
        mut limits: Vec<Limit>,
    ) -> Result<Vec<Code>, StoreError> {
        let operation = "count the visits of links";
        let mut unknown: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for limit in &limits {
            if limit.earlier.is_none() && limit.visits < limit.most {
                unknown
                    .entry(limit.since)
                    .or_default()
                    .push(limit.code.to_string());
            }
        }
        if !unknown.is_empty() {
            self.flush_visits().await?;
        }
        for (since, codes) in unknown {
            let found = sink
                .human_before(&codes, since)
                .await
                .map_err(failed(operation))?;
            for limit in &mut limits {
                if limit.since == since && limit.earlier.is_none() {
                    let visits = found.get(limit.code.as_str()).copied();
                    limit.earlier = Some(visits.unwrap_or_default());
                }
            }
            let rows: Vec<(String, i64)> = codes
                .into_iter()
                .map(|code| {
                    let visits = found.get(&code).copied().unwrap_or_default();
                    (code, visits)
                })
                .collect();
            self.run_tx(operation, (rows, since), |db, (rows, since)| {
                Box::pin(async move {
                    let rows = rows.iter().map(|(code, visits)| {
                        [Value::from(code), (*visits).into(), (*since).into()]
                    });
                    let sql = sql!(
                        "UPDATE visit_limits SET earlier = new.visits FROM ",
                        table!("new": 1 "code" "text", 2 "visits" "bigint", 3 "since" "bigint"),
                        " WHERE visit_limits.code = new.code AND visit_limits.since = new.since"
                    );
                    db.run_table(sql, rows, &[]).await
                })
            })
            .await?;
        }
        Ok(known_ended(&limits))
    }

    /// Corrects visits in ClickHouse that are as they were read, and the counts of both. Returns their number.
    ///
    /// Corrections follow each other: a transaction is given up if another one has corrected or erased visits since
    /// the rows were read.
    pub(super) async fn correct(
        &self,
        sink: &Arc<ClickHouse>,
        verdicts: Vec<(StoredVisit, Verdict)>,
        hours_since: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let operation = "classify visits again";
        let times = || verdicts.iter().map(|(visit, _)| visit.at.as_millisecond());
        let (Some(first), Some(last)) = (times().min(), times().max()) else {
            return Ok(0);
        };
        let numbers: Vec<i64> = verdicts.iter().map(|(visit, _)| visit.number).collect();
        let verdicts = Arc::new(verdicts);
        for _ in 0..ATTEMPTS {
            self.check_ids(sink).await?;
            self.erase_all(sink).await?;
            let sql = sql!("SELECT corrections, batches FROM visit_sink WHERE id = 1");
            let read = |row: &Row| Ok((row.get("corrections")?, row.get("batches")?));
            let known: Option<(i64, i64)> = self.one(operation, sql, &[], read).await?;
            let (known, batches) = known.unwrap_or_default();
            // All of these batches.
            self.flush_visits().await?;
            let rows = sink
                .rows_of(&numbers, (first, last))
                .await
                .map_err(failed(operation))?;
            let rows: HashMap<i64, VisitRow> =
                rows.into_iter().map(|row| (row.number, row)).collect();
            let same: Vec<_> = unchanged(&verdicts, &rows).map(|(it, _)| it).collect();
            let clicks = self
                .corrected_clicks(sink, &same, hours_since, batches)
                .await?;
            let args = Correction {
                verdicts: Arc::clone(&verdicts),
                rows,
                clicks,
                known,
                hours_since,
                now,
            };
            let done = self
                .run_tx(operation, args, |db, args| Box::pin(correct(db, args)))
                .await?;
            let Some((changed, batch)) = done else {
                continue;
            };
            if let Some(batch) = batch {
                self.send(sink, &batch).await?;
            }
            return Ok(changed);
        }
        Err(failed(operation)(Contended))
    }
}

/// Other processes have corrected visits all the time.
#[derive(Debug, thiserror::Error)]
#[error("other processes corrected or erased visits at each of {ATTEMPTS} attempts")]
struct Contended;

/// A correction of visits that were read.
struct Correction {
    verdicts: Arc<Vec<(StoredVisit, Verdict)>>,
    /// The rows of visits by their numbers.
    rows: HashMap<i64, VisitRow>,
    /// The clicks of links afterwards.
    clicks: Vec<Corrected>,
    /// The number of corrections when the rows were read.
    known: i64,
    hours_since: Option<Timestamp>,
    now: Timestamp,
}

/// Those of some visits that are as they were read, with their rows.
fn unchanged<'a>(
    verdicts: &'a [(StoredVisit, Verdict)],
    rows: &'a HashMap<i64, VisitRow>,
) -> impl Iterator<Item = (&'a (StoredVisit, Verdict), &'a VisitRow)> {
    verdicts.iter().filter_map(|verdict| {
        let row = rows.get(&verdict.0.number)?;
        (row.stored().as_ref() == Some(&verdict.0)).then_some((verdict, row))
    })
}

/// The transaction of a correction; `None` if visits have been corrected or erased since they were read, or numbers have to
/// be compared first.
async fn correct(
    db: &mut Db<'_>,
    correction: &Correction,
) -> Result<Option<(u64, Option<Batch>)>, sqlx::Error> {
    let same: Vec<_> = unchanged(&correction.verdicts, &correction.rows).collect();
    if same.is_empty() {
        return Ok(Some((0, None)));
    }
    let sql = sql!(
        "UPDATE visit_sink SET batches = batches + 1, corrections = corrections + 1 \
         WHERE id = 1 AND corrections = $1 \
         AND NOT EXISTS (SELECT 1 FROM visit_erasing WHERE is_done = 0) AND server = ",
        SERVER,
        " RETURNING batches"
    );
    let Some(id) = db
        .one(sql, args![correction.known], |row| {
            row.get::<i64>("batches")
        })
        .await?
    else {
        return Ok(None);
    };
    let moved = same
        .iter()
        .map(|(verdict, _)| (*verdict, LinkKey::Code(&verdict.0.code)));
    let mut moves = Moves::of(
        moved,
        correction.hours_since,
        minutes::since(correction.now),
    );
    let links = of_links(&mut moves.counts);
    add_to_limits(db, &links, &[], id).await?;
    // In the same order as counts of new visits.
    name(db, &mut moves.counts).await?;
    add(db, &moves.counts).await?;
    remove_empty(db, &moves.counts).await?;
    variants::correct(db, same.iter().map(|(verdict, _)| *verdict)).await?;
    sketches::add(db, &moves.counts.visitors).await?;
    mark_stale(db, &moves.stale).await?;
    let corrected = same
        .iter()
        .map(|((_, verdict), row)| row.judged(verdict, id));
    let corrected: Vec<VisitRow> = corrected.collect();
    let visits = corrected.iter().map(Columns::from);
    let clicks = correction.clicks.iter().map(Corrected::row);
    let batch = Batch::new(id, visits, links, clicks);
    store(db, &batch, correction.now).await?;
    Ok(Some((same.len() as u64, Some(batch))))
}

/// An error of ClickHouse in an operation.
pub(super) fn asked<T>(operation: &'static str, answer: Result<T, Fault>) -> Result<T, StoreError> {
    answer.map_err(failed(operation))
}
