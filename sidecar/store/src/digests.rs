//! Deduplication: identical requests get the same link.
//!
//! A transaction locks the row of a digest before it decides anything: a new row by its insertion,
//! which other insertions wait for, an existing one by `FOR UPDATE`. The second transaction finds the
//! committed result of the first. SQLite has one writer, which needs no lock.

use std::collections::{BTreeMap, HashMap, HashSet};

use shortlink_core::link::Link;
use shortlink_core::ports::RequestDigest;

use super::db::Db;
use super::rows::{find_by_id, ids_of};
use super::sql::{FOR_UPDATE, sql};
use super::value::{Row, args};

/// Digests that are locked until the end of the transaction.
pub(super) struct Locked {
    /// The ids that the new links have or would have.
    ids: Vec<i64>,
    /// Those that have a row only since now.
    new: HashSet<RequestDigest>,
    /// The others' links.
    pub(super) found: HashMap<RequestDigest, Link>,
}

impl Locked {
    /// Has the digests of links that were stored found as these, and deletes the new rows of those
    /// whose codes are taken, which belong to other requests; both are given by their places.
    pub(super) async fn settle(
        &self,
        db: &mut Db<'_>,
        links: &[(Link, RequestDigest)],
        kept: &[usize],
        void: &[usize],
    ) -> Result<(), sqlx::Error> {
        let update = sql!(
            "UPDATE link_digests SET link_id = made.link_id FROM \
             {(SELECT unhex(value ->> 1) AS digest, value ->> 2 AS link_id \
             FROM json_each($1)) AS made|\
             unnest($1::bytea[], $2::bigint[]) AS made (digest, link_id)} \
             WHERE link_digests.digest = made.digest AND link_digests.link_id <> made.link_id"
        );
        let rows = kept.iter();
        let rows = rows.map(|&place| [bytes(&links[place].1).into(), self.ids[place].into()]);
        db.run_table(update, rows, &[]).await?;
        let void = void.iter().map(|&place| &links[place].1);
        let void = void.filter(|digest| self.new.contains(digest));
        let void: Vec<&[u8]> = void.map(bytes).collect();
        if !void.is_empty() {
            let sql = sql!("DELETE FROM link_digests WHERE digest", IN_DIGESTS);
            db.run(sql, args![void]).await?;
        }
        Ok(())
    }
}

/// Compares a column with the list of digests in `$1`.
const IN_DIGESTS: &str = "{ IN (SELECT unhex(value) FROM json_each($1))| = ANY($1::bytea[])}";

/// Locks the digests of links.
pub(super) async fn lock(
    db: &mut Db<'_>,
    links: &[(Link, RequestDigest)],
) -> Result<Locked, sqlx::Error> {
    let codes: Vec<&str> = links.iter().map(|(link, _)| link.code.as_str()).collect();
    let ids = ids_of(db, &codes).await?;
    // All transactions lock digests in ascending order, which prevents deadlocks.
    let mut rows: BTreeMap<[u8; 32], i64> = BTreeMap::new();
    for ((_, digest), id) in links.iter().zip(&ids) {
        rows.entry(digest.0).or_insert(*id);
    }
    let insert = sql!(
        "INSERT INTO link_digests (digest, link_id) \
         SELECT {unhex(value ->> 1), value ->> 2 FROM json_each($1) WHERE true|\
         * FROM unnest($1::bytea[], $2::bigint[])} ON CONFLICT (digest) DO NOTHING RETURNING digest"
    );
    let values = rows.iter();
    let values = values.map(|(digest, id)| [digest.as_slice().into(), (*id).into()]);
    let new: HashSet<RequestDigest> = db.all(insert, &db.table(values), digest_of).await?;
    let known = rows.keys();
    let known = known.filter(|digest| !new.contains(&RequestDigest(**digest)));
    let known: Vec<&[u8]> = known.map(<[u8; 32]>::as_slice).collect();
    let mut found = HashMap::new();
    if !known.is_empty() {
        let find = sql!(
            "SELECT digest, link_id FROM link_digests WHERE digest",
            IN_DIGESTS,
            " ORDER BY digest",
            FOR_UPDATE
        );
        let read = |row: &Row| Ok((digest_of(row)?, row.get("link_id")?));
        let known: Vec<(RequestDigest, i64)> = db.all(find, args![known], read).await?;
        let ids = known.iter().map(|(_, id)| *id).collect();
        let links: HashMap<i64, Link> = find_by_id(db, ids).await?;
        let known = known.into_iter();
        found.extend(known.filter_map(|(digest, id)| Some((digest, links.get(&id)?.clone()))));
    }
    Ok(Locked { ids, new, found })
}

fn bytes(digest: &RequestDigest) -> &[u8] {
    digest.0.as_slice()
}

fn digest_of(row: &Row) -> Result<RequestDigest, sqlx::Error> {
    row.get("digest").map(RequestDigest)
}
