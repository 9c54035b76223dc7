//! Links: look-ups, changes and pages. Every operation that changes a link also appends to the log of
//! changes, in the same transaction.

use std::collections::HashSet;
use std::num::NonZeroU64;

use jiff::Timestamp;
use shortlink_core::audit::ChangedBy;
use shortlink_core::boxed;
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Edit, Link};
use shortlink_core::ports::{
    Edited, Editor, Identical, Listing, OutboxSpan, Position, Receipt, RequestDigest, StoreError,
};
use shortlink_core::target::Target;
use vocabulary::Code;

use super::creation::Creation;
use super::db::Db;
use super::rows::{checked, columns, find, find_by_id, find_id, known_ids, read};
use super::sql::{FOR_UPDATE, Sql, sql};
use super::value::{Row, args, invalid, is_storable};
use super::{Store, audit, digests, history, listing, outbox, search, tags};
use crate::past::NOBODY;
use crate::texts::of_tags;
use crate::webhooks::expiry;

const FIND_BY_DIGEST: Sql = sql!(
    "SELECT ",
    columns!(),
    ", used_at FROM link_digests JOIN links ON id = link_id WHERE digest = $1"
);

/// The fewest links that are read at a time to find those with or without clicks in ClickHouse.
const EXAMINED_TOGETHER: u32 = 1_000;

impl Store {
    /// Finds the link that was stored last for a digest, whatever has become of it.
    #[boxed]
    pub async fn find_by_digest(
        &self,
        digest: &RequestDigest,
    ) -> Result<Option<Identical>, StoreError> {
        let operation = "find the link of an identical request";
        let read = |row: &Row| {
            Ok(Identical {
                link: read(row)?,
                used_at: row.find("used_at")?,
            })
        };
        self.one(operation, FIND_BY_DIGEST, args![digest.0.as_slice()], read)
            .await
    }

    /// Renews the windows of requests that get these links, each by its digest; returns the digests of those that no
    /// other request has replaced by a new link meanwhile.
    #[boxed]
    pub async fn renew_digests(
        &self,
        links: Vec<(RequestDigest, Link)>,
        now: Timestamp,
    ) -> Result<HashSet<RequestDigest>, StoreError> {
        let operation = "find the links of identical requests";
        self.run_tx(operation, (links, now), |db, (links, now)| {
            Box::pin(digests::renew(db, links, *now))
        })
        .await
    }

    /// Finds a link, whatever its state.
    #[boxed]
    pub async fn find_link(&self, code: &Code) -> Result<Option<Link>, StoreError> {
        self.read("find a link", code, |db, code| {
            Box::pin(async move {
                match find_id(db, code).await? {
                    Some(id) => find(db, id, code).await,
                    None => Ok(None),
                }
            })
        })
        .await
    }

    /// Finds the links of codes, whatever their state, in no order; codes that have none are left
    /// out. At most [`MAX_TOGETHER`](shortlink_core::ports::MAX_TOGETHER) codes.
    #[boxed]
    pub async fn find_links(&self, codes: &[Code]) -> Result<Vec<Link>, StoreError> {
        self.read("find links", codes, |db, codes| {
            Box::pin(async move {
                let ids = known_ids(db, codes).await?;
                let mut ids: Vec<i64> = ids.into_iter().flatten().collect();
                // In the order in which the rows lie.
                ids.sort_unstable();
                let links: Vec<(i64, Link)> = find_by_id(db, ids).await?;
                Ok(links.into_iter().map(|(_, link)| link).collect())
            })
        })
        .await
    }

    /// Has `editor` decide the change to a link and stores that; no other change to the link happens
    /// meanwhile. A link left unchanged goes into the log too, so that a caller who repeats a
    /// request has the link published again. The history receives the changed link as it was before,
    /// and the audit log notes the change.
    #[boxed]
    pub async fn edit_link(
        &self,
        code: &Code,
        by: &ChangedBy,
        editor: Editor,
    ) -> Result<Option<Edited>, StoreError> {
        let args = (*code, by.clone(), editor, self.creation.clone());
        self.run_tx("change a link", args, |db, (code, by, editor, creation)| {
            Box::pin(edit(db, code, by, editor, creation))
        })
        .await
    }

    /// Lists links, the latest first, those of one millisecond in an order that stays the same.
    #[boxed]
    pub async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError> {
        if !is_possible(listing) {
            return Ok(Vec::new());
        }
        match (listing.clicked, self.has_clicks_elsewhere()) {
            (Some(clicked), true) => self.list_by_clicks(listing, clicked).await,
            _ => self.list_some_links(listing).await,
        }
    }

