//! Removes the values of erased visits from counts: countries, devices, browsers, systems, referrers, networks, variants,
//! and visitors.
//!
//! A value that only one person has identifies this person in each count. So the values of erased visits are counted as
//! [`OTHER`] afterwards, in the transaction that deletes the visits or, for ClickHouse, in the one that notes their number.
//! The counts by class, domain and status stay: they identify no one. The unique visitors of the days are counted again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shortlink_clickhouse::Erased as ErasedInClickHouse;
use shortlink_core::ports::{Dimension, OTHER};
use shortlink_core::visit::class::Class;

use super::erasure::overwrite;
use super::keeping::add;
use super::reclassify::{mark_stale, remove_empty};
use super::{ALL, Counts, HOUR_MS};
use crate::Scheme;
use crate::db::Db;
use crate::shared::DAY_MS;
use crate::sql::{IN_NUMBERS, Sql, sql, table};
use crate::value::{Row, Value, args};

/// The dimensions whose values go.
pub(super) const DIMENSIONS: [Dimension; 7] = [
    Dimension::Country,
    Dimension::Device,
    Dimension::Browser,
    Dimension::Os,
    Dimension::Referrer,
    Dimension::Network,
    Dimension::Variant,
];

/// The columns of a deleted visit that [`ErasedVisit::read`] reads.
pub(super) const COLUMNS: &str = "id, agent_id, at, class, campaign_id, country, referrer_host, isp, variant, \
     CAST(CASE WHEN class = 'human' AND visitor IS NOT NULL THEN 1 ELSE 0 END AS bigint) AS is_person";

/// A deleted visit.
#[derive(Debug)]
pub(super) struct ErasedVisit {
    pub(super) id: i64,
    pub(super) agent: i64,
    at: i64,
    class: Option<Class>,
    campaign: Option<i64>,
    country: Option<String>,
    referrer: Option<String>,
    network: Option<String>,
    variant: Option<String>,
    is_person: bool,
}

impl ErasedVisit {
    pub(super) fn read(row: &Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.get("id")?,
            agent: row.get("agent_id")?,
            at: row.get("at")?,
            class: Class::by_name(row.get("class")?),
            campaign: row.find("campaign_id")?,
            country: row.find("country")?,
            referrer: row.find("referrer_host")?,
            network: row.find("isp")?,
            variant: row.find("variant")?,
            is_person: row.get::<i64>("is_person")? != 0,
        })
    }
}

/// The properties of a user agent that are counted: device, browser and system.
type Agent = [String; 3];

/// A count of visits: its campaign, dimension, hour, value and class.
type Key = (i64, &'static str, i64, String, &'static str);

/// The counts that erased visits are in.
#[derive(Debug, Default)]
pub(super) struct Erased {
    /// The number of erased visits in each count.
    hours: BTreeMap<Key, i64>,
    /// The campaigns and days whose unique visitors have to be counted again.
    stale: BTreeSet<(i64, i64)>,
}

impl Erased {
    /// The counts of visits that have been deleted from SQL.
    pub(super) async fn of(db: &mut Db<'_>, visits: &[ErasedVisit]) -> Result<Self, sqlx::Error> {
        let agents = agents(db, visits).await?;
        let mut erased = Self::default();
        for visit in visits {
            let Some(class) = visit.class else { continue };
            let hour = visit.at.div_euclid(HOUR_MS);
            let agent = agents.get(&visit.agent);
            for dimension in DIMENSIONS {
                let value = match dimension {
                    Dimension::Country => visit.country.as_deref(),
                    Dimension::Referrer => visit.referrer.as_deref(),
                    Dimension::Network => visit.network.as_deref(),
                    Dimension::Variant => visit.variant.as_deref(),
                    Dimension::Device => agent.map(|it| &*it[0]),
                    Dimension::Browser => agent.map(|it| &*it[1]),
                    _ => agent.map(|it| &*it[2]),
                };
                let value = value.unwrap_or_default();
                erased.add(visit.campaign, dimension, hour, value, class, 1);
            }
            if visit.is_person {
                erased.lose_people(visit.campaign, visit.at.div_euclid(DAY_MS));
            }
        }
        Ok(erased)
    }

