//! Conversions of links, and their totals.
//!
//! A transaction that reports or erases conversions locks their links first, in the order of their ids. It then adds to
//! the totals of the links, which no other transaction changes meanwhile, and last to those of their campaigns. The totals
//! are read without the conversions. Conversions of a link that was deleted are deleted before its code is free; its
//! campaign still counts them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::conversion::{
    Amount, ConversionOutcome, ConversionTotals, Converted, Currency, NewConversion, Refunded,
    ValueTotal,
};
use shortlink_core::ports::StoreError;
use vocabulary::{CampaignId, ClickId, Code};

use crate::Store;
use crate::db::Db;
use crate::external_ids::{self, Wanted};
use crate::rows::known_ids;
use crate::sql::{FOR_UPDATE, IN_NUMBERS, Sql, sql, table};
use crate::value::{Row, Value, args, invalid};
use crate::visits::erasure::{erased_until, of_campaign, of_link, overwrite};
use crate::visits::{click_ids, variants};

/// The most conversions that a step of an erasure deletes.
const ERASED_PER_STEP: u32 = 5_000;

/// The currency of the row with the count of all conversions.
const ALL: &str = "";

/// The links with some ids. `$2` is true if all links are reached, otherwise those that the keys in `$3` have created.
const BY_ID: Sql = sql!(
    "SELECT id FROM links WHERE id",
    IN_NUMBERS,
    " AND ($2 OR created_by {IN (SELECT value FROM json_each($3))|= ANY($3::text[])})"
);

/// Locks links.
const LOCK: Sql = sql!(
    "SELECT id, code, coalesce(campaign_id, 0) AS campaign_id FROM links WHERE id",
    IN_NUMBERS,
    " ORDER BY id",
    FOR_UPDATE
);

/// The link and the id of a conversion.
type Key = (i64, String);

/// The value of a conversion, if it has one.
type Worth = Option<(Currency, Amount)>;

/// The share of a conversion in totals: the number, and the currency and the value.
pub(crate) type Part<'a> = (i64, Option<(&'a str, i64)>);

/// A stored conversion.
struct Kept {
    value: Worth,
    /// The refunded part of the value, if there was a refund.
    refunded: Option<i64>,
    /// The variant that it counts for.
    variant: Option<String>,
}

impl Kept {
    /// Without a rest of the value, a conversion with a refund counts no more.
    fn part(&self) -> Part<'_> {
        let value = self.value.as_ref();
        let worth = value.map_or(0, |(_, amount)| amount.0);
        let rest = worth - self.refunded.unwrap_or_default();
        let counts = self.refunded.is_none() || rest > 0;
        let value = value.map(|(currency, _)| (currency.as_str(), rest));
        (i64::from(counts), value)
    }

    /// The part of the value that a refund means; `None` if there is less.
    fn refund(&self, refunded: Refunded) -> Option<i64> {
        let value = self.value.as_ref().map(|(_, amount)| amount.0);
        match refunded {
            Refunded::All => Some(value.unwrap_or_default()),
            Refunded::Amount(Amount(part)) => value.filter(|it| part <= *it).map(|_| part),
        }
    }
}

/// A link that is locked.
struct Locked {
    code: Code,
    /// Its campaign, or 0.
    campaign: i64,
}

/// A sum of conversions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    conversions: i64,
    value: i64,
}

impl Sum {
    fn with(self, other: Self) -> Self {
        Self {
            conversions: self.conversions + other.conversions,
            value: self.value.saturating_add(other.value),
        }
    }

    fn read(row: &Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            conversions: row.get("conversions")?,
            value: row.get("value")?,
        })
    }
}

/// Changes of the totals of links, by link and currency.
#[derive(Debug, Default)]
struct Changes(BTreeMap<(i64, String), Sum>);

impl Changes {
    /// Adds what a conversion counts for, or with `-1` takes it away.
    fn add(&mut self, link: i64, (conversions, value): Part<'_>, by: i64) {
        for (currency, value) in [Some((ALL, 0)), value].into_iter().flatten() {
            let change = Sum {
                conversions: conversions * by,
                value: value * by,
            };
            let sum = self.0.entry((link, currency.to_owned())).or_default();
            *sum = sum.with(change);
        }
    }

