//! Rows of links: their columns, ids and look-ups.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::ops::Range;

use jiff::Timestamp;
use shortlink_core::campaign::ParameterValues;
use shortlink_core::codes::strategy::CodeOrigin;
use shortlink_core::link::{Destination, Link};
use shortlink_core::plan::Plan;
use shortlink_core::target::Target;
use vocabulary::{CampaignId, Code};

use super::db::Db;
use super::sql::{IN_NUMBERS, IN_TEXTS, Sql, sql};
use super::value::{Row, Value, args, invalid};
use crate::texts::{of_tags, to_tags};

/// The columns of a link besides its id, in the order of [`values`], as a macro since statements are
/// literals.
macro_rules! columns {
    () => {
        "code, redirect_status, revision, valid_until, created_at, updated_at, created_by, upload_id, \
         strategy, target, campaign_id, parameters, forward_query, valid_since, max_visits, paused_at, revoked_at, \
         external_id, note, tags, plan, domain"
    };
}
pub(super) use columns;

/// The number of the [`columns!`].
pub(super) const WIDTH: usize = 22;

/// The types of the [`columns!`] in PostgreSQL.
pub(super) const TYPES: [&str; WIDTH] = [
    "text", "bigint", "bigint", "bigint", "bigint", "bigint", "text", "bigint", "bigint", "text",
    "bigint", "text", "boolean", "bigint", "bigint", "bigint", "bigint", "text", "text", "text",
    "text", "text",
];

/// Places of the columns of links with a target of their own among the [`columns!`]. Every link uses
/// the columns before them.
const TARGET: Range<usize> = 9..10;

/// As [`TARGET`] for links of campaigns.
const CAMPAIGN: Range<usize> = 10..12;

/// Places of the columns that only some links use.
const OPTIONAL: Range<usize> = 12..WIDTH;

/// Columns of an insertion. Every value costs time, even a default, and most links are of the first
/// two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// Those of a link with a target of its own that uses nothing else.
    Target,
    /// Those of a link of a campaign that uses nothing else.
    Campaign,
    /// All there are.
    All,
}

impl Columns {
    pub(super) const EACH: [Self; 3] = [Self::Target, Self::Campaign, Self::All];

    /// The fewest that a link needs.
    pub(super) fn of(link: &Link) -> Self {
        match &link.destination {
            _ if !values(link)[OPTIONAL].iter().all(Value::is_unused) => Self::All,
            Destination::Target(_) => Self::Target,
            Destination::Campaign { .. } => Self::Campaign,
        }
    }

    /// The fewest that all of some links need.
    pub(super) fn of_all<'a>(links: impl Iterator<Item = &'a Link>) -> Self {
        let both = |one, other| if one == other { one } else { Self::All };
        links.map(Self::of).reduce(both).unwrap_or(Self::All)
    }

    /// Those of a list with an item for each of the [`columns!`].
    pub(super) fn pick<T>(self, each: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        let each = each.into_iter().enumerate();
        each.filter(move |(place, _)| self.has(*place))
            .map(|(_, item)| item)
    }

    /// Their names.
    pub(super) fn names(self) -> Vec<&'static str> {
        self.pick(columns!().split(", ")).collect()
    }

    /// Returns whether the column at a place is one of them.
    fn has(self, place: usize) -> bool {
        match self {
            Self::Target => !CAMPAIGN.contains(&place) && !OPTIONAL.contains(&place),
            Self::Campaign => !TARGET.contains(&place) && !OPTIONAL.contains(&place),
            Self::All => true,
        }
    }
}

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
        link.upload.into(),
        link.strategy.map(CodeOrigin::number).into(),
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
        link.plan.as_ref().map(|plan| plan.text()).into(),
        (&link.domain).into(),
    ]
}

/// A link, its id, and which of the new links it is.
#[derive(Clone, Copy)]
pub(super) struct NewLink<'a> {
    pub(super) id: i64,
    pub(super) place: usize,
    pub(super) link: &'a Link,
    /// The hash of its target, if links are found by their target.
    pub(super) target_hash: Option<i64>,
}

impl<'a> NewLink<'a> {
    /// Its code and its creation time in milliseconds, by which it is counted.
    pub(super) fn counted(&self) -> (&'a Code, i64) {
        (&self.link.code, self.link.created_at.as_millisecond())
    }
}

/// Finds the ids of the links of texts without numbers.
const FAR_IDS: Sql = sql!("SELECT code, -id AS id FROM far_codes WHERE code", IN_TEXTS);

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

/// Finds the links that have these ids, each with its id.
pub(super) async fn find_by_id<C: FromIterator<(i64, Link)>>(
    db: &mut Db<'_>,
    ids: Vec<i64>,
) -> Result<C, sqlx::Error> {
    if ids.is_empty() {
        return Ok(C::from_iter([]));
    }
    let sql = sql!(
        "SELECT id, ",
        columns!(),
        " FROM links WHERE id",
        IN_NUMBERS
    );
    let read = |row: &Row| Ok((row.get("id")?, read(row)?));
    db.all(sql, args![ids], read).await
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
pub(super) fn checked(link: Option<Link>, code: &Code) -> Result<Option<Link>, sqlx::Error> {
    match link {
        Some(link) if link.code != *code => Err(invalid("id")),
        link => Ok(link),
    }
}

/// Reads a link.
pub(super) fn read(row: &Row) -> Result<Link, sqlx::Error> {
    let plan: Option<String> = row.find("plan")?;
    let destination = match row.find("target")? {
        Some(target) => Destination::Target(Target::from_stored(target)),
        None => Destination::Campaign {
            id: row.get::<CampaignId>("campaign_id")?,
            values: ParameterValues::from_stored(row.find("parameters")?.unwrap_or_default()),
        },
    };
    Ok(Link {
        code: row.get("code")?,
        plan: plan.and_then(|text| Plan::of_destination(text, &destination)),
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
        upload: row.find("upload_id")?,
        strategy: row.find("strategy")?,
        domain: row.find("domain")?,
        external_id: row.find("external_id")?,
        note: row.find("note")?,
        tags: to_tags(row.find("tags")?)?,
    })
}
