//! Links: look-ups, changes and pages. Every operation that changes a link also puts it into the outbox,
//! in the same transaction.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::ops::Range;

use jiff::Timestamp;
use shortlink_core::audit::ChangedBy;
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Destination, Edit, Link};
use shortlink_core::ports::{
    Edited, Editor, Listing, OutboxSpan, Position, Receipt, RequestDigest, StoreError,
};
use shortlink_core::target::Target;
use vocabulary::{CampaignId, Code};

use super::db::Db;
use super::sql::{FOR_UPDATE, IN_NUMBERS, IN_TEXTS, Sql, sql};
use super::value::{Row, Value, args, invalid, is_storable};
use super::{Store, audit, history, listing, outbox, tags};
use crate::past::NOBODY;
use crate::texts::{of_tags, to_tags};

/// The columns of a link besides its id, in the order of [`values`], as a macro since statements are
/// literals.
macro_rules! columns {
    () => {
        "code, redirect_status, revision, valid_until, created_at, updated_at, created_by, target, \
         campaign_id, parameters, forward_query, valid_since, max_visits, paused_at, revoked_at, \
         external_id, note, tags"
    };
}
pub(super) use columns;

/// The number of the [`columns!`].
pub(super) const WIDTH: usize = 18;

/// Places of the columns of links with a target of their own among the [`columns!`]. Every link uses
/// the columns before them.
pub(super) const TARGET: Range<usize> = 7..8;

/// As [`TARGET`] for links of campaigns.
pub(super) const CAMPAIGN: Range<usize> = 8..10;

/// Places of the columns that only some links use.
pub(super) const OPTIONAL: Range<usize> = 10..WIDTH;

/// PostgreSQL's parameters for a list of ids and a list of each of the [`columns!`].
pub(super) const LISTS: &str = "$1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], \
     $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::boolean[], \
     $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::text[], $18::text[], $19::text[]";

/// The values of the [`columns!`].
pub(super) fn values(link: &Link) -> [Value<'_>; WIDTH] {
    let destination = &link.destination;
    [
        (&link.code).into(),
        link.redirect_status.code().into(),
        link.revision.into(),
        link.valid_until.into(),
        link.created_at.into(),
        link.updated_at.into(),
        (&link.created_by).into(),
        destination.target().map(Target::as_str).into(),
        destination.campaign().into(),
        destination.values().map(ParameterValues::as_str).into(),
        link.forward_query.into(),
        link.valid_since.into(),
        link.max_visits.map(NonZeroU64::get).into(),
        link.paused_at.into(),
        link.revoked_at.into(),
        (&link.external_id).into(),
        (&link.note).into(),
        of_tags(&link.tags).into(),
    ]
}

const FIND_BY_DIGEST: Sql = sql!(
    "SELECT ",
    columns!(),
    " FROM link_digests JOIN links ON id = link_id WHERE digest = $1"
);

/// Finds the ids of the links of texts without numbers.
const FAR_IDS: Sql = sql!("SELECT code, -id AS id FROM far_codes WHERE code", IN_TEXTS);

impl Store {
    /// Finds the link that was stored last for a digest, whatever has become of it.
    pub async fn find_by_digest(&self, digest: &RequestDigest) -> Result<Option<Link>, StoreError> {
        let operation = "find the link of an identical request";
        self.one(operation, FIND_BY_DIGEST, args![digest.0.as_slice()], read)
            .await
    }

    /// Finds a link, whatever its state.
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
    pub async fn find_links(&self, codes: &[Code]) -> Result<Vec<Link>, StoreError> {
        self.read("find links", codes, |db, codes| {
            Box::pin(async move {
                let ids = known_ids(db, codes).await?;
                let mut ids: Vec<i64> = ids.into_iter().flatten().collect();
                if ids.is_empty() {
                    return Ok(Vec::new());
                }
                // In the order in which the rows lie.
                ids.sort_unstable();
                let sql = sql!(
                    "SELECT ",
                    columns!(),
                    " FROM {json_each($1) AS wanted CROSS JOIN links \
                     ON links.id = wanted.value|links WHERE id = ANY($1::bigint[])}"
                );
                db.all(sql, args![ids], read).await
            })
        })
        .await
    }

