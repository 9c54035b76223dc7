//! Links that are made once for the same request.
//!
//! There is one writer, so what a transaction finds is still true when it commits: of any number
//! of creations for one digest the first makes the link and the others find it.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Sqlite;
use sqlx::sqlite::SqliteConnection;

use super::creation::create;
use super::links::{columns, id_of, read};
use super::writer::Write;
use crate::core::codes::numbering::Numbering;
use crate::core::link::Link;
use crate::core::ports::{FoundOrCreated, RequestDigest};

pub(super) struct FindOrCreate {
    pub(super) links: Vec<(Link, RequestDigest)>,
    pub(super) numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for FindOrCreate {
    type Output = FoundOrCreated;
    const OPERATION: &'static str = "find or keep new links";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<FoundOrCreated, sqlx::Error> {
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
            let found = find_by_digest(&mut *connection, digest).await?;
            match found.filter(|found| found.stands_for(link, link.created_at)) {
                Some(found) => output.found.push((place, found)),
                None => {
                    leaders.insert(*digest, place);
                    new.push(link.clone());
                    new_places.push(place);
                }
            }
        }
        let created = create(connection, &new, &self.numbering).await?;
        output.receipt = created.receipt;
        output.taken = created
            .taken
            .iter()
            .map(|&index| new_places[index])
            .collect();
        for &place in &new_places {
            if output.taken.binary_search(&place).is_err() {
                let (link, digest) = &self.links[place];
                let id = id_of(connection, &self.numbering, &link.code).await?;
                note(connection, digest, id).await?;
            }
        }
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

/// Finds the link that was kept last for a digest.
pub(super) async fn find_by_digest<'e>(
    executor: impl sqlx::Executor<'e, Database = Sqlite>,
    digest: &RequestDigest,
) -> Result<Option<Link>, sqlx::Error> {
    let row = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM link_digests JOIN links ON id = link_id WHERE digest = ?1"
    ))
    .bind(digest.0.as_slice())
    .fetch_optional(executor)
    .await?;
    row.as_ref().map(read).transpose()
}

/// Has a digest found as this link; the one before, if any, is dead or another one by now.
async fn note(
    connection: &mut SqliteConnection,
    digest: &RequestDigest,
    id: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO link_digests (digest, link_id) VALUES (?1, ?2) \
         ON CONFLICT (digest) DO UPDATE SET link_id = excluded.link_id",
    )
    .bind(digest.0.as_slice())
    .bind(id)
    .execute(connection)
    .await?;
    Ok(())
}
