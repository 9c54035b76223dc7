//! A/B tests: human visits of links by variant, and the conversions that count for a variant.
//!
//! A link has a row for each variant that human visits have, and one with an empty name for the others while its plan, or
//! that of its campaign, has variants. The rows are in SQL wherever visits are. They change in the transaction that stores
//! or corrects visits, behind the counts of clicks, and in the steps of erasure and deletion of their links.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use shortlink_clickhouse::Clicks;
use shortlink_core::boxed;
use shortlink_core::conversion::{Amount, ValueTotal};
use shortlink_core::ports::{Counted, StoreError};
use shortlink_core::variants::VariantResult;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::{StoredVisit, Verdict};
use vocabulary::Code;

use super::clicks::existing;
use super::counts::number;
use super::erasure::overwrite;
use super::{ALL, LinkKey, Taken};
use crate::Store;
use crate::conversions::Part;
use crate::db::Db;
use crate::rows::known_ids;
use crate::sql::{IN_NUMBERS, Sql, sql, table};
use crate::value::{Row, args, invalid};

/// The condition that a row is that of one of some links, by the ids in `$1`.
const OF_LINKS: &str =
    " WHERE (campaign_id, code) IN (SELECT coalesce(campaign_id, 0), code FROM links WHERE id";

/// Statements that delete the rows of links that are being deleted, by their ids.
pub(crate) const REMOVALS: [Sql; 2] = [
    sql!("DELETE FROM variant_clicks", OF_LINKS, IN_NUMBERS, ")"),
    sql!("DELETE FROM variant_conversions", OF_LINKS, IN_NUMBERS, ")"),
];

/// The visits of a link by a variant: its campaign or [`ALL`], its code, and the name.
type Place<'a> = (i64, &'a str, &'a str);

/// Additions to the rows; those of fewer visits than before are below 0. Without a row, visits by no variant are not
/// counted: there was no test, unless the link says so (`is_new`).
async fn add_some(
    db: &mut Db<'_>,
    some: &BTreeMap<Place<'_>, Clicks>,
    is_new: bool,
) -> Result<(), sqlx::Error> {
    let rows = some.iter().map(|((campaign, code, variant), clicks)| {
        let numbers = [
            clicks.first_at,
            clicks.last_at,
            clicks.visits,
            i64::from(is_new),
        ];
        let [first_at, last_at, visits, is_new] = numbers.map(Into::into);
        let place = [(*campaign).into(), (*code).into(), (*variant).into()];
        let [campaign, code, variant] = place;
        [campaign, code, variant, first_at, last_at, visits, is_new]
    });
    let sql = sql!(
        "INSERT INTO variant_clicks AS kept (campaign_id, code, variant, first_at, last_at, visits) \
         SELECT new.campaign_id, new.code, new.variant, new.first_at, new.last_at, new.visits FROM ",
        table!("new": 1 "campaign_id" "bigint", 2 "code" "text", 3 "variant" "text", 4 "first_at" "bigint",
            5 "last_at" "bigint", 6 "visits" "bigint", 7 "is_new" "bigint"),
        " WHERE new.variant <> '' OR new.is_new <> 0 OR EXISTS (SELECT 1 FROM variant_clicks AS old \
         WHERE old.campaign_id = new.campaign_id AND old.code = new.code AND old.variant = '') \
         ON CONFLICT (campaign_id, code, variant) DO UPDATE SET visits = kept.visits + excluded.visits, \
         first_at = CASE WHEN excluded.visits > 0 THEN {min|least}(kept.first_at, excluded.first_at) ELSE kept.first_at END, \
         last_at = CASE WHEN excluded.visits > 0 THEN {max|greatest}(kept.last_at, excluded.last_at) ELSE kept.last_at END"
    );
    db.run_table(sql, rows, &[]).await?;
    Ok(())
}

/// Counts the human ones among visits that were just stored.
pub(super) async fn add(db: &mut Db<'_>, visits: &[Taken<'_>]) -> Result<(), sqlx::Error> {
    let mut new: BTreeMap<Place<'_>, Clicks> = BTreeMap::new();
    for Taken { visit, link, .. } in visits {
        let (Some(link), Class::Human) = (link, visit.classification.class) else {
            continue;
        };
        let variant = visit.variant.as_deref().unwrap_or_default();
        if !variant.is_empty() || link.has_variants {
            let place = (link.campaign.unwrap_or(ALL), link.code, variant);
            let clicks = Clicks::at(visit.at.as_millisecond());
            let of = new.entry(place).and_modify(|it| *it = it.with(clicks));
            of.or_insert(clicks);
        }
    }
    add_some(db, &new, true).await
}