    /// Stores the totals of links, which are locked, and of their campaigns.
    async fn store(
        mut self,
        db: &mut Db<'_>,
        links: &HashMap<i64, Locked>,
    ) -> Result<(), sqlx::Error> {
        self.0.retain(|_, sum| *sum != Sum::default());
        let ids: Vec<i64> = self.0.keys().map(|(link, _)| *link).collect();
        let sql = sql!(
            "SELECT link_id, currency, conversions, value FROM link_conversions WHERE link_id",
            IN_NUMBERS
        );
        let read = |row: &Row| {
            let key: (i64, String) = (row.get("link_id")?, row.get("currency")?);
            Ok((key, Sum::read(row)?))
        };
        let stored: HashMap<(i64, String), Sum> = db.all(sql, args![ids], read).await?;
        let mut of_campaigns: BTreeMap<(i64, &str), (i64, Sum)> = BTreeMap::new();
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        for (key, change) in &self.0 {
            let before = stored.get(key).copied().unwrap_or_default();
            let after = before.with(*change);
            let (link, currency) = (key.0, key.1.as_str());
            if after.conversions > 0 {
                let [count, value] = [after.conversions, after.value].map(Value::from);
                changed.push([link.into(), currency.into(), count, value]);
            } else {
                gone.push([Value::from(link), currency.into()]);
            }
            let Some(campaign) = links.get(&link).map(|it| it.campaign).filter(|id| *id != 0)
            else {
                continue;
            };
            let of = of_campaigns.entry((campaign, currency)).or_default();
            of.0 += i64::from(after.conversions > 0) - i64::from(before.conversions > 0);
            of.1 = of.1.with(*change);
        }
        let into =
            sql!("INSERT INTO link_conversions AS kept (link_id, currency, conversions, value)");
        let end = sql!(
            " ON CONFLICT (link_id, currency) DO UPDATE SET conversions = excluded.conversions, \
             value = excluded.value"
        );
        let types = ["bigint", "text", "bigint", "bigint"];
        db.insert(into, types, end, changed.into_iter()).await?;
        let from = sql!("DELETE FROM link_conversions");
        let key = [(sql!("link_id"), "bigint"), (sql!("currency"), "text")];
        db.delete(from, key, gone.into_iter(), sql!("")).await?;
        store_of_campaigns(db, &of_campaigns).await
    }
}

async fn store_of_campaigns(
    db: &mut Db<'_>,
    changes: &BTreeMap<(i64, &str), (i64, Sum)>,
) -> Result<(), sqlx::Error> {
    let rows = changes.iter().map(|((campaign, currency), (links, sum))| {
        let currency = Value::from(*currency);
        let numbers = [*links, sum.conversions, sum.value].map(Value::from);
        let [links, conversions, value] = numbers;
        [(*campaign).into(), currency, links, conversions, value]
    });
    let into = sql!(
        "INSERT INTO campaign_conversions AS kept (campaign_id, currency, links, conversions, value)"
    );
    // The sum of integers that are too large is a real number in SQLite, and an error in PostgreSQL.
    let end = sql!(
        " ON CONFLICT (campaign_id, currency) DO UPDATE SET links = kept.links + excluded.links, \
         conversions = kept.conversions + excluded.conversions, \
         value = {min(kept.value + excluded.value, 9223372036854775807)|\
         CAST(least(CAST(kept.value AS numeric) + excluded.value, 9223372036854775807) AS bigint)}"
    );
    let types = ["bigint", "text", "bigint", "bigint", "bigint"];
    db.insert(into, types, end, rows).await?;
    let less = changes.iter().filter(|(_, (_, sum))| sum.conversions < 0);
    let less: Vec<_> = less
        .map(|((campaign, currency), _)| [Value::from(*campaign), (*currency).into()])
        .collect();
    let from = sql!("DELETE FROM campaign_conversions");
    let key = [(sql!("campaign_id"), "bigint"), (sql!("currency"), "text")];
    let end = sql!(" AND conversions <= 0");
    db.delete(from, key, less.into_iter(), end).await
}

impl Store {
    /// Counts conversions, of links that one of the keys `own` has created if there are any; returns the outcome of each.
    /// A repetition is counted once.
    #[boxed]
    pub async fn report_conversions(
        &self,
        reported: Vec<NewConversion>,
        own: Option<Vec<String>>,
    ) -> Result<Vec<ConversionOutcome>, StoreError> {
        let args = (reported, own);
        let operation = "find the links of conversions";
        let found = self.read(operation, &args, |db, (reported, own)| {
            Box::pin(find(db, reported, own.as_deref()))
        });
        let found = found.await?;
        let found: Vec<_> = found.into_iter().zip(args.0).collect();
        self.run_tx("report conversions", found, |db, found| {
            Box::pin(report(db, found))
        })
        .await
    }