    /// The counts of visits that are to be deleted from ClickHouse.
    pub(super) fn of_clickhouse(found: &ErasedInClickHouse) -> Self {
        let mut erased = Self::default();
        for it in &found.values {
            let Some(class) = Class::by_name(&it.class) else {
                continue;
            };
            let visits = it.visits.cast_signed();
            let campaign = (it.campaign != ALL).then_some(it.campaign);
            erased.add(campaign, it.dimension, it.hour, &it.value, class, visits);
        }
        for (campaign, day) in &found.days {
            erased.lose_people((*campaign != ALL).then_some(*campaign), *day);
        }
        erased
    }

    fn add(
        &mut self,
        campaign: Option<i64>,
        dimension: Dimension,
        hour: i64,
        value: &str,
        class: Class,
        visits: i64,
    ) {
        // An unknown value is one of many visits.
        if value.is_empty() || value == OTHER {
            return;
        }
        for of in [Some(ALL), campaign].into_iter().flatten() {
            let key = (of, dimension.name(), hour, value.to_owned(), class.name());
            *self.hours.entry(key).or_default() += visits;
        }
    }

    fn lose_people(&mut self, campaign: Option<i64>, day: i64) {
        let of = [Some(ALL), campaign].into_iter().flatten();
        self.stale.extend(of.map(|of| (of, day)));
    }

    /// Counts the values of the visits as [`OTHER`], where they are counted: counts of hours that were deleted since do
    /// not come back. Locks in the order of new visits, behind the counts of links. Returns the number of counts.
    pub(super) async fn take_out(self, db: &mut Db<'_>) -> Result<u64, sqlx::Error> {
        let counted = counted(db, &self.hours).await?;
        let mut counts = Counts::default();
        for (place, (key, visits)) in (0..).zip(&self.hours) {
            if counted.contains(&place) {
                let (campaign, dimension, hour, ref value, class) = *key;
                for (value, by) in [(&**value, -visits), (OTHER, *visits)] {
                    let key = (campaign, dimension, hour, value, class);
                    *counts.hours.entry(key).or_default() += by;
                }
            }
        }
        // In SQLite, rows that are inserted before others are gone may have it move these, and leave copies. PostgreSQL
        // locks all in one order.
        let mut later = Counts::default();
        if db.scheme() == Scheme::Sqlite {
            later.hours = counts.hours.extract_if(.., |_, by| *by > 0).collect();
        }
        overwrite(db, true).await?;
        let done = async {
            add(db, &counts).await?;
            let removed = remove_empty(db, &counts).await?;
            let is_left = |place, (campaign, dimension, hour, value, class): &Key| {
                let (dimension, class) = ((*dimension).to_owned(), (*class).to_owned());
                let key = (*campaign, dimension, *hour, value.clone(), class);
                counted.contains(&place) && !removed.contains(&key)
            };
            forget_names(db, &self.hours, is_left).await?;
            add(db, &later).await
        };
        let done = done.await;
        overwrite(db, false).await?;
        done?;
        mark_stale(db, &self.stale).await?;
        Ok(counted.len() as u64)
    }
}

/// The user agents of visits. Their rows stay for a while.
async fn agents(
    db: &mut Db<'_>,
    visits: &[ErasedVisit],
) -> Result<HashMap<i64, Agent>, sqlx::Error> {
    let ids: BTreeSet<i64> = visits.iter().map(|visit| visit.agent).collect();
    let ids: Vec<i64> = ids.into_iter().collect();
    let sql = sql!(
        "SELECT id, device, browser, os FROM visit_agents WHERE id",
        IN_NUMBERS
    );
    let read = |row: &Row| {
        let text = |name| Ok::<_, sqlx::Error>(row.find::<String>(name)?.unwrap_or_default());
        Ok((
            row.get("id")?,
            [text("device")?, text("browser")?, text("os")?],
        ))
    };
    db.all(sql, args![ids], read).await
}