/// Counts visits that have become of another class.
pub(super) async fn correct<'a>(
    db: &mut Db<'_>,
    verdicts: impl Iterator<Item = &'a (StoredVisit, Verdict)>,
) -> Result<(), sqlx::Error> {
    let is_human = |class| class == Class::Human;
    let moved = verdicts.filter_map(|(visit, verdict)| {
        let by =
            i64::from(is_human(verdict.classification.class)) - i64::from(is_human(visit.class));
        (by != 0).then_some((visit, by))
    });
    let moved: Vec<(&StoredVisit, i64)> = moved.collect();
    if moved.is_empty() {
        return Ok(());
    }
    // Those of links that were deleted are not counted any more.
    let keys = moved.iter().map(|(visit, _)| LinkKey::Code(&visit.code));
    let links = existing(db, keys).await?;
    let mut changes: BTreeMap<Place<'_>, Clicks> = BTreeMap::new();
    for (visit, by) in moved {
        let link = links.get(&LinkKey::Code(&visit.code));
        if link.is_none_or(|(campaign, _)| *campaign != visit.campaign) {
            continue;
        }
        let variant = visit.variant.as_deref().unwrap_or_default();
        let clicks = Clicks {
            visits: by,
            ..Clicks::at(visit.at.as_millisecond())
        };
        let of = changes.entry((visit.campaign, &visit.code, variant));
        of.and_modify(|it| *it = it.with(clicks)).or_insert(clicks);
    }
    changes.retain(|_, clicks| clicks.visits != 0);
    add_some(db, &changes, false).await?;
    let less = changes.iter().filter(|(_, clicks)| clicks.visits < 0);
    let less = less.map(|((campaign, code, variant), _)| {
        [(*campaign).into(), (*code).into(), (*variant).into()]
    });
    let less: Vec<_> = less.collect();
    let from = sql!("DELETE FROM variant_clicks");
    let key = [
        (sql!("campaign_id"), "bigint"),
        (sql!("code"), "text"),
        (sql!("variant"), "text"),
    ];
    let end = sql!(" AND visits <= 0");
    db.delete(from, key, less.into_iter(), end).await
}

/// Erases the visits of links up to a time. Of variants that were followed later as well, one visit stays.
pub(crate) async fn erase(
    db: &mut Db<'_>,
    codes: &[Code],
    until: Timestamp,
) -> Result<(), sqlx::Error> {
    let ids: Vec<i64> = known_ids(db, codes).await?.into_iter().flatten().collect();
    let delete = sql!(
        "DELETE FROM variant_clicks",
        OF_LINKS,
        IN_NUMBERS,
        ") AND last_at <= $2"
    );
    let later = sql!(
        "UPDATE variant_clicks SET visits = 1, first_at = last_at",
        OF_LINKS,
        IN_NUMBERS,
        ") AND first_at <= $2"
    );
    overwrite(db, true).await?;
    let done = async {
        db.run(delete, args![ids.as_slice(), until]).await?;
        db.run(later, args![ids.as_slice(), until]).await
    };
    let done = done.await;
    overwrite(db, false).await?;
    done.map(drop)
}

/// The variants that human visits of links have, by their codes; the links by their ids.
pub(crate) async fn followed(
    db: &mut Db<'_>,
    ids: &[i64],
) -> Result<HashMap<String, Vec<String>>, sqlx::Error> {
    let sql = sql!(
        "SELECT code, variant FROM variant_clicks",
        OF_LINKS,
        IN_NUMBERS,
        ")"
    );
    let read = |row: &Row| Ok((row.get("code")?, row.get("variant")?));
    let found: Vec<(String, String)> = db.all(sql, args![ids], read).await?;
    let mut followed: HashMap<String, Vec<String>> = HashMap::new();
    for (code, variant) in found {
        followed.entry(code).or_default().push(variant);
    }
    Ok(followed)
}

/// Changes of the conversions that count for variants: by campaign, code, variant and currency, the number and the value.
#[derive(Debug, Default)]
pub(crate) struct Conversions(BTreeMap<(i64, String, String, String), (i64, i64)>);

impl Conversions {
    /// Adds what a conversion counts for, or with `-1` takes it away.
    pub(crate) fn add(
        &mut self,
        (campaign, code, variant): (i64, &str, &str),
        (conversions, value): Part<'_>,
        by: i64,
    ) {
        for (currency, value) in [Some(("", 0)), value].into_iter().flatten() {
            let [code, variant, currency] = [code, variant, currency].map(str::to_owned);
            let sum = self
                .0
                .entry((campaign, code, variant, currency))
                .or_default();
            *sum = (sum.0 + conversions * by, sum.1.saturating_add(value * by));
        }
    }