    /// Has `editor` decide the change to a link and stores that; no other change to the link happens
    /// meanwhile. A link left unchanged goes into the outbox too, so that a caller who repeats a
    /// request has the link published again. The history receives the changed link as it was before,
    /// and the audit log notes the change.
    pub async fn edit_link(
        &self,
        code: &Code,
        by: &ChangedBy,
        editor: Editor,
    ) -> Result<Option<Edited>, StoreError> {
        let args = (*code, by.clone(), editor);
        self.run_tx("change a link", args, |db, (code, by, editor)| {
            Box::pin(edit(db, code, by, editor))
        })
        .await
    }

    /// Lists links, the latest first, those of one millisecond in an order that stays the same.
    pub async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError> {
        if !is_possible(listing) {
            return Ok(Vec::new());
        }
        self.read("list links", listing, |db, listing| {
            Box::pin(async move {
                let after = place(db, listing.after.as_ref()).await?;
                let until = match &listing.until {
                    Some(position) => Some(place(db, Some(position)).await?),
                    None => None,
                };
                let mut statement = db.statement(sql!("SELECT ", columns!(), " FROM "));
                listing::query(&mut statement, listing, after, until);
                db.all(&statement, &statement.values, read).await
            })
        })
        .await
    }

    /// Returns the position that a listing reaches when it examines `most` links; `None` if it ends
    /// before.
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
                let mut statement = db.statement(sql!("SELECT "));
                listing::reach(&mut statement, listing, after, *most);
                let read = |row: &Row| Ok((row.get("created_at")?, row.get("id")?));
                let found = db.one(&statement, &statement.values, read).await?;
                let Some((created_at, id)) = found else {
                    return Ok(None);
                };
                let id: i64 = id;
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
        let key_id = by.key_id.as_deref().unwrap_or(NOBODY);
        history::add(db, id, &before, link.updated_at, key_id).await?;
        audit::append(db, &by.of_link(link, &before)).await?;
        update(db, id, link).await?;
        if before.tags != link.tags {
            tags::remove(db, &[(id, &before)]).await?;
            tags::add(db, &[(id, link)]).await?;
        }
    }
    if let Edit::Changed(link) | Edit::Unchanged(link) = &edit {
        receipt.0.push(OutboxSpan {
            first: id,
            last: id,
            revision: link.revision,
        });
        outbox::enqueue(db, &receipt.0, link.updated_at).await?;
    }
    Ok(Some(Edited { edit, receipt }))
}

/// Writes the columns of a link that can change.
async fn update(db: &mut Db<'_>, id: i64, link: &Link) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "UPDATE links SET target = $2, redirect_status = $3, forward_query = $4, revision = $5, \
         valid_since = $6, valid_until = $7, max_visits = $8, paused_at = $9, revoked_at = $10, \
         updated_at = $11, external_id = $12, note = $13, tags = $14, parameters = $15 \
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
    ];
    db.run(sql, values).await?;
    Ok(())
}

/// The id that a code's link has, if there is one.
pub(super) async fn find_id(db: &mut Db<'_>, code: &Code) -> Result<Option<i64>, sqlx::Error> {
    if let Some(number) = db.numbering.number(code) {
        return Ok(Some(number.get()));
    }
    let sql = sql!("SELECT -id AS id FROM far_codes WHERE code = $1");
    db.one(sql, args![code], |row| row.get("id")).await
}

/// The ids that the links of codes have, each in its code's place; none for a code that no link
/// can have had.
pub(super) async fn known_ids(
    db: &mut Db<'_>,
    codes: &[Code],
) -> Result<Vec<Option<i64>>, sqlx::Error> {
    let numbers = codes.iter().map(|code| db.numbering.number(code));
    let mut ids: Vec<Option<i64>> = numbers
        .map(|number| number.map(|number| number.get()))
        .collect();
    let unknown = codes.iter().zip(&ids).filter(|(_, id)| id.is_none());
    let far: Vec<&str> = unknown.map(|(code, _)| code.as_str()).collect();
    if !far.is_empty() {
        let read = |row: &Row| Ok((row.get::<Code>("code")?, row.get::<i64>("id")?));
        let far: HashMap<Code, i64> = db.all(FAR_IDS, args![far], read).await?;
        for (id, code) in ids.iter_mut().zip(codes) {
            *id = id.or_else(|| far.get(code).copied());
        }
    }
    Ok(ids)
}

