//! Links that are made once for the same request.
//!
//! The row of a digest is locked before anything is decided: a new one by being inserted, which
//! others who insert it wait for, one that is there by `FOR UPDATE`. Whoever comes second finds what
//! the first has committed.

use std::collections::{BTreeMap, HashMap, HashSet};

use async_trait::async_trait;
use vocabulary::Code;

use super::creation::{create, ids_of};
use super::links::find_by_id;
use super::statements::Statements;
use super::work::Work;
use crate::core::codes::numbering::Numbering;
use crate::core::link::Link;
use crate::core::ports::{FoundOrCreated, RequestDigest};
use crate::store::shared::invalid;

pub(super) struct FindOrCreate<'a> {
    pub(super) links: &'a [(Link, RequestDigest)],
    pub(super) numbering: &'a Numbering,
}

#[async_trait]
impl Work for FindOrCreate<'_> {
    type Output = FoundOrCreated;
    const OPERATION: &'static str = "find or keep new links";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<FoundOrCreated, sqlx::Error> {
        let codes: Vec<Code> = self.links.iter().map(|(link, _)| link.code).collect();
        let ids = ids_of(connection, self.numbering, &codes).await?;
        let locked = lock(connection, self.links, &ids).await?;
        let mut output = FoundOrCreated::default();
        // Those for which there is no link yet, and those that share their digest.
        let mut new = Vec::new();
        let mut new_places = Vec::new();
        let mut leaders: HashMap<RequestDigest, usize> = HashMap::new();
        let mut followers = Vec::new();
        for (place, (link, digest)) in self.links.iter().enumerate() {
            if let Some(&leader) = leaders.get(digest) {
                followers.push((place, leader));
                continue;
            }
            let found = locked.found.get(digest);
            match found.filter(|found| found.stands_for(link, link.created_at)) {
                Some(found) => output.found.push((place, found.clone())),
                None => {
                    leaders.insert(*digest, place);
                    new.push(link);
                    new_places.push(place);
                }
            }
        }
        let created = create(connection, &new, self.numbering).await?;
        output.receipt = created.receipt;
        output.taken = created
            .taken
            .iter()
            .map(|&index| new_places[index])
            .collect();
        let mut kept = Vec::new();
        let mut void = Vec::new();
        for &place in &new_places {
            let digest = &self.links[place].1;
            if output.taken.binary_search(&place).is_err() {
                kept.push((digest, ids[place]));
            } else if locked.new.contains(digest) {
                void.push(digest);
            }
        }
        note(connection, &kept).await?;
        forget(connection, &void).await?;
        for (place, leader) in followers {
            if output.taken.contains(&leader) {
                output.taken.push(place);
            } else {
                output.found.push((place, self.links[leader].0.clone()));
            }
        }
        output.taken.sort_unstable();
        output.found.sort_unstable_by_key(|(place, _)| *place);
        Ok(output)
    }
}

/// Digests that nobody else decides on until the end of the transaction.
struct Locked {
    /// Those that have a row only since now.
    new: HashSet<RequestDigest>,
    /// The others' links.
    found: HashMap<RequestDigest, Link>,
}

/// Locks the digests of links, whose ids are `ids`.
async fn lock(
    connection: &mut Statements<'_>,
    links: &[(Link, RequestDigest)],
    ids: &[i64],
) -> Result<Locked, sqlx::Error> {
    // Everybody goes by the digests in ascending order, and nobody waits in a circle.
    let mut rows: BTreeMap<[u8; 32], i64> = BTreeMap::new();
    for ((_, digest), id) in links.iter().zip(ids) {
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
        let ids = rows.iter().map(|(_, id)| *id).collect();
        let links = find_by_id(connection, ids).await?;
        for (digest, id) in rows {
            if let Some(link) = links.get(&id) {
                found.insert(digest_of(digest)?, link.clone());
            }
        }
    }
    Ok(Locked { new, found })
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

/// Takes rows away for which no link was made after all: what has their code is somebody else's.
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
