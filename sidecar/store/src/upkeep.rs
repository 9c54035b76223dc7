//! Scans of all links, for the repair of Redis and the removal of dead links.
//!
//! Every operation has bounded work and reads through indices only, so that it can be called while
//! links are created and changed.

use std::collections::HashSet;

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{End, EndPlace, EndedPage, Kept, Page, Place, Slice, StoreError};
use shortlink_core::records::Records;
use vocabulary::Code;

use crate::Store;
use crate::db::Db;
use crate::lines::{line, push_lines};
use crate::rows::{columns, find_by_id, known_ids, read};
use crate::shared::LONGEST_SPAN;
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::value::{Row, args};

const WALK: Sql = sql!(
    "SELECT count(*) AS links, max(id) AS last, \
     {group_concat(line, char(10))|string_agg(line, chr(10))} AS lines FROM (SELECT id, ",
    line!(),
    " AS line FROM links WHERE id > $1 AND id <= $3 ORDER BY id LIMIT $2) AS page"
);

/// Reads in the order of the index ([`Db::in_order`]).
const WALK_BY_EXPIRY: Sql = sql!(
    "SELECT valid_until AS at, id FROM links {INDEXED BY links_by_end }\
     WHERE valid_until BETWEEN $1 AND $3 AND (valid_until, id) > ($1, $2) \
     ORDER BY valid_until, id LIMIT $4"
);

const WALK_BY_REVOCATION: Sql = sql!(
    "SELECT revoked_at AS at, id FROM links {INDEXED BY links_by_revocation }\
     WHERE {revoked_at IS NOT NULL AND }revoked_at BETWEEN $1 AND $3 AND (revoked_at, id) > ($1, $2) \
     ORDER BY revoked_at, id LIMIT $4"
);

/// A condition on links that do not wait for Redis.
const NOT_WAITING: &str = " AND NOT EXISTS \
     (SELECT 1 FROM outbox WHERE first_id = links.id AND last_id = links.id) AND NOT EXISTS \
     (SELECT 1 FROM changes WHERE link_id = links.id AND applied_at IS NULL)";

/// The times are arguments of a function, so that PostgreSQL reads links by their ids only. With statistics from before
/// links ended, it would expect next to nothing in the indices of ended links, and read a whole one for each id.
const FIND_DEAD: Sql = sql!(
    "SELECT ",
    columns!(),
    " FROM links WHERE id",
    IN_NUMBERS,
    " AND (coalesce(revoked_at <= $2, false) OR coalesce(valid_until <= $3, false)) AND updated_at <= $2",
    NOT_WAITING
);

const FIND_RECORDS: Sql = sql!(
    "SELECT ",
    columns!(),
    ", EXISTS (SELECT 1 FROM outbox WHERE first_id BETWEEN links.id - $2 AND links.id \
     AND last_id >= links.id{| AND ids IS NULL}) \
     {|OR id IN (SELECT unnest(ids) FROM outbox WHERE ids IS NOT NULL) }\
     OR EXISTS (SELECT 1 FROM changes WHERE link_id = links.id AND applied_at IS NULL) \
     AS is_waiting FROM links WHERE id",
    IN_NUMBERS
);

/// Of many codes hardly any has no link, so that this returns few rows.
const FIND_UNLINKED: Sql = sql!(
    "SELECT wanted.value AS id FROM {json_each($1)|unnest($1::bigint[])} AS wanted{|(value)} \
     WHERE NOT EXISTS (SELECT 1 FROM links WHERE id = wanted.value)"
);

const FIND_REMOVED: Sql = sql!("SELECT id FROM removed_links WHERE id", IN_NUMBERS);

impl Store {
    /// Reads the records of the first `limit` links behind a place, in the order of the store's
    /// own numbers ([`Place::START`] is before all). Links that are created meanwhile may be left
    /// out.
    #[boxed]
    pub async fn records_after(
        &self,
        after: Place,
        limit: u32,
        now: Timestamp,
    ) -> Result<Page, StoreError> {
        self.records_between(after, Place(i64::MAX), limit, now)
            .await
    }

    /// The same, up to the place `until`.
    #[boxed]
    pub async fn records_between(
        &self,
        after: Place,
        until: Place,
        limit: u32,
        now: Timestamp,
    ) -> Result<Page, StoreError> {
        let args = (after, until, limit, now);
        self.read("read the records of links", args, |db, args| {
            let (after, until, limit, now) = *args;
            Box::pin(walk(db, (after, until), limit, now))
        })
        .await
    }

    /// Reads the records of links by their codes, all as of one moment. Codes without a link are
    /// left out; the order is undefined.
    #[boxed]
    pub async fn records_of(&self, codes: &[Code], now: Timestamp) -> Result<Kept, StoreError> {
        let args = (codes, now);
        self.read("find the records of links", args, |db, (codes, now)| {
            Box::pin(async move {
                let ids = known_ids(db, codes).await?;
                let ids: Vec<i64> = ids.into_iter().flatten().collect();
                let waits = |row: &Row| Ok((read(row)?, row.get("is_waiting")?));
                let found: Vec<(_, bool)> = db
                    .all(FIND_RECORDS, args![ids, LONGEST_SPAN], waits)
                    .await?;
                let (links, waiting): (Vec<_>, Vec<_>) = found.into_iter().unzip();
                let mut records = Records::at(*now);
                for link in links {
                    records.push(&link);
                }
                Ok(Kept { records, waiting })
            })
        })
        .await
    }

