//! The log of changes: those that wait for Redis, and for weeks those that were applied.
//!
//! Each change has a place in one order that SQL decides. Places are given when a change is stored, so in
//! PostgreSQL a transaction may end after another one with a later place. [`Store::places`] says up to
//! which place all have ended.

use std::collections::BTreeMap;

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::link::Link;
use shortlink_core::ports::{
    Adopted, Behind, DataSet, OutboxSpan, Overdue, Places, Receipt, Settled, StoreError, Waiting,
};
use vocabulary::CampaignId;

use super::campaigns::find_campaigns;
use super::db::Db;
use super::rows::find_by_id;
use super::sql::{FOR_UPDATE, Sql, relaxed, sql, table};
use super::value::{Row, Value, args};
use super::{Engine, Store, outbox};

/// The most changes that are read together.
const MAX_ROWS: u32 = 1024;

/// The most changes that one transaction forgets.
const MAX_FORGOTTEN: u32 = 10_000;

const COLUMNS: &str = "place, link_id, campaign_id, revision";

/// Of changes that may end the redirects of a link or campaign, or of all others.
const WAITING: Sql = sql!(
    "SELECT ",
    COLUMNS,
    " FROM changes WHERE applied_at IS NULL AND restricts = $4 \
     AND place > $1 AND place <= $2 ORDER BY place LIMIT $3"
);

const REPLAY: Sql = sql!(
    "SELECT ",
    COLUMNS,
    " FROM changes WHERE place > $1 AND place <= $2 ORDER BY place LIMIT $3"
);

const REPLAY_RESTRICTING: Sql = sql!(
    "SELECT ",
    COLUMNS,
    " FROM changes WHERE restricts{ = 1} AND place > $1 AND place <= $2 \
     ORDER BY place LIMIT $3"
);

/// The last place that was given.
const LAST: Sql = sql!(
    "{SELECT seq AS last FROM sqlite_sequence WHERE name = 'changes'|\
     SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last FROM changes_place_seq}"
);

/// The transactions of SQLite end in the order in which they begin.
const SNAPSHOT: Sql = sql!(
    "SELECT {0|pg_snapshot_xmin(now.snapshot)::text::bigint} AS oldest, \
     {0|pg_snapshot_xmax(now.snapshot)::text::bigint} AS next, \
     (SELECT generation FROM index_state) AS generation, \
     (SELECT min(place) FROM changes WHERE applied_at IS NULL AND restricts{ = 1}) AS restricting, \
     (SELECT min(place) FROM changes WHERE applied_at IS NULL AND {restricts = 0|NOT restricts}) AS other\
     {| FROM pg_current_snapshot() AS now (snapshot)}"
);

const STATE: Sql = sql!(
    "SELECT generation, run_ids, forgotten, compared FROM index_state",
    FOR_UPDATE
);

/// Rows that are neither of the last moments by this clock, nor of those to come: clocks differ, and are set.
const IS_OVERDUE: &str = "(enqueued_at <= $1 OR enqueued_at > $2)";

/// Generations of a database begin at its identity times this number.
const GENERATIONS: u64 = 1 << 20;

/// Transactions that had places when [`Store::places`] looked: all up to `last` have ended once no transaction
/// before `next` is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Horizon {
    ended: u64,
    last: u64,
    next: i64,
}

impl Store {
    /// Reads changes that wait behind a place up to another one, as many as are published together: those that restrict,
    /// or all others.
    #[boxed]
    pub async fn waiting_changes(
        &self,
        after: u64,
        up_to: u64,
        is_restricting: bool,
    ) -> Result<Waiting, StoreError> {
        let args = (after, up_to, is_restricting);
        self.read("read the log of changes", args, |db, args| {
            let (after, up_to, is_restricting) = *args;
            Box::pin(async move {
                read(db, WAITING, args![after, up_to, MAX_ROWS, is_restricting]).await
            })
        })
        .await
    }

    /// Reads changes behind a place up to another one, whether they were applied or not, in their order;
    /// of all or only of those that restrict.
    #[boxed]
    pub async fn replayed_changes(
        &self,
        after: u64,
        up_to: u64,
        is_restricting: bool,
    ) -> Result<Waiting, StoreError> {
        let args = (after, up_to, is_restricting);
        self.read("read the log of changes", args, |db, args| {
            let (after, up_to, is_restricting) = *args;
            let sql = if is_restricting {
                REPLAY_RESTRICTING
            } else {
                REPLAY
            };
            Box::pin(async move { read(db, sql, args![after, up_to, MAX_ROWS]).await })
        })
        .await
    }