    /// Lists links by whether they have clicks in ClickHouse: those that match otherwise are read until enough do.
    async fn list_by_clicks(
        &self,
        listing: &Listing,
        clicked: bool,
    ) -> Result<Vec<Link>, StoreError> {
        let mut examined = Listing {
            clicked: None,
            limit: listing.limit.max(EXAMINED_TOGETHER),
            ..listing.clone()
        };
        let mut found = Vec::new();
        loop {
            let page = self.list_some_links(&examined).await?;
            let codes: Vec<Code> = page.iter().map(|link| link.code).collect();
            let clicks = self.link_clicks(&codes).await?;
            let with_clicks: HashSet<Code> = clicks.into_iter().map(|(code, _)| code).collect();
            let last = page.last().map(|link| Position {
                created_at: link.created_at,
                code: link.code,
            });
            let is_last = page.len() < examined.limit as usize;
            let matching = page.into_iter();
            found.extend(matching.filter(|link| with_clicks.contains(&link.code) == clicked));
            if is_last || found.len() >= listing.limit as usize {
                found.truncate(listing.limit as usize);
                return Ok(found);
            }
            examined.after = last;
        }
    }

    async fn list_some_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError> {
        self.read("list links", listing, |db, listing| {
            Box::pin(async move {
                let after = place(db, listing.after.as_ref()).await?;
                let until = match &listing.until {
                    Some(position) => Some(place(db, Some(position)).await?),
                    None => None,
                };
                let walks = listing::walks(listing);
                let select = sql!("SELECT ", columns!(), " FROM ");
                let mut statement = db.statement(select);
                if let [walk] = &walks[..] {
                    listing::query(&mut statement, walk, after, until);
                    return db.all(&statement, &statement.values, read).await;
                }
                for (place, walk) in walks.iter().enumerate() {
                    statement.push(match place {
                        0 => sql!("(SELECT * FROM (SELECT id, ", columns!(), " FROM "),
                        _ => sql!(
                            " UNION ALL SELECT * FROM (SELECT id, ",
                            columns!(),
                            " FROM "
                        ),
                    });
                    listing::query(&mut statement, walk, after, until);
                    statement.push(sql!(") AS walk"));
                }
                statement.push(sql!(") AS walks ORDER BY created_at DESC, id DESC LIMIT "));
                statement.bind(listing.limit);
                db.all(&statement, &statement.values, read).await
            })
        })
        .await
    }

    /// Returns the position that a listing reaches when it examines `most` links; `None` if it ends
    /// before.
    #[boxed]
    pub async fn listing_reach(
        &self,
        listing: &Listing,
        most: u32,
    ) -> Result<Option<Position>, StoreError> {
        if !is_possible(listing) {
            return Ok(None);
        }
        let args = (listing, most);
        self.read("list links", args, |db, (listing, most)| {
            Box::pin(async move {
                let after = place(db, listing.after.as_ref()).await?;
                let mut reached: Option<(i64, i64)> = None;
                // Each walk examines so many links; the listing goes as far as the shortest of them.
                for walk in listing::walks(listing) {
                    let mut statement = db.statement(sql!("SELECT "));
                    listing::reach(&mut statement, &walk, after, *most);
                    let read = |row: &Row| Ok((row.get("created_at")?, row.get("id")?));
                    let found = db.one(&statement, &statement.values, read).await?;
                    reached = reached.max(found);
                }
                let Some((created_at, id)) = reached else {
                    return Ok(None);
                };
                let created_at = Timestamp::from_millisecond(created_at)
                    .map_err(|_error| invalid("created_at"))?;
                let sql = sql!("SELECT code FROM links WHERE id = $1");
                let code = db.one(sql, args![id], |row| row.get("code")).await?;
                Ok(code.map(|code| Position { created_at, code }))
            })
        })
        .await
    }

    /// Reads links in the order of the store, which does not change: those after the link with the
    /// code `after`, or from the first on; at most `limit`. Paging to the end visits every link that
    /// existed at the start exactly once; links created meanwhile may or may not appear. Nothing is
    /// locked between two calls, so that a scan of all links blocks no writer.
    #[boxed]
    pub async fn scan_links(
        &self,
        after: Option<&Code>,
        limit: u32,
    ) -> Result<Vec<Link>, StoreError> {
        let args = (after, limit);
        self.read("read all links", args, |db, (after, limit)| {
            Box::pin(async move {
                let after = match after {
                    None => i64::MIN,
                    // A code that was read has an id.
                    Some(code) => find_id(db, code).await?.ok_or_else(|| invalid("code"))?,
                };
                let sql = sql!(
                    "SELECT ",
                    columns!(),
                    " FROM links WHERE id > $1 ORDER BY id LIMIT $2"
                );
                db.all(sql, args![after, *limit], read).await
            })
        })
        .await
    }
}

