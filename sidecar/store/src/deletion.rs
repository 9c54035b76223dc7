//! Deletes dead links, and frees their codes.
//!
//! A code stays taken until Redis knows nothing of the link any more: a new link of the code would
//! begin with revision 1 and never replace a record that a deleted one has left behind. Until then, the link's click ids
//! and conversions are deleted in portions.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{EndPlace, Place, Slice, StoreError};
use vocabulary::Code;

use crate::db::Db;
use crate::rows::known_ids;
use crate::sql::{FOR_UPDATE, IN_NUMBERS, Sql, sql};
use crate::texts::to_tags;
use crate::value::{Row, args};
use crate::visits::{click_ids, clicks, messages, variants};
use crate::{Store, codes, conversions, creation, receipts, search, spellings, tags, uploads};

/// Statements that delete links by their ids, as these are in `removed_links`. Tags are deleted by
/// their own columns.
const REMOVALS: [Sql; 8] = [
    creation::DELETE,
    sql!(
        "DELETE FROM outbox WHERE first_id",
        IN_NUMBERS,
        " AND last_id = first_id"
    ),
    sql!("DELETE FROM link_digests WHERE link_id", IN_NUMBERS),
    sql!("DELETE FROM link_history WHERE link_id", IN_NUMBERS),
    sql!("DELETE FROM link_conversions WHERE link_id", IN_NUMBERS),
    receipts::REMOVE,
    spellings::RELEASE,
    search::REMOVE,
];

/// Locks links until the end of the transaction. All transactions lock links in the order of their
/// ids. Only what deletion needs is read: a link whose other columns are not valid can be deleted.
pub(super) const LOCK: Sql = sql!(
    "SELECT id, revision, created_at, tags, upload_id, coalesce(campaign_id, 0) AS campaign_id FROM links WHERE id",
    IN_NUMBERS,
    " ORDER BY id",
    FOR_UPDATE
);

/// The next deleted links, in the order of their deletion ([`Db::in_order`]).
pub(super) const REMOVED: Sql = sql!(
    "SELECT id, code, removed_at FROM removed_links WHERE removed_at BETWEEN $1 AND $3 AND (removed_at, id) > ($1, $2) \
     ORDER BY removed_at, id LIMIT $4"
);

impl Store {
    /// Deletes links that still have the given revision, with what belongs to them, and removes
    /// them from the counts ([`Store::code_usage`]). Their codes stay taken until
    /// [`Store::free_codes`]. Returns the number of deleted links. With visits in ClickHouse, this
    /// asks it which of those with receipts were clicked.
    #[boxed]
    pub async fn delete_links(
        &self,
        links: Vec<(Code, u64)>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let codes: Vec<Code> = links.iter().map(|(code, _)| *code).collect();
        let clicked = self.clicked_with_receipts(codes).await?;
        let args = (links, clicked, now);
        self.run_tx("delete links", args, |db, (links, clicked, now)| {
            Box::pin(delete(db, links, clicked, *now))
        })
        .await
    }

    /// Codes of the links of a lane among the first ones behind `after` that were deleted before a moment and are still
    /// taken, and the place of the last of all of them. About `limit` codes belong to the lane.
    #[boxed]
    pub async fn deleted_links(
        &self,
        before: Timestamp,
        after: EndPlace,
        limit: u32,
        slice: Slice,
    ) -> Result<(Vec<Code>, Option<EndPlace>), StoreError> {
        let read = |row: &Row| {
            let (at, place) = (row.get("removed_at")?, Place(row.get("id")?));
            Ok((row.get::<Code>("code")?, EndPlace { at, place }))
        };
        let of_all = limit.saturating_mul(slice.of);
        let before = before.as_millisecond();
        let values = [after.at, after.place.0, before, i64::from(of_all)];
        let found = self.read("read deleted links", (), |db, ()| {
            Box::pin(db.in_order(REMOVED, values, read))
        });
        let found: Vec<(Code, EndPlace)> = found.await?;
        let next = found.last().map(|(_, place)| *place);
        let own = found.into_iter().filter(|(_, at)| slice.has(at.place.0));
        Ok((own.map(|(code, _)| code).collect(), next))
    }