/// The ids that the links of texts have or would have, each in its text's place. A text without a
/// number, which need not be a code, gets a row in `far_codes`, whether it has a link or not: its visits
/// are found by that, also if its link is created later.
pub(super) async fn ids_of(db: &mut Db<'_>, texts: &[&str]) -> Result<Vec<i64>, sqlx::Error> {
    let number = |text: &&str| db.numbering.number(&text.parse().ok()?);
    let numbers: Vec<_> = texts.iter().map(number).collect();
    let far = texts.iter().zip(&numbers);
    let far = far.filter(|(_, number)| number.is_none());
    let far: BTreeSet<&str> = far.map(|(text, _)| *text).collect();
    let mut far_ids: HashMap<String, i64> = HashMap::new();
    if !far.is_empty() {
        let insert = sql!(
            "INSERT INTO far_codes (code) \
             SELECT {value FROM json_each($1) WHERE true|* FROM unnest($1::text[])} \
             ON CONFLICT DO NOTHING"
        );
        let far = args![far.into_iter().collect::<Vec<_>>()];
        db.run(insert, far).await?;
        let read = |row: &Row| Ok((row.get("code")?, row.get("id")?));
        far_ids = db.all(FAR_IDS, far, read).await?;
    }
    let ids = texts.iter().zip(numbers);
    ids.map(|(text, number)| match number {
        Some(number) => Ok(number.get()),
        None => far_ids.get(*text).copied().ok_or(sqlx::Error::RowNotFound),
    })
    .collect()
}

/// Finds the links that have these ids.
pub(super) async fn find_by_id(
    db: &mut Db<'_>,
    ids: Vec<i64>,
) -> Result<HashMap<i64, Link>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = sql!(
        "SELECT id, ",
        columns!(),
        " FROM links WHERE id",
        IN_NUMBERS
    );
    db.all(sql, args![ids], read_with_id).await
}

/// Finds a link by its id.
pub(super) async fn find(
    db: &mut Db<'_>,
    id: i64,
    code: &Code,
) -> Result<Option<Link>, sqlx::Error> {
    let sql = sql!("SELECT ", columns!(), " FROM links WHERE id = $1");
    checked(db.one(sql, args![id], read).await?, code)
}

/// Checks a link that was found by the id of a code: with another key than that of the database, ids
/// would be wrong.
fn checked(link: Option<Link>, code: &Code) -> Result<Option<Link>, sqlx::Error> {
    match link {
        Some(link) if link.code != *code => Err(invalid("id")),
        link => Ok(link),
    }
}

/// Returns the creation time and the id of a position. Nothing comes after the last position; without
/// a position, everything does.
async fn place(db: &mut Db<'_>, position: Option<&Position>) -> Result<(i64, i64), sqlx::Error> {
    let Some(Position { created_at, code }) = position else {
        return Ok((i64::MAX, i64::MAX));
    };
    let id = find_id(db, code).await?;
    Ok((created_at.as_millisecond(), id.unwrap_or(i64::MIN)))
}

/// Returns whether a listing can have links at all.
fn is_possible(listing: &Listing) -> bool {
    let asked = [&listing.tag, &listing.external_id, &listing.created_by];
    asked.into_iter().flatten().all(|text| is_storable(text))
}

/// Reads a link with its id.
pub(super) fn read_with_id(row: &Row) -> Result<(i64, Link), sqlx::Error> {
    Ok((row.get("id")?, read(row)?))
}

/// Reads a link.
pub(super) fn read(row: &Row) -> Result<Link, sqlx::Error> {
    let destination = match row.find("target")? {
        Some(target) => Destination::Target(Target::from_stored(target)),
        None => Destination::Campaign {
            id: row.get::<CampaignId>("campaign_id")?,
            values: ParameterValues::from_stored(row.find("parameters")?.unwrap_or_default()),
        },
    };
    Ok(Link {
        code: row.get("code")?,
        destination,
        redirect_status: row.get("redirect_status")?,
        forward_query: row.get("forward_query")?,
        revision: row.get("revision")?,
        valid_since: row.find("valid_since")?,
        valid_until: row.find("valid_until")?,
        max_visits: row.find("max_visits")?,
        paused_at: row.find("paused_at")?,
        revoked_at: row.find("revoked_at")?,
        created_at: row.get::<Timestamp>("created_at")?,
        updated_at: row.get("updated_at")?,
        created_by: row.get("created_by")?,
        external_id: row.find("external_id")?,
        note: row.find("note")?,
        tags: to_tags(row.find("tags")?)?,
    })
}