    /// Campaigns with changes that wait.
    #[boxed]
    pub async fn waiting_campaigns(&self) -> Result<Vec<CampaignId>, StoreError> {
        let sql = sql!(
            "SELECT DISTINCT campaign_id FROM changes \
             WHERE applied_at IS NULL AND campaign_id IS NOT NULL"
        );
        self.all("read the log of changes", sql, args![], |row| {
            row.get("campaign_id")
        })
        .await
    }

    /// Notes at `now` what Redis has confirmed. New links leave the outbox, changes stay in the log as
    /// applied. A link that has changed again meanwhile stays waiting. `false`, and nothing is noted, if
    /// the generation is not that of the data set any more.
    #[boxed]
    pub async fn settle(&self, settled: Settled, now: Timestamp) -> Result<bool, StoreError> {
        let mut spans: Vec<OutboxSpan> = settled
            .receipts
            .iter()
            .flat_map(|it| &it.0)
            .copied()
            .collect();
        let mut campaigns = settled.campaigns.clone();
        // All transactions settle rows in the same order.
        spans.sort_unstable_by_key(|span| (span.first, span.last));
        campaigns.sort_unstable_by_key(|campaign| campaign.id);
        let args = (settled.generation, spans, campaigns, now);
        let is_done = self
            .run_tx("settle what was published", args, |db, args| {
                Box::pin(async move {
                    let (generation, spans, campaigns, now) = args;
                    // Held until the end: a data set that is adopted meanwhile waits, and then sees what was
                    // settled.
                    let sql = sql!("SELECT generation FROM index_state{| FOR SHARE}");
                    let present: u64 = db.get(sql, args![], |row| row.get("generation")).await?;
                    if present != *generation {
                        return Ok(false);
                    }
                    let (new, changed): (Vec<_>, Vec<_>) =
                        spans.iter().partition(|span| span.revision == 1);
                    outbox::remove(db, new.into_iter()).await?;
                    let links = changed
                        .iter()
                        .map(|span| [span.first.into(), span.revision.into()]);
                    db.run_table(SETTLE_LINKS, links, args![*now]).await?;
                    let campaigns = campaigns
                        .iter()
                        .map(|it| [it.id.into(), it.revision.into()]);
                    db.run_table(SETTLE_CAMPAIGNS, campaigns, args![*now])
                        .await?;
                    Ok(true)
                })
            })
            .await?;
        if is_done && let Engine::Postgres(store) = &self.engine {
            store.turn.note_settled(&settled.receipts).await;
        }
        Ok(is_done)
    }

    /// Settles new links that were published. They cannot be buried: where a record is missing, the fallback
    /// answers. Changes stay until the process that knows the data set has published them.
    #[boxed]
    pub async fn settle_new(&self, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        let spans = receipts.into_iter().flat_map(|it| it.0);
        let mut spans: Vec<OutboxSpan> = spans.filter(|span| span.revision == 1).collect();
        spans.sort_unstable_by_key(|span| (span.first, span.last));
        self.run_tx("settle what was published", spans, |db, spans| {
            Box::pin(outbox::remove(db, spans.iter()))
        })
        .await
    }

    /// Adopts a data set of Redis: as the one that was written to so far, or as one that may lack
    /// changes, or hold those of another database. Then a new generation begins.
    #[boxed]
    pub async fn adopt(&self, seen: DataSet) -> Result<Adopted, StoreError> {
        let [a, b, c, d, ..] = self.code_key.derive("index generations");
        let args = (u64::from(u32::from_le_bytes([a, b, c, d])), seen);
        self.run_tx("adopt a data set", args, |db, (identity, seen)| {
            Box::pin(adopt(db, *identity, seen))
        })
        .await
    }

    /// Reads up to which place changes have ended and been applied.
    #[boxed]
    pub async fn places(&self) -> Result<Places, StoreError> {
        let horizon = *self.horizon.lock();
        let (mut places, next, oldest) = self
            .read("read the order of changes", (), |db, ()| {
                Box::pin(async move {
                    // The order matters: a transaction has its number before it gets a place, so one with a place
                    // up to `last` that has not ended is known to the snapshot.
                    let last = last(db).await?;
                    let read = |row: &Row| {
                        let waiting = [row.find("restricting")?, row.find("other")?];
                        let places = Places {
                            last,
                            ended: 0,
                            first_waiting: waiting.into_iter().flatten().min(),
                            generation: row.get("generation")?,
                        };
                        Ok((places, row.get::<i64>("next")?, row.get::<i64>("oldest")?))
                    };
                    db.get(SNAPSHOT, args![], read).await
                })
            })
            .await?;
        // An older database than before: a copy that lagged has taken over.
        let has_gone_back = places.last < horizon.last || next < horizon.next;
        let horizon = if has_gone_back {
            Horizon::default()
        } else {
            horizon
        };
        places.ended = horizon.ended;
        if has_gone_back || oldest >= horizon.next {
            // SQLite's numbers are all 0.
            places.ended = if next == 0 { places.last } else { horizon.last };
            *self.horizon.lock() = Horizon {
                ended: places.ended,
                last: places.last,
                next,
            };
        }
        Ok(places)
    }