    /// Stores the changes; the links are locked.
    pub(crate) async fn store(mut self, db: &mut Db<'_>) -> Result<(), sqlx::Error> {
        self.0.retain(|_, sum| *sum != (0, 0));
        let rows = self.0.iter();
        let rows = rows.map(
            |((campaign, code, variant, currency), (conversions, value))| {
                let [campaign, conversions, value] =
                    [*campaign, *conversions, *value].map(Into::into);
                [
                    campaign,
                    code.into(),
                    variant.into(),
                    currency.into(),
                    conversions,
                    value,
                ]
            },
        );
        let into = sql!(
            "INSERT INTO variant_conversions AS kept (campaign_id, code, variant, currency, conversions, value)"
        );
        // As for campaigns, whose sums can be too large.
        let end = sql!(
            " ON CONFLICT (campaign_id, code, variant, currency) DO UPDATE SET \
             conversions = kept.conversions + excluded.conversions, \
             value = {min(kept.value + excluded.value, 9223372036854775807)|\
             CAST(least(CAST(kept.value AS numeric) + excluded.value, 9223372036854775807) AS bigint)}"
        );
        let types = ["bigint", "text", "text", "text", "bigint", "bigint"];
        db.insert(into, types, end, rows).await?;
        let less = self.0.iter().filter(|(_, (by, _))| *by < 0);
        let less: Vec<_> = less
            .map(|((campaign, code, variant, currency), _)| {
                [
                    (*campaign).into(),
                    code.into(),
                    variant.into(),
                    currency.into(),
                ]
            })
            .collect();
        let from = sql!("DELETE FROM variant_conversions");
        let key = [
            (sql!("campaign_id"), "bigint"),
            (sql!("code"), "text"),
            (sql!("variant"), "text"),
            (sql!("currency"), "text"),
        ];
        let end = sql!(" AND conversions <= 0");
        db.delete(from, key, less.into_iter(), end).await
    }
}

impl Store {
    /// The results of an A/B test of a link or a campaign, by the names of the variants; those of all links are none.
    #[boxed]
    pub async fn variant_results(&self, of: Counted) -> Result<Vec<VariantResult>, StoreError> {
        self.read("read the results of variants", of, |db, of| {
            Box::pin(results(db, *of))
        })
        .await
    }
}

async fn results(db: &mut Db<'_>, of: Counted) -> Result<Vec<VariantResult>, sqlx::Error> {
    let (condition, values) = match of {
        Counted::All => return Ok(Vec::new()),
        Counted::Campaign(id) => (sql!(" WHERE campaign_id = $1"), args![id].to_vec()),
        Counted::Link(code) => {
            let ids: Vec<i64> = known_ids(db, &[code])
                .await?
                .into_iter()
                .flatten()
                .collect();
            (sql!(OF_LINKS, IN_NUMBERS, ")"), args![ids].to_vec())
        }
    };
    let mut statement = db.statement(sql!(
        "SELECT variant, count(*) AS links, CAST(sum(visits) AS bigint) AS visits, min(first_at) AS first_at, \
         max(last_at) AS last_at FROM variant_clicks"
    ));
    statement
        .push(condition)
        .push(sql!(" GROUP BY variant ORDER BY variant"));
    let read = |row: &Row| {
        Ok(VariantResult {
            variant: row.get("variant")?,
            links: number(row, "links")?,
            visits: number(row, "visits")?,
            first_at: row.get("first_at")?,
            last_at: row.get("last_at")?,
            converted: 0,
            conversions: 0,
            values: Vec::new(),
        })
    };
    let mut results: Vec<VariantResult> = db.all(&statement, &values, read).await?;
    // The sum of integers that are too large is an error in SQLite.
    let mut statement = db.statement(sql!(
        "SELECT variant, currency, count(*) AS links, CAST(sum(conversions) AS bigint) AS conversions, \
         CAST({min(total(value), 9223372036854774784)|least(sum(value), 9223372036854775807)} AS bigint) AS value \
         FROM variant_conversions"
    ));
    statement.push(condition).push(sql!(
        " GROUP BY variant, currency ORDER BY variant, currency"
    ));
    let read = |row: &Row| {
        let currency: String = row.get("currency")?;
        let counts = (number(row, "links")?, number(row, "conversions")?);
        Ok((
            row.get::<String>("variant")?,
            currency,
            counts,
            row.get("value")?,
        ))
    };
    let converted: Vec<(String, String, (u64, u64), i64)> =
        db.all(&statement, &values, read).await?;
    for (variant, currency, (links, conversions), value) in converted {
        let Some(result) = results.iter_mut().find(|it| it.variant == variant) else {
            continue;
        };
        if currency.is_empty() {
            (result.converted, result.conversions) = (links, conversions);
        } else {
            result.values.push(ValueTotal {
                currency: currency.parse().map_err(|_error| invalid("currency"))?,
                conversions,
                value: Amount(value),
            });
        }
    }
    Ok(results)
}