async fn edit(
    db: &mut Db<'_>,
    code: &Code,
    by: &ChangedBy,
    editor: &Editor,
    creation: &Creation,
) -> Result<Option<Edited>, sqlx::Error> {
    let Some(id) = find_id(db, code).await? else {
        return Ok(None);
    };
    let find = sql!(
        "SELECT ",
        columns!(),
        " FROM links WHERE id = $1",
        FOR_UPDATE
    );
    let Some(before) = checked(db.one(find, args![id], read).await?, code)? else {
        return Ok(None);
    };
    let edit = editor(before.clone());
    let mut receipt = Receipt::default();
    if let Edit::Changed(link) = &edit {
        store(db, id, by, &before, link, creation).await?;
    }
    if let Edit::Changed(link) | Edit::Unchanged(link) = &edit {
        receipt.0.push(OutboxSpan {
            first: id,
            last: id,
            revision: link.revision,
        });
        outbox::enqueue(db, &receipt.0, link.updated_at).await?;
    }
    if let Edit::Changed(link) = &edit {
        let changed = [(id, before.valid_until, link)];
        expiry::report_changed(db, changed.into_iter(), link.updated_at).await?;
    }
    Ok(Some(Edited { edit, receipt }))
}

/// Stores a changed link, which is locked, with its history and its entry in the audit log.
pub(super) async fn store(
    db: &mut Db<'_>,
    id: i64,
    by: &ChangedBy,
    before: &Link,
    link: &Link,
    creation: &Creation,
) -> Result<(), sqlx::Error> {
    let key_id = by.key_id.as_deref().unwrap_or(NOBODY);
    history::add(db, id, before, link.updated_at, key_id).await?;
    audit::append(db, &by.of_link(link, before)).await?;
    update(db, id, before, link).await?;
    if before.tags != link.tags {
        tags::remove(db, &[(id, before)]).await?;
        tags::add(db, &[(id, link)]).await?;
    }
    search::replace(db, id, before, link, |link| {
        !creation.admit(std::iter::once((key_id, link))).is_empty()
    })
    .await
}

/// Writes the columns of a link that can change.
async fn update(db: &mut Db<'_>, id: i64, before: &Link, link: &Link) -> Result<(), sqlx::Error> {
    // A new target gets a hash even if new links get none: the hash of the old one must not stay.
    let target = link.destination.target();
    let target_hash = target.filter(|&target| before.destination.target() != Some(target));
    let sql = sql!(
        "UPDATE links SET target = $2, redirect_status = $3, forward_query = $4, revision = $5, \
         valid_since = $6, valid_until = $7, max_visits = $8, paused_at = $9, revoked_at = $10, \
         updated_at = $11, external_id = $12, note = $13, tags = $14, parameters = $15, \
         target_hash = coalesce($16, target_hash), plan = $17, domain = $18 \
         WHERE id = $1"
    );
    let values = args![
        id,
        link.destination.target().map(Target::as_str),
        link.redirect_status.code(),
        link.forward_query,
        link.revision,
        link.valid_since,
        link.valid_until,
        link.max_visits.map(NonZeroU64::get),
        link.paused_at,
        link.revoked_at,
        link.updated_at,
        &link.external_id,
        &link.note,
        of_tags(&link.tags),
        link.destination.values().map(ParameterValues::as_str),
        target_hash.map(Target::hash),
        link.plan.as_ref().map(|plan| plan.text()),
        &link.domain,
    ];
    db.run(sql, values).await?;
    Ok(())
}

/// Returns the creation time and the id of a position. Nothing comes after the last position; without
/// a position, everything does.
pub(super) async fn place(
    db: &mut Db<'_>,
    position: Option<&Position>,
) -> Result<(i64, i64), sqlx::Error> {
    let Some(Position { created_at, code }) = position else {
        return Ok((i64::MAX, i64::MAX));
    };
    let id = find_id(db, code).await?;
    Ok((created_at.as_millisecond(), id.unwrap_or(i64::MIN)))
}

/// Returns whether a listing can have links at all.
fn is_possible(listing: &Listing) -> bool {
    let asked = [&listing.tag, &listing.external_id];
    let creators = listing.created_by.iter().flatten();
    let mut asked = asked.into_iter().flatten().chain(creators);
    asked.all(|text| is_storable(text))
        && listing
            .created_by
            .as_ref()
            .is_none_or(|ids| !ids.is_empty())
}