    /// Counts pending rows that were stored by clocks outside of a span of time, no further than `most`.
    #[boxed]
    pub async fn overdue(
        &self,
        since: Timestamp,
        until: Timestamp,
        most: u32,
    ) -> Result<Overdue, StoreError> {
        let sql = sql!(
            "SELECT count(*) AS waiting, min(enqueued_at) AS since FROM (SELECT enqueued_at FROM changes \
             WHERE applied_at IS NULL AND ",
            IS_OVERDUE,
            " UNION ALL SELECT enqueued_at FROM outbox WHERE ",
            IS_OVERDUE,
            " LIMIT $3) AS waiting"
        );
        let read = |row: &Row| {
            Ok(Overdue {
                rows: row.get("waiting")?,
                since: row.find("since")?,
            })
        };
        let values = args![since, until, most];
        let counted = self.one("count what is not published", sql, values, read);
        Ok(counted.await?.unwrap_or_default())
    }

    /// Forgets changes that were applied before a moment, some of the first; returns true if more may follow.
    #[boxed]
    pub async fn forget_changes(&self, before: Timestamp) -> Result<bool, StoreError> {
        self.run_tx("forget old changes", before, |db, before| {
            Box::pin(async move {
                let sql = sql!(
                    "SELECT max(place) AS last, count(*) AS rows FROM (SELECT place, applied_at FROM changes \
                     ORDER BY place LIMIT $2) AS first WHERE applied_at < $1"
                );
                let read = |row: &Row| Ok((row.find::<i64>("last")?, row.get::<i64>("rows")?));
                let (last, rows) = db.get(sql, args![*before, MAX_FORGOTTEN], read).await?;
                let Some(last) = last else {
                    return Ok(false);
                };
                let sql = sql!("DELETE FROM changes WHERE place <= $1 AND applied_at < $2");
                db.run(sql, args![last, *before]).await?;
                let sql = sql!("UPDATE index_state SET forgotten = {max|greatest}(forgotten, $1)");
                db.run(sql, args![last]).await?;
                Ok(rows == i64::from(MAX_FORGOTTEN))
            })
        })
        .await
    }

    /// Counts the changes that a data set may lack although they were applied to another one.
    #[boxed]
    pub async fn behind(&self, seen: &DataSet) -> Result<Behind, StoreError> {
        let state = self.read("read the state of the index", (), |db, ()| {
            Box::pin(async move {
                let sql = sql!("SELECT generation, replay_to, compared FROM index_state");
                let read = |row: &Row| {
                    let generation: u64 = row.get("generation")?;
                    let compared: u64 = row.get("compared")?;
                    let replay_to: u64 = row.get("replay_to")?;
                    Ok((generation, replay_to, compared < generation))
                };
                Ok((db.get(sql, args![], read).await?, last(db).await?))
            })
        });
        let ((present, replay_to, is_incomplete), last) = state.await?;
        let (generation, watermark) = seen.standing.unwrap_or_default();
        let target = if generation == present {
            replay_to
        } else {
            last
        };
        Ok(Behind {
            changes: target.saturating_sub(watermark),
            is_incomplete,
        })
    }

    /// The generation whose data set is to be compared with SQL as a whole.
    #[boxed]
    pub async fn incomplete_generation(&self) -> Result<Option<u64>, StoreError> {
        let sql = sql!("SELECT generation FROM index_state WHERE compared < generation");
        self.one("read the state of the index", sql, args![], |row| {
            row.get("generation")
        })
        .await
    }

    /// Notes that the data set of a generation was compared with SQL as a whole.
    #[boxed]
    pub async fn note_compared(&self, generation: u64) -> Result<(), StoreError> {
        let sql = sql!("UPDATE index_state SET compared = $1 WHERE generation = $1");
        self.run("note a comparison", sql, args![generation])
            .await?;
        Ok(())
    }
}

/// Settles changes of links or campaigns up to a revision of each.
macro_rules! settle {
    ($id:literal) => {
        sql!(
            "UPDATE changes SET applied_at = $3 FROM ",
            table!("done": 1 $id "bigint", 2 "revision" "bigint"),
            "{|, ",
            relaxed!(),
            "} WHERE changes.", $id, " = done.", $id,
            " AND changes.revision <= done.revision AND changes.applied_at IS NULL"
        )
    };
}

const SETTLE_LINKS: Sql = settle!("link_id");
const SETTLE_CAMPAIGNS: Sql = settle!("campaign_id");