    /// Returns the totals of a campaign.
    #[boxed]
    pub async fn campaign_conversions(
        &self,
        id: CampaignId,
    ) -> Result<ConversionTotals, StoreError> {
        let sql = sql!(
            "SELECT currency, links, conversions, value FROM campaign_conversions WHERE campaign_id = $1 \
             ORDER BY currency"
        );
        let read = |row: &Row| Ok((total(row)?, row.get("links")?));
        let operation = "read the conversions of a campaign";
        self.all(operation, sql, args![id], read).await.map(totals)
    }

    /// Returns the totals of a link, which are 0 if it does not exist.
    #[boxed]
    pub async fn link_conversions(&self, code: &Code) -> Result<ConversionTotals, StoreError> {
        let found = self.read("read the conversions of a link", *code, |db, code| {
            Box::pin(async move {
                let ids: Vec<i64> = known_ids(db, &[*code])
                    .await?
                    .into_iter()
                    .flatten()
                    .collect();
                let sql = sql!(
                    "SELECT currency, conversions, value FROM link_conversions WHERE link_id",
                    IN_NUMBERS,
                    " ORDER BY currency"
                );
                db.all(sql, args![ids], |row| Ok((total(row)?, 1))).await
            })
        });
        found.await.map(totals)
    }
}

/// Reads a row; no currency is that of all conversions.
fn total(row: &Row) -> Result<(Option<Currency>, Sum), sqlx::Error> {
    let currency = match row.get::<&str>("currency")? {
        ALL => None,
        text => Some(text.parse().map_err(|_error| invalid("currency"))?),
    };
    Ok((currency, Sum::read(row)?))
}

fn totals(rows: Vec<((Option<Currency>, Sum), u64)>) -> ConversionTotals {
    let mut totals = ConversionTotals::default();
    for ((currency, sum), links) in rows {
        let conversions = sum.conversions.unsigned_abs();
        match currency {
            None => (totals.links, totals.conversions) = (links, conversions),
            Some(currency) => totals.values.push(ValueTotal {
                currency,
                conversions,
                value: Amount(sum.value),
            }),
        }
    }
    totals
}

/// The id of a link with the variant that the visit of a click id followed, or the outcome of a conversion of none.
type Found = Result<(i64, Option<String>), ConversionOutcome>;

/// Finds the links that conversions name.
async fn find(
    db: &mut Db<'_>,
    reported: &[NewConversion],
    own: Option<&[String]>,
) -> Result<Vec<Found>, sqlx::Error> {
    let mut found = vec![Err(ConversionOutcome::Unknown); reported.len()];
    let clicked = reported.iter().filter_map(|it| match it.of {
        Converted::ClickId(id) => Some(id),
        _ => None,
    });
    let clicked: Vec<ClickId> = clicked.collect();
    let clicked = click_ids::codes(db, &clicked).await?;
    let mut codes = Vec::new();
    let mut external = Vec::new();
    for (place, conversion) in reported.iter().enumerate() {
        match &conversion.of {
            Converted::Code(code) => codes.push(((place, None), *code)),
            Converted::ClickId(id) => codes.extend(clicked.get(id).map(|(code, variant)| {
                let of = (place, Some(variant.clone()));
                (of, *code)
            })),
            Converted::ExternalId { id, campaign } => {
                let campaign = campaign.map_or(0, |id| id.get().cast_signed());
                external.push(Wanted {
                    place,
                    id,
                    campaign,
                });
            }
        }
    }
    if !codes.is_empty() {
        let (places, codes): (Vec<_>, Vec<Code>) = codes.into_iter().unzip();
        let ids = known_ids(db, &codes).await?;
        let known: Vec<i64> = ids.iter().flatten().copied().collect();
        let own_ids: Vec<&str> = own.unwrap_or_default().iter().map(String::as_str).collect();
        let values = args![known, own.is_none(), own_ids];
        let reached: HashSet<i64> = db.all(BY_ID, values, |row| row.get("id")).await?;
        for ((place, variant), id) in places.into_iter().zip(ids) {
            let id = id.filter(|id| reached.contains(id));
            let id = id.map(|id| (id, variant));
            found[place] = id.ok_or(ConversionOutcome::Unknown);
        }
    }
    for (place, ids) in external_ids::find(db, &external, own).await? {
        found[place] = match ids[..] {
            [] => Err(ConversionOutcome::Unknown),
            [id] => Ok((id, None)),
            _ => Err(ConversionOutcome::Ambiguous),
        };
    }
    Ok(found)
}

