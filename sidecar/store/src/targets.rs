//! Links by their target.
//!
//! A link has a hash of its target beside it, which an index has, if the process that created it finds links by their
//! target. Other processes create links without a hash, which costs them nothing. A job walks through all links and
//! fills in missing hashes. A request is answered only while none is missing.
//!
//! `target_fill` has the state of the walk: the place that it has reached, and whether links without a hash were created
//! since it began, so that another walk must follow. No walk misses such a link. In PostgreSQL, a transaction that
//! creates one holds [`CREATE_WITHOUT_HASH`] from before it looks at this state to its commit, and a walk begins
//! ([`begin`]) while no transaction does. A link that was committed before is visible to the walk; a transaction that takes
//! the lock later sees that the walk has begun, and marks it as stale. SQLite has one writer.
//!
//! A changed target always gets a hash, and a deleted link takes its hash along.

use shortlink_core::boxed;
use shortlink_core::ports::StoreError;
use shortlink_core::target::Target;

use super::Store;
use super::db::Db;
use super::rows::NewLink;
use super::sql::{FOR_UPDATE, IN_NUMBERS, Sql, sql};
use super::value::{Row, args};

/// The lock of transactions of PostgreSQL that create links without a hash, as a column of the statement that inserts
/// them.
pub(super) const CREATE_WITHOUT_HASH: &str =
    ", (SELECT pg_advisory_xact_lock_shared(7363, 1) IS NULL) AS is_locked";

/// Marks the walk as stale.
pub(super) const MARK_STALE: Sql =
    sql!("UPDATE target_fill SET is_stale = true WHERE NOT is_stale");

/// The state of the search by target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetSearch {
    /// This process does not: `links.find_by_target` is off.
    Off,
    /// Links lack their hashes, which a job fills in.
    Filling,
    /// All links are found.
    Complete,
}

/// Reports whether one of new links has a target of its own, but no hash of it.
pub(super) fn lack_hash(rows: &[NewLink<'_>]) -> bool {
    rows.iter()
        .any(|row| row.target_hash.is_none() && row.link.destination.target().is_some())
}

/// The state of the walk.
struct Fill {
    /// The id that it has come to; `None` at its end.
    place: Option<i64>,
    is_stale: bool,
}

impl Fill {
    const FIND: &str = "SELECT place, is_stale FROM target_fill";

    fn read(row: &Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            place: row.find("place")?,
            is_stale: row.get("is_stale")?,
        })
    }

    fn is_complete(&self) -> bool {
        self.place.is_none() && !self.is_stale
    }
}

impl Store {
    /// Returns the state of the search by target. Links that are created or changed later do not make a
    /// listing incomplete that begins now.
    #[boxed]
    pub async fn target_search(&self) -> Result<TargetSearch, StoreError> {
        if !self.creation.finds_targets {
            return Ok(TargetSearch::Off);
        }
        let find = self.one(
            "check the search by target",
            sql!(Fill::FIND),
            args![],
            Fill::read,
        );
        Ok(match find.await? {
            Some(fill) if fill.is_complete() => TargetSearch::Complete,
            _ => TargetSearch::Filling,
        })
    }

    /// Fills in the hashes that are missing among the next `limit` links; returns true if there may be more. Of
    /// several processes, one goes on where another one has stopped.
    #[boxed]
    pub async fn fill_targets(&self, limit: u32) -> Result<bool, StoreError> {
        self.run_tx("fill in the hashes of targets", limit, |db, limit| {
            Box::pin(fill(db, *limit))
        })
        .await
    }
}

async fn fill(db: &mut Db<'_>, limit: u32) -> Result<bool, sqlx::Error> {
    let walk = db.get(sql!(Fill::FIND), args![], Fill::read).await?;
    if walk.is_complete() {
        return Ok(false);
    }
    if walk.place.is_none() {
        begin(db).await?;
        return Ok(true);
    }
    // Another process that continues the walk waits until this one is done.
    let find = sql!(Fill::FIND, FOR_UPDATE);
    let Some(place) = db.get(find, args![], Fill::read).await?.place else {
        return Ok(true);
    };
    let page = sql!(
        "SELECT id, target IS NOT NULL AND target_hash IS NULL AS is_missing FROM links \
         WHERE id > $1 ORDER BY id LIMIT $2"
    );
    let read = |row: &Row| Ok((row.get("id")?, row.get("is_missing")?));
    let page: Vec<(i64, bool)> = db.all(page, args![place, limit], read).await?;
    let missing = page.iter().filter(|(_, is_missing)| *is_missing);
    let missing: Vec<i64> = missing.map(|(id, _)| *id).collect();
    if !missing.is_empty() {
        fill_some(db, missing).await?;
    }
    let place = page.last().map(|(id, _)| *id);
    let update = sql!("UPDATE target_fill SET place = $1");
    db.run(update, args![place]).await?;
    Ok(place.is_some() || walk.is_stale)
}

/// Begins a walk, when no transaction is in progress that creates links without a hash. Those that wait for this one hold
/// nothing that it needs.
async fn begin(db: &mut Db<'_>) -> Result<(), sqlx::Error> {
    let lock = sql!("SELECT {1|pg_advisory_xact_lock(7363, 1) IS NULL AS is_locked}");
    db.run(lock, args![]).await?;
    let update = sql!(
        "UPDATE target_fill SET place = $1, is_stale = false WHERE place IS NULL AND is_stale"
    );
    db.run(update, args![i64::MIN]).await?;
    Ok(())
}

/// Fills in the hashes of links, which are locked in the order of their ids, as all transactions do.
async fn fill_some(db: &mut Db<'_>, ids: Vec<i64>) -> Result<(), sqlx::Error> {
    let find = sql!(
        "SELECT id, target FROM links WHERE target IS NOT NULL AND target_hash IS NULL AND id",
        IN_NUMBERS,
        " ORDER BY id",
        FOR_UPDATE
    );
    let read = |row: &Row| {
        let target = Target::from_stored(row.get("target")?);
        Ok((row.get("id")?, target.hash()))
    };
    let hashes: Vec<(i64, i64)> = db.all(find, args![ids], read).await?;
    let update = sql!(
        "UPDATE links SET target_hash = found.hash FROM \
         {(SELECT value ->> 1 AS id, value ->> 2 AS hash FROM json_each($1)) AS found|\
         unnest($1::bigint[], $2::bigint[]) AS found (id, hash)} WHERE links.id = found.id"
    );
    let rows = hashes
        .into_iter()
        .map(|(id, hash)| [id.into(), hash.into()]);
    db.run_table(update, rows, &[]).await?;
    Ok(())
}
