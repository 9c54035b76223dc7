//! Deduplication: identical requests get the same link.
//!
//! A transaction locks the row of a digest before it decides anything: a new row by its insertion,
//! which other insertions wait for, an existing one by `FOR UPDATE`. The second transaction finds the
//! committed result of the first. SQLite has one writer, which needs no lock.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use shortlink_core::link::Link;
use shortlink_core::ports::{Identical, Identity, RequestDigest};
use vocabulary::Code;

use super::db::Db;
use super::rows::{find_by_id, ids_of, known_ids};
use super::sql::{FOR_UPDATE, Sql, sql};
use super::value::{Row, Value, args};

/// Digests that are locked until the end of the transaction.
pub(super) struct Locked {
    /// The ids that the new links have or would have.
    ids: Vec<i64>,
    /// Those that have a row only since now.
    new: HashSet<RequestDigest>,
    /// The others' links, each with its id.
    pub(super) found: HashMap<RequestDigest, (i64, Identical)>,
}

impl Locked {
    /// Has the digests of links that were stored found as these, renews the windows of those that were found, and
    /// deletes the new rows of those whose codes are taken, which belong to other requests; all are given by their
    /// places.
    pub(super) async fn settle(
        &self,
        db: &mut Db<'_>,
        links: &[(Link, Identity)],
        kept: &[usize],
        found: &[usize],
        void: &[usize],
    ) -> Result<(), sqlx::Error> {
        let update = sql!(
            "UPDATE link_digests SET link_id = made.link_id, used_at = made.used_at FROM \
             {(SELECT unhex(value ->> 1) AS digest, value ->> 2 AS link_id, value ->> 3 AS used_at \
             FROM json_each($1)) AS made|\
             unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS made (digest, link_id, used_at)} \
             WHERE link_digests.digest = made.digest AND (link_digests.link_id <> made.link_id \
             OR link_digests.used_at IS DISTINCT FROM made.used_at)"
        );
        let row = |place: usize, id: i64| {
            let (link, identity) = &links[place];
            let used_at = used_at(identity, link.created_at);
            [bytes(&identity.digest).into(), id.into(), used_at.into()]
        };
        let kept = kept.iter().map(|&place| row(place, self.ids[place]));
        let found = found.iter().filter_map(|&place| {
            let identity = &links[place].1;
            let (id, _) = self.found.get(&identity.digest)?;
            identity.within.map(|_window| row(place, *id))
        });
        let rows: Vec<[Value<'_>; 3]> = kept.chain(found).collect();
        db.run_table(update, rows.into_iter(), &[]).await?;
        let void = void.iter().map(|&place| &links[place].1.digest);
        let void = void.filter(|digest| self.new.contains(digest));
        let void: Vec<&[u8]> = void.map(bytes).collect();
        if !void.is_empty() {
            let sql = sql!("DELETE FROM link_digests WHERE digest", IN_DIGESTS);
            db.run(sql, args![void]).await?;
        }
        Ok(())
    }
}

/// The time of the last request that is stored for one at a moment: only windows need it.
fn used_at(identity: &Identity, now: Timestamp) -> Option<Timestamp> {
    identity.within.map(|_window| now)
}

/// Compares a column with the list of digests in `$1`.
const IN_DIGESTS: &str = "{ IN (SELECT unhex(value) FROM json_each($1))| = ANY($1::bytea[])}";

/// Locks existing rows of digests in ascending order, as all transactions do, which prevents deadlocks.
const LOCK: Sql = sql!(
    "SELECT digest, link_id, used_at FROM link_digests WHERE digest",
    IN_DIGESTS,
    " ORDER BY digest",
    FOR_UPDATE
);

/// Locks the digests of links.
pub(super) async fn lock(
    db: &mut Db<'_>,
    links: &[(Link, Identity)],
) -> Result<Locked, sqlx::Error> {
    let codes: Vec<&str> = links.iter().map(|(link, _)| link.code.as_str()).collect();
    let ids = ids_of(db, &codes).await?;
    let mut rows: BTreeMap<[u8; 32], (i64, Option<Timestamp>)> = BTreeMap::new();
    for ((link, identity), id) in links.iter().zip(&ids) {
        let used_at = used_at(identity, link.created_at);
        rows.entry(identity.digest.0).or_insert((*id, used_at));
    }
    let insert = sql!(
        "INSERT INTO link_digests (digest, link_id, used_at) \
         SELECT {unhex(value ->> 1), value ->> 2, value ->> 3 FROM json_each($1) WHERE true|\
         * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[])} \
         ON CONFLICT (digest) DO NOTHING RETURNING digest"
    );
    let values = rows.iter();
    let values = values
        .map(|(digest, (id, used_at))| [digest.as_slice().into(), (*id).into(), (*used_at).into()]);
    let new: HashSet<RequestDigest> = db.all(insert, &db.table(values), digest_of).await?;
    let known = rows.keys();
    let known = known.filter(|digest| !new.contains(&RequestDigest(**digest)));
    let known: Vec<&[u8]> = known.map(<[u8; 32]>::as_slice).collect();
    let mut found = HashMap::new();
    if !known.is_empty() {
        let read = |row: &Row| Ok((digest_of(row)?, row.get("link_id")?, row.find("used_at")?));
        let known: Vec<(RequestDigest, i64, Option<Timestamp>)> =
            db.all(LOCK, args![known], read).await?;
        let ids = known.iter().map(|(_, id, _)| *id).collect();
        let links: HashMap<i64, Link> = find_by_id(db, ids).await?;
        found.extend(known.into_iter().filter_map(|(digest, id, used_at)| {
            let link = links.get(&id)?.clone();
            Some((digest, (id, Identical { link, used_at })))
        }));
    }
    Ok(Locked { ids, new, found })
}

/// Renews the windows of requests; returns the digests of those that still have these links.
pub(super) async fn renew(
    db: &mut Db<'_>,
    links: &[(RequestDigest, Link)],
    now: Timestamp,
) -> Result<HashSet<RequestDigest>, sqlx::Error> {
    let codes: Vec<Code> = links.iter().map(|(_, link)| link.code).collect();
    let ids = known_ids(db, &codes).await?;
    let digests: Vec<&[u8]> = links.iter().map(|(digest, _)| bytes(digest)).collect();
    let _locked: Vec<()> = db.all(LOCK, args![digests.clone()], |_row| Ok(())).await?;
    let update = sql!(
        "UPDATE link_digests SET used_at = found.used_at FROM \
         {(SELECT unhex(value ->> 1) AS digest, value ->> 2 AS link_id, value ->> 3 AS used_at \
         FROM json_each($1)) AS found|\
         unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS found (digest, link_id, used_at)} \
         WHERE link_digests.digest = found.digest AND link_digests.link_id = found.link_id \
         RETURNING link_digests.digest"
    );
    // Of several equal requests one suffices.
    let rows: BTreeMap<&[u8], Option<i64>> = digests.into_iter().zip(ids).collect();
    let rows = rows.into_iter();
    let rows = rows.map(|(digest, id)| [digest.into(), id.into(), now.into()]);
    db.all(update, &db.table(rows), digest_of).await
}

fn bytes(digest: &RequestDigest) -> &[u8] {
    digest.0.as_slice()
}

fn digest_of(row: &Row) -> Result<RequestDigest, sqlx::Error> {
    row.get("digest").map(RequestDigest)
}