/// Stores those of conversions that are new.
async fn report(
    db: &mut Db<'_>,
    found: &[(Found, NewConversion)],
) -> Result<Vec<ConversionOutcome>, sqlx::Error> {
    let ids = found
        .iter()
        .filter_map(|(link, _)| Some(link.as_ref().ok()?.0));
    let links = lock(db, ids).await?;
    let ids: Vec<i64> = links.keys().copied().collect();
    let followed = variants::followed(db, &ids).await?;
    // Erasures of these links wait for the lock from now on.
    let first = found.iter().map(|(_, it)| it.at).min().unwrap_or_default();
    let subjects = || {
        let subjects = links.values().flat_map(|it| {
            let campaign = (it.campaign != 0).then(|| of_campaign(it.campaign));
            [Some(of_link(it.code.as_str())), campaign]
        });
        subjects.flatten().collect()
    };
    let erased = erased_until(db, first, subjects).await?;
    let is_erased = |name: &str, at: Timestamp| erased.get(name).is_some_and(|until| at <= *until);
    let mut kept = stored(db, found).await?;
    let mut changes = Changes::default();
    let mut by_variant = variants::Conversions::default();
    let mut changed: BTreeMap<Key, Timestamp> = BTreeMap::new();
    let outcomes = found.iter().map(|(link, conversion)| {
        let (id, clicked) = match link {
            Ok((id, clicked)) => (*id, clicked),
            Err(outcome) => return *outcome,
        };
        // Otherwise it was deleted meanwhile.
        let Some(link) = links.get(&id) else {
            return ConversionOutcome::Unknown;
        };
        let mut count = |it: &Kept, by| {
            changes.add(id, it.part(), by);
            if let Some(variant) = &it.variant {
                by_variant.add((link.campaign, link.code.as_str(), variant), it.part(), by);
            }
        };
        let key = (id, conversion.id.clone());
        let found = kept.get_mut(&key);
        if let Some(of_all) = conversion.refunded {
            let Some(it) = found else {
                return ConversionOutcome::NoConversion(link.code);
            };
            let Some(part) = it.refund(of_all) else {
                return ConversionOutcome::TooMuch(link.code);
            };
            if it.refunded >= Some(part) {
                return ConversionOutcome::Repeated(link.code);
            }
            count(it, -1);
            it.refunded = Some(part);
            count(it, 1);
            changed.entry(key).or_insert(conversion.at);
            return ConversionOutcome::New(link.code);
        }
        if is_erased(&of_link(link.code.as_str()), conversion.at)
            || is_erased(&of_campaign(link.campaign), conversion.at)
        {
            return ConversionOutcome::Erased(link.code);
        }
        match found {
            Some(it) if it.value == conversion.value => ConversionOutcome::Repeated(link.code),
            Some(_) => ConversionOutcome::Different(link.code),
            None => {
                let followed = followed.get(link.code.as_str()).map(Vec::as_slice);
                let variant = variant_of(clicked.as_ref(), followed.unwrap_or_default());
                let it = Kept {
                    value: conversion.value,
                    refunded: None,
                    variant: variant.map(str::to_owned),
                };
                count(&it, 1);
                kept.insert(key.clone(), it);
                changed.insert(key, conversion.at);
                ConversionOutcome::New(link.code)
            }
        }
    });
    let outcomes = outcomes.collect();
    let rows = changed.iter().filter_map(|(key, at)| {
        let it = kept.get(key)?;
        let value = it.value.as_ref();
        let (currency, amount) = value.map(|it| (it.0.as_str(), it.1.0)).unzip();
        let [link, id, variant] = [key.0.into(), (&key.1).into(), (&it.variant).into()];
        let [amount, refunded] = [amount, it.refunded].map(Value::from);
        Some([
            link,
            id,
            (*at).into(),
            currency.into(),
            amount,
            variant,
            refunded,
        ])
    });
    let rows: Vec<_> = rows.collect();
    let into =
        sql!("INSERT INTO conversions (link_id, id, at, currency, value, variant, refunded)");
    let types = [
        "bigint", "text", "bigint", "text", "bigint", "text", "bigint",
    ];
    let end = sql!(" ON CONFLICT (link_id, id) DO UPDATE SET refunded = excluded.refunded");
    db.insert(into, types, end, rows.into_iter()).await?;
    changes.store(db, &links).await?;
    by_variant.store(db).await?;
    Ok(outcomes)
}

/// The variant that a conversion counts for: that of its visit, or the only one that human visits of the link have. `None`
/// for a link of no test, and if they have several.
fn variant_of<'a>(clicked: Option<&'a String>, followed: &'a [String]) -> Option<&'a str> {
    match (clicked, followed) {
        (_, []) => None,
        (Some(variant), _) => Some(variant),
        (None, [variant]) => Some(variant),
        (None, _) => None,
    }
}