/// The places of the counts that exist.
async fn counted(
    db: &mut Db<'_>,
    hours: &BTreeMap<Key, i64>,
) -> Result<BTreeSet<i64>, sqlx::Error> {
    if hours.is_empty() {
        return Ok(BTreeSet::new());
    }
    let sql = sql!(
        "SELECT asked.place FROM ",
        table!("asked": 1 "campaign_id" "bigint", 2 "dimension" "text", 3 "hour" "bigint",
            4 "value" "text", 5 "class" "text", 6 "place" "bigint"),
        " {CROSS JOIN visit_hours AS kept WHERE|JOIN visit_hours AS kept ON} \
         kept.campaign_id = asked.campaign_id AND kept.dimension = asked.dimension \
         AND kept.hour = asked.hour AND kept.value = asked.value AND kept.class = asked.class"
    );
    let rows = hours.keys().zip(0_i64..);
    let rows = rows.map(|((campaign, dimension, hour, value, class), place)| {
        [
            (*campaign).into(),
            (*dimension).into(),
            (*hour).into(),
            value.into(),
            (*class).into(),
            place.into(),
        ]
    });
    let rows: Vec<[Value<'_>; 6]> = rows.collect();
    let asked = db.table(rows.into_iter());
    db.all(sql, &asked, |row: &Row| row.get("place")).await
}

/// Names that no count of their day has any more. PostgreSQL looks for those of each name, and does not join all.
const UNCOUNTED: Sql = sql!(
    " AND NOT EXISTS (SELECT 1 FROM \
     {json_each('[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23]') AS hours CROSS \
     |generate_series(0, 23) AS hours (value) }JOIN visit_hours AS counted \
     ON counted.campaign_id = kept.campaign_id AND counted.dimension = kept.dimension \
     AND counted.hour = kept.day * 24 + hours.value AND counted.value = kept.value{| OFFSET 0}) \
     RETURNING campaign_id, dimension, day, '(erased) ' || {lower(hex(randomblob(8)))|md5(random()::text)} AS other"
);

/// Forgets the names of values that are not counted by name any more. Others take their place: a value that got no name
/// because the day had enough must not get one later. Most still have one of the counts, which `is_left`, and are not asked
/// for.
async fn forget_names(
    db: &mut Db<'_>,
    hours: &BTreeMap<Key, i64>,
    is_left: impl Fn(i64, &Key) -> bool,
) -> Result<(), sqlx::Error> {
    let (mut named, mut gone) = (BTreeSet::new(), BTreeSet::new());
    for (place, key) in (0..).zip(hours.keys()) {
        let (campaign, dimension, hour, value, _) = key;
        if Dimension::by_name(dimension).is_some_and(Dimension::is_chosen) {
            let name = (*campaign, *dimension, hour.div_euclid(24), value);
            let of = if is_left(place, key) {
                &mut named
            } else {
                &mut gone
            };
            of.insert(name);
        }
    }
    let rows = gone
        .difference(&named)
        .map(|(campaign, dimension, day, value)| {
            let campaign: Value<'_> = (*campaign).into();
            [
                campaign,
                (*dimension).into(),
                (*day).into(),
                (*value).into(),
            ]
        });
    let from = sql!("DELETE FROM visit_values");
    let key = [
        (sql!("campaign_id"), "bigint"),
        (sql!("dimension"), "text"),
        (sql!("day"), "bigint"),
        (sql!("value"), "text"),
    ];
    let read = |row: &Row| {
        let dimension: String = row.get("dimension")?;
        Ok((
            row.get("campaign_id")?,
            dimension,
            row.get("day")?,
            row.get("other")?,
        ))
    };
    let rows = Vec::into_iter(rows.collect());
    let places: Vec<(i64, String, i64, String)> = db
        .delete_returning(from, key, rows, UNCOUNTED, read)
        .await?;
    let rows = places.iter().map(|(campaign, dimension, day, value)| {
        let campaign: Value<'_> = (*campaign).into();
        [campaign, dimension.into(), (*day).into(), value.into()]
    });
    let into = sql!("INSERT INTO visit_values (campaign_id, dimension, day, value)");
    let types = ["bigint", "text", "bigint", "text"];
    db.insert(into, types, sql!(""), rows).await
}