    /// The places of those codes that no link has, nor a deleted one whose code is not free yet;
    /// in ascending order.
    #[boxed]
    pub async fn codes_without_link(&self, codes: &[Code]) -> Result<Vec<usize>, StoreError> {
        self.read("find codes without a link", codes, |db, codes| {
            Box::pin(async move {
                let ids = known_ids(db, codes).await?;
                let known: Vec<i64> = ids.iter().copied().flatten().collect();
                let id = |row: &Row| row.get::<i64>("id");
                let mut free: HashSet<i64> = db.all(FIND_UNLINKED, args![known], id).await?;
                if !free.is_empty() {
                    let unlinked: Vec<i64> = free.iter().copied().collect();
                    let removed: Vec<i64> = db.all(FIND_REMOVED, args![unlinked], id).await?;
                    for id in removed {
                        free.remove(&id);
                    }
                }
                let places = ids.iter().enumerate();
                let missing = places.filter(|(_, id)| id.is_none_or(|id| free.contains(&id)));
                Ok(missing.map(|(place, _)| place).collect())
            })
        })
        .await
    }

    /// Reads the records of the links of a lane among the first ones whose expiry lies behind `after` and not behind
    /// `now`, in the order of their expiries. About `limit` of them belong to the lane.
    #[boxed]
    pub async fn records_expired(
        &self,
        after: EndPlace,
        now: Timestamp,
        limit: u32,
        slice: Slice,
    ) -> Result<EndedPage, StoreError> {
        let args = (after, now, limit, slice);
        self.read("read expired links", args, |db, args| {
            Box::pin(async move {
                let (after, now, limit, slice) = *args;
                let (ids, next) = expired(db, after, now, limit, slice).await?;
                let mut records = Records::at(now);
                for (_, link) in find_by_id::<Vec<_>>(db, ids).await? {
                    records.push(&link);
                }
                Ok(EndedPage { records, next })
            })
        })
        .await
    }

    /// Reads the records of the links of a lane among the first ones behind `after` that were revoked before a moment, or
    /// have expired, in the order of their revocations or expiries. Leaves out those that were changed since, or wait for
    /// Redis. About `limit` of them belong to the lane.
    #[boxed]
    pub async fn records_dead_since(
        &self,
        before: Timestamp,
        (end, after): (End, EndPlace),
        limit: u32,
        slice: Slice,
        now: Timestamp,
    ) -> Result<EndedPage, StoreError> {
        let args = (before, end, after, limit, slice, now);
        self.read("find dead links", args, |db, args| {
            Box::pin(async move {
                let (before, end, after, limit, slice, now) = *args;
                let (walk, until) = match end {
                    End::Revocation => (WALK_BY_REVOCATION, before.as_millisecond()),
                    End::Expiry => (WALK_BY_EXPIRY, before.as_second()),
                };
                let (ids, next) = ended(db, walk, after, until, limit, slice).await?;
                let mut records = Records::at(now);
                if !ids.is_empty() {
                    let values = args![ids, before, before.as_second()];
                    for link in db.all::<_, Vec<_>>(FIND_DEAD, values, read).await? {
                        records.push(&link);
                    }
                }
                Ok(EndedPage { records, next })
            })
        })
        .await
    }
}

/// The ids of a lane's links among the next ones whose expiry is not behind a time, and the place of the last of all of
/// them.
pub(super) async fn expired(
    db: &mut Db<'_>,
    after: EndPlace,
    until: Timestamp,
    limit: u32,
    slice: Slice,
) -> Result<(Vec<i64>, Option<EndPlace>), sqlx::Error> {
    ended(db, WALK_BY_EXPIRY, after, until.as_second(), limit, slice).await
}

/// The ids of a lane's links among the next ones of an index, and the place of the last of all of them.
async fn ended(
    db: &mut Db<'_>,
    walk: Sql,
    after: EndPlace,
    until: i64,
    limit: u32,
    slice: Slice,
) -> Result<(Vec<i64>, Option<EndPlace>), sqlx::Error> {
    let of_all = limit.saturating_mul(slice.of);
    let values = [after.at, after.place.0, until, i64::from(of_all)];
    let read = |row: &Row| Ok((row.get("at")?, row.get::<i64>("id")?));
    let found: Vec<(i64, i64)> = db.in_order(walk, values, read).await?;
    let next = found.last().map(|(at, id)| EndPlace {
        at: *at,
        place: Place(*id),
    });
    let ids = found.into_iter().map(|(_, id)| id);
    Ok((ids.filter(|id| slice.has(*id)).collect(), next))
}

async fn walk(
    db: &mut Db<'_>,
    (after, until): (Place, Place),
    limit: u32,
    now: Timestamp,
) -> Result<Page, sqlx::Error> {
    let mut records = Records::at(now);
    let read_lines = |row: &Row| {
        let (count, last) = (row.get::<i64>("links")?, row.find::<i64>("last")?);
        Ok((count, last, row.find::<String>("lines")?))
    };
    let (count, last, lines) = db
        .get(WALK, args![after.0, limit, until.0], read_lines)
        .await?;
    if let Some(lines) = lines {
        records.reserve(count as usize, lines.len());
        let others = push_lines(&mut records, &lines, count)?;
        for (_, link) in find_by_id::<Vec<_>>(db, others).await? {
            records.push(&link);
        }
    }
    let is_last = count < i64::from(limit);
    Ok(Page {
        records,
        next: last.filter(|_| !is_last).map(Place),
    })
}

#[cfg(test)]
mod tests;