/// Locks links until the end of the transaction; returns those that exist, by their ids.
async fn lock(
    db: &mut Db<'_>,
    ids: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, Locked>, sqlx::Error> {
    let ids: BTreeSet<i64> = ids.collect();
    let ids: Vec<i64> = ids.into_iter().collect();
    let read = |row: &Row| {
        let locked = Locked {
            code: row.get("code")?,
            campaign: row.get("campaign_id")?,
        };
        Ok((row.get("id")?, locked))
    };
    db.all(LOCK, args![ids], read).await
}

/// Those of conversions that are stored, by link and id.
async fn stored(
    db: &mut Db<'_>,
    found: &[(Found, NewConversion)],
) -> Result<HashMap<Key, Kept>, sqlx::Error> {
    let wanted = found.iter();
    let wanted = wanted.filter_map(|(link, it)| {
        let (id, _) = link.as_ref().ok()?;
        Some([(*id).into(), (&it.id).into()])
    });
    let wanted: Vec<[Value<'_>; 2]> = wanted.collect();
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = sql!(
        "SELECT DISTINCT kept.link_id AS link_id, kept.id AS id, currency, value, refunded, variant FROM ",
        table!("wanted": 1 "link_id" "bigint", 2 "id" "text"),
        " CROSS JOIN conversions AS kept WHERE kept.link_id = wanted.link_id AND kept.id = wanted.id"
    );
    let values = db.table(wanted.into_iter());
    db.all(sql, &values, kept).await
}

/// Reads a conversion.
fn kept(row: &Row) -> Result<(Key, Kept), sqlx::Error> {
    let it = Kept {
        value: value(row)?,
        refunded: row.find("refunded")?,
        variant: row.find("variant")?,
    };
    Ok(((row.get("link_id")?, row.get("id")?), it))
}

/// Reads the value of a conversion.
fn value(row: &Row) -> Result<Worth, sqlx::Error> {
    let currency: Option<&str> = row.find("currency")?;
    let currency: Option<Currency> = currency
        .map(|text| text.parse().map_err(|_error| invalid("currency")))
        .transpose()?;
    Ok(currency.zip(row.find("value")?.map(Amount)))
}

/// Deletes some conversions of links that were deleted; their campaigns still count them. Returns false if there may be
/// more of them.
pub(crate) async fn forget(db: &mut Db<'_>, codes: &[Code]) -> Result<bool, sqlx::Error> {
    let ids: Vec<i64> = known_ids(db, codes).await?.into_iter().flatten().collect();
    let sql = sql!(
        "DELETE FROM conversions WHERE (link_id, id) IN (SELECT link_id, id FROM conversions WHERE link_id",
        IN_NUMBERS,
        " LIMIT $2)"
    );
    let deleted = db.run(sql, args![ids, ERASED_PER_STEP]).await?;
    Ok(deleted < u64::from(ERASED_PER_STEP))
}

/// Erases conversions of links up to a time, and takes them out of the totals. The links are locked. Returns false if
/// there may be more of them.
pub(crate) async fn erase(
    db: &mut Db<'_>,
    codes: &[Code],
    until: Timestamp,
) -> Result<bool, sqlx::Error> {
    let ids: Vec<i64> = known_ids(db, codes).await?.into_iter().flatten().collect();
    let sql = sql!(
        "SELECT link_id, id, currency, value, refunded, variant FROM conversions WHERE link_id",
        IN_NUMBERS,
        " AND at <= $2 LIMIT $3"
    );
    let values = args![ids, until, ERASED_PER_STEP];
    let gone: Vec<(Key, Kept)> = db.all(sql, values, kept).await?;
    if gone.is_empty() {
        return Ok(true);
    }
    let keys = gone
        .iter()
        .map(|((link, id), _)| [(*link).into(), id.into()]);
    let from = sql!("DELETE FROM conversions");
    let key = [(sql!("link_id"), "bigint"), (sql!("id"), "text")];
    overwrite(db, true).await?;
    let deleted = db.delete(from, key, keys, sql!("")).await;
    overwrite(db, false).await?;
    deleted?;
    let links = lock(db, gone.iter().map(|((link, _), _)| *link)).await?;
    let mut changes = Changes::default();
    let mut by_variant = variants::Conversions::default();
    for ((id, _), it) in &gone {
        changes.add(*id, it.part(), -1);
        if let (Some(link), Some(variant)) = (links.get(id), &it.variant) {
            by_variant.add((link.campaign, link.code.as_str(), variant), it.part(), -1);
        }
    }
    changes.store(db, &links).await?;
    by_variant.store(db).await?;
    Ok(gone.len() < ERASED_PER_STEP as usize)
}