/// Has changed links wait, in the transaction that has stored them.
pub(super) async fn append<'a>(
    db: &mut Db<'_>,
    changed: impl ExactSizeIterator<Item = &'a OutboxSpan>,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "INSERT INTO changes (link_id, revision, restricts, enqueued_at) \
         SELECT link_id, revision, EXISTS (SELECT 1 FROM links WHERE id = link_id AND \
         (revoked_at IS NOT NULL OR paused_at IS NOT NULL OR valid_until IS NOT NULL)), $3 FROM ",
        table!("new": 1 "link_id" "bigint", 2 "revision" "bigint"),
        " WHERE true"
    );
    let rows = changed.map(|span| [span.first.into(), span.revision.into()]);
    db.run_table(sql, rows, args![now]).await?;
    Ok(())
}

/// The row of `index_state`.
struct State {
    generation: u64,
    run_ids: String,
    forgotten: u64,
    compared: u64,
}

async fn last(db: &mut Db<'_>) -> Result<u64, sqlx::Error> {
    let last = db.one(LAST, args![], |row| row.get("last")).await?;
    Ok(last.unwrap_or_default())
}

async fn adopt(db: &mut Db<'_>, identity: u64, seen: &DataSet) -> Result<Adopted, sqlx::Error> {
    let read = |row: &Row| {
        Ok(State {
            generation: row.get("generation")?,
            run_ids: row.get("run_ids")?,
            forgotten: row.get("forgotten")?,
            compared: row.get("compared")?,
        })
    };
    let state: State = db.get(STATE, args![], read).await?;
    let generation = state.generation;
    let last = last(db).await?;
    // Another database's generations are of no use here.
    let ours = seen
        .standing
        .filter(|(standing, _)| standing / GENERATIONS == identity);
    let (standing, watermark) = ours.unwrap_or_default();
    // A watermark that no change of this database has reached: the database is an older one than before.
    let is_same = seen.is_whole
        && standing == generation
        && state.run_ids == seen.incarnation
        && watermark <= last;
    if generation > 0 && is_same {
        return Ok(Adopted {
            generation,
            watermark,
            // Changes are applied once; the last ones before a pause may have missed their mark.
            replay_to: last,
            is_incomplete: state.compared < generation,
            is_new: false,
        });
    }
    let watermark = watermark.min(last);
    let is_first = generation == 0 && seen.standing.is_none();
    let is_emptied = seen.standing.is_none() && seen.is_nearly_empty;
    let is_old = ours.is_none() || watermark < state.forgotten || state.compared < generation;
    let is_incomplete = is_old && !is_first && !is_emptied;
    let generation = generation.max(standing).max(identity * GENERATIONS) + 1;
    let sql = sql!(
        "UPDATE index_state SET generation = $1, run_ids = $2, replay_to = $3, \
         compared = CASE WHEN $4 THEN compared ELSE $1 END"
    );
    db.run(
        sql,
        args![generation, &seen.incarnation, last, is_incomplete],
    )
    .await?;
    Ok(Adopted {
        generation,
        watermark,
        replay_to: last,
        is_incomplete,
        is_new: true,
    })
}

/// Reads changes, and the present state of their links and campaigns. Deleted links are only settled.
async fn read(db: &mut Db<'_>, sql: Sql, values: &[Value<'_>]) -> Result<Waiting, sqlx::Error> {
    let read = |row: &Row| {
        let (link, campaign) = (
            row.find::<i64>("link_id")?,
            row.find::<CampaignId>("campaign_id")?,
        );
        Ok((
            row.get::<u64>("place")?,
            link,
            campaign,
            row.get::<u64>("revision")?,
        ))
    };
    let rows: Vec<(u64, Option<i64>, Option<CampaignId>, u64)> = db.all(sql, values, read).await?;
    let ids = rows.iter().filter_map(|(_, link, ..)| *link).collect();
    let found: Vec<(i64, Link)> = find_by_id(db, ids).await?;
    let mut ids: Vec<CampaignId> = rows
        .iter()
        .filter_map(|(_, _, campaign, _)| *campaign)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let mut waiting = Waiting {
        campaigns: find_campaigns(db, &ids).await?,
        last: rows.iter().map(|(place, ..)| *place).max(),
        ..Waiting::default()
    };
    // A change of a deleted link is settled with its own revision.
    let mut revisions: BTreeMap<i64, u64> = BTreeMap::new();
    for (_, link, _, revision) in &rows {
        if let Some(id) = link {
            let known = revisions.entry(*id).or_default();
            *known = (*known).max(*revision);
        }
    }
    for (id, link) in found {
        let known = revisions.entry(id).or_default();
        *known = (*known).max(link.revision);
        waiting.links.push(link);
    }
    let spans = revisions.into_iter().map(|(id, revision)| OutboxSpan {
        first: id,
        last: id,
        revision,
    });
    waiting.receipt = Receipt(spans.collect());
    Ok(waiting)
}