    /// Frees the codes of deleted links, after what one link can have any number of: click ids and conversions.
    #[boxed]
    pub async fn free_codes(&self, codes: Vec<Code>) -> Result<(), StoreError> {
        let operation = "delete what belonged to links";
        let forgets = |codes| {
            self.run_tx(operation, codes, |db, codes: &Vec<Code>| {
                Box::pin(async move {
                    Ok(click_ids::erase(db, codes, Timestamp::MAX).await?
                        && conversions::forget(db, codes).await?)
                })
            })
        };
        while !forgets(codes.clone()).await? {}
        self.run_one("free the codes of deleted links", codes, |db, codes| {
            Box::pin(async move {
                let ids = known_ids(db, codes).await?;
                let ids: Vec<i64> = ids.into_iter().flatten().collect();
                let sql = sql!("DELETE FROM removed_links WHERE id", IN_NUMBERS);
                db.run(sql, args![ids]).await?;
                Ok(())
            })
        })
        .await
    }
}

async fn delete(
    db: &mut Db<'_>,
    links: &[(Code, u64)],
    clicked: &HashSet<Code>,
    now: Timestamp,
) -> Result<u64, sqlx::Error> {
    let codes: Vec<Code> = links.iter().map(|(code, _)| *code).collect();
    let seen = known_ids(db, &codes).await?.into_iter().zip(links);
    let seen: HashMap<i64, &(Code, u64)> =
        seen.filter_map(|(id, link)| Some((id?, link))).collect();
    let ids: Vec<i64> = seen.keys().copied().collect();
    let read = |row: &Row| {
        let tags = to_tags(row.find("tags")?).unwrap_or_default();
        let revision = row.get::<i64>("revision")?;
        let upload: Option<i64> = row.find("upload_id")?;
        Ok((
            row.get("id")?,
            revision,
            row.get("created_at")?,
            tags,
            upload,
            row.get("campaign_id")?,
        ))
    };
    let mut dead: Vec<(i64, i64, i64, _, _, i64)> = db.all(LOCK, args![ids], read).await?;
    // Another transaction may have changed one meanwhile.
    dead.retain(|(id, revision, ..)| seen[id].1.cast_signed() == *revision);
    if dead.is_empty() {
        return Ok(0);
    }
    let ids: Vec<i64> = dead.iter().map(|(id, ..)| *id).collect();
    let note = sql!(
        "INSERT INTO removed_links (id, code, revision, removed_at) \
         SELECT id, code, revision, $2 FROM links WHERE id",
        IN_NUMBERS
    );
    let values = args![ids.as_slice(), now];
    db.run(note, values).await?;
    // They are counted again for the next link of the code.
    let limits = sql!(
        "DELETE FROM visit_limits WHERE code IN (SELECT code FROM links WHERE id",
        IN_NUMBERS,
        ")"
    );
    db.run(limits, &values[..1]).await?;
    let clicked = dead.iter().filter(|(id, ..)| clicked.contains(&seen[id].0));
    messages::keep(db, clicked.map(|(id, .., campaign)| (*campaign, *id))).await?;
    clicks::remove(db, &ids).await?;
    for statement in variants::REMOVALS.into_iter().chain(REMOVALS) {
        db.run(statement, &values[..1]).await?;
    }
    let tags = dead.iter().flat_map(|(id, _, created_at, tags, ..)| {
        let tags = tags.iter();
        tags.map(|tag| [tag.into(), (*created_at).into(), (*id).into()])
    });
    tags::remove_rows(db, tags.collect()).await?;
    let moments = dead.iter();
    let moments =
        moments.filter_map(|(_, _, created_at, _, upload, _)| Some(((*upload)?, *created_at)));
    uploads::remove(db, moments).await?;
    let counted = dead.iter();
    let counted = counted.map(|(id, _, created_at, ..)| (&seen[id].0, *created_at));
    codes::count(db, counted, -1).await?;
    Ok(dead.len() as u64)
}
