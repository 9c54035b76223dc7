//! Deduplication: identical requests get the same link.
//!
//! A transaction locks the row of a digest before it decides anything: a new row by its insertion,
//! which other insertions wait for, an existing one by `FOR UPDATE`. The second transaction finds the
//! committed result of the first.

use std::collections::{BTreeMap, HashMap, HashSet};

use shortlink_core::codes::numbering::Numbering;
use shortlink_core::link::Link;
use shortlink_core::ports::RequestDigest;
use vocabulary::Code;

use super::creation::ids_of;
use super::links::find_by_id;
use super::statements::Statements;
use crate::shared::invalid;

/// Digests that are locked until the end of the transaction.
pub(crate) struct Locked {
    /// The ids that the new links have or would have.
    ids: Vec<i64>,
    /// Those that have a row only since now.
    new: HashSet<RequestDigest>,
    /// The others' links.
    pub(crate) found: HashMap<RequestDigest, Link>,
}

impl Locked {
    /// Has the digests of links that were stored found as these, and deletes the new rows of those
    /// whose codes are taken; both are given by their places.
    pub(crate) async fn settle(
        &self,
        connection: &mut Statements<'_>,
        links: &[(Link, RequestDigest)],
        kept: &[usize],
        void: &[usize],
    ) -> Result<(), sqlx::Error> {
        let kept = kept.iter().map(|&place| (&links[place].1, self.ids[place]));
        note(connection, &kept.collect::<Vec<_>>()).await?;
        let void = void.iter().map(|&place| &links[place].1);
        let void = void.filter(|digest| self.new.contains(digest));
        forget(connection, &void.collect::<Vec<_>>()).await
    }
}

/// Locks the digests of links.
pub(crate) async fn lock(
    connection: &mut Statements<'_>,
    links: &[(Link, RequestDigest)],
    numbering: &Numbering,
) -> Result<Locked, sqlx::Error> {
    let codes: Vec<Code> = links.iter().map(|(link, _)| link.code).collect();
    let ids = ids_of(connection, numbering, &codes).await?;
    // All transactions lock digests in ascending order, which prevents deadlocks.
    let mut rows: BTreeMap<[u8; 32], i64> = BTreeMap::new();
    for ((_, digest), id) in links.iter().zip(&ids) {
        rows.entry(digest.0).or_insert(*id);
    }
    let digests: Vec<&[u8]> = rows.keys().map(<[u8; 32]>::as_slice).collect();
    let inserted: Vec<Vec<u8>> = sqlx::query_scalar(
        "INSERT INTO link_digests (digest, link_id) \
         SELECT * FROM unnest($1::bytea[], $2::bigint[]) \
         ON CONFLICT (digest) DO NOTHING RETURNING digest",
    )
    .bind(&digests)
    .bind(rows.values().copied().collect::<Vec<i64>>())
    .fetch_all(&mut *connection)
    .await?;
    let new = inserted.into_iter().map(digest_of);
    let new: HashSet<RequestDigest> = new.collect::<Result<_, _>>()?;
    let known = rows.keys().copied().map(RequestDigest);
    let known: Vec<RequestDigest> = known.filter(|digest| !new.contains(digest)).collect();
    let mut found = HashMap::new();
    if !known.is_empty() {
        let known: Vec<&[u8]> = known.iter().map(|digest| digest.0.as_slice()).collect();
        let rows: Vec<(Vec<u8>, i64)> = sqlx::query_as(
            "SELECT digest, link_id FROM link_digests WHERE digest = ANY($1::bytea[]) \
             ORDER BY digest FOR UPDATE",
        )
        .bind(known)
        .fetch_all(&mut *connection)
        .await?;
        let known = rows.iter().map(|(_, id)| *id).collect();
        let links = find_by_id(connection, known).await?;
        for (digest, id) in rows {
            if let Some(link) = links.get(&id) {
                found.insert(digest_of(digest)?, link.clone());
            }
        }
    }
    Ok(Locked { ids, new, found })
}

fn digest_of(bytes: Vec<u8>) -> Result<RequestDigest, sqlx::Error> {
    let digest = bytes.try_into();
    digest
        .map(RequestDigest)
        .map_err(|_error| invalid("link_digests", "digest"))
}

/// Has digests found as these links; those before, if any, are dead or others by now.
async fn note(
    connection: &mut Statements<'_>,
    links: &[(&RequestDigest, i64)],
) -> Result<(), sqlx::Error> {
    if links.is_empty() {
        return Ok(());
    }
    let columns = links.iter().map(|(digest, id)| (digest.0.as_slice(), *id));
    let (digests, ids): (Vec<&[u8]>, Vec<i64>) = columns.collect();
    sqlx::query(
        "UPDATE link_digests SET link_id = made.link_id \
         FROM unnest($1::bytea[], $2::bigint[]) AS made (digest, link_id) \
         WHERE link_digests.digest = made.digest AND link_digests.link_id <> made.link_id",
    )
    .bind(digests)
    .bind(ids)
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes rows that got no link after all: the link with their code belongs to another request.
async fn forget(
    connection: &mut Statements<'_>,
    digests: &[&RequestDigest],
) -> Result<(), sqlx::Error> {
    if digests.is_empty() {
        return Ok(());
    }
    let digests: Vec<&[u8]> = digests.iter().map(|digest| digest.0.as_slice()).collect();
    sqlx::query("DELETE FROM link_digests WHERE digest = ANY($1::bytea[])")
        .bind(digests)
        .execute(connection)
        .await?;
    Ok(())
}
