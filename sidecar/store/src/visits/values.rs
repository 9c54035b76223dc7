//! Bounds the number of values that are counted by name.
//!
//! Visitors choose referrers, hosts and user agents, and so the rows of their counts. The first
//! [`MAX_VALUES`] values of a campaign, a dimension and a day are noted, and counted by name; all
//! others are counted as [`OTHER`]. The notes of a day grow until they
//! are deleted with its counts. So a value that has no name never gets one, and a reclassified visit
//! is subtracted where it was added.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use shortlink_core::ports::{Dimension, MAX_VALUES, OTHER};

use super::{ALL, Counts, MINUTE_MS};
use crate::Scheme;
use crate::db::Db;
use crate::shared::DAY_MS;
use crate::sql::{sql, table};
use crate::value::{Row, Value, args};

/// Advisory lock of the transaction that notes new values: "shortval".
const LOCK: i64 = 0x7368_6f72_7476_616c;

const HOURS_OF_DAY: i64 = 24;
const MINUTES_OF_DAY: i64 = DAY_MS / MINUTE_MS;

/// A value of a campaign, a dimension and a day.
type Named<'a> = (i64, &'static str, i64, &'a str);

/// Moves additions to the counts of values without a name to those of [`OTHER`]. Notes new values
/// while the day has fewer than [`MAX_VALUES`]. Must be followed by the additions in the same transaction.
pub(super) async fn name(db: &mut Db<'_>, counts: &mut Counts<'_>) -> Result<(), sqlx::Error> {
    let mut unknown = BTreeSet::new();
    let mut rest = HashSet::new();
    for (campaign, dimension, hour, value, _) in counts.hours.keys() {
        let is_chosen = Dimension::by_name(dimension).is_some_and(Dimension::is_chosen);
        let of = (*campaign, *dimension, hour.div_euclid(HOURS_OF_DAY));
        if is_chosen && !value.is_empty() && *value != OTHER {
            unknown.insert((of.0, of.1, of.2, *value));
        }
    }
    remove_noted(db, &mut unknown).await?;
    if unknown.is_empty() {
        return Ok(());
    }
    if db.scheme() == Scheme::Postgres {
        db.lock(LOCK).await?;
        remove_noted(db, &mut unknown).await?;
    }
    let mut rooms: BTreeMap<(i64, &str, i64), i64> = BTreeMap::new();
    let mut new = Vec::new();
    for value in unknown {
        let of = (value.0, value.1, value.2);
        let room = match rooms.get_mut(&of) {
            Some(room) => room,
            None => {
                let room = MAX_VALUES - noted(db, of).await?;
                rooms.entry(of).or_insert(room)
            }
        };
        if *room > 0 {
            *room -= 1;
            new.push(value);
        } else {
            rest.insert(value);
        }
    }
    let into = sql!("INSERT INTO visit_values (campaign_id, dimension, day, value)");
    let types = ["bigint", "text", "bigint", "text"];
    db.insert(into, types, sql!(""), new.iter().map(row))
        .await?;
    if !rest.is_empty() {
        merge(counts, &rest);
    }
    Ok(())
}

/// The number of noted values of a campaign, a dimension and a day.
async fn noted(db: &mut Db<'_>, of: (i64, &'static str, i64)) -> Result<i64, sqlx::Error> {
    let sql = sql!(
        "SELECT count(*) AS noted FROM visit_values \
         WHERE campaign_id = $1 AND dimension = $2 AND day = $3"
    );
    db.get(sql, args![of.0, of.1, of.2], |row| row.get("noted"))
        .await
}

/// Removes the values that are noted.
async fn remove_noted(
    db: &mut Db<'_>,
    values: &mut BTreeSet<Named<'_>>,
) -> Result<(), sqlx::Error> {
    if values.is_empty() {
        return Ok(());
    }
    let sql = sql!(
        "SELECT asked.place FROM ",
        table!("asked": 1 "campaign_id" "bigint", 2 "dimension" "text", 3 "day" "bigint",
            4 "value" "text", 5 "place" "bigint"),
        " {CROSS JOIN visit_values AS kept WHERE|JOIN visit_values AS kept ON} \
         kept.campaign_id = asked.campaign_id AND kept.dimension = asked.dimension \
         AND kept.day = asked.day AND kept.value = asked.value"
    );
    let rows = values.iter().zip(0_i64..).map(|(value, place)| {
        let [campaign, dimension, day, value] = row(value);
        [campaign, dimension, day, value, place.into()]
    });
    let asked = db.table(rows.collect::<Vec<_>>().into_iter());
    let noted: HashSet<i64> = db.all(sql, &asked, |row: &Row| row.get("place")).await?;
    let mut places = 0..;
    values.retain(|_| places.next().is_none_or(|place| !noted.contains(&place)));
    Ok(())
}

fn row<'a>((campaign, dimension, day, value): &Named<'a>) -> [Value<'a>; 4] {
    [
        (*campaign).into(),
        (*dimension).into(),
        (*day).into(),
        (*value).into(),
    ]
}

/// Adds the additions of some values up.
fn merge(counts: &mut Counts<'_>, rest: &HashSet<Named<'_>>) {
    let named =
        |of, dimension: &'static str, day, value| match rest.get(&(of, dimension, day, value)) {
            Some(_) => OTHER,
            None => value,
        };
    for ((campaign, dimension, hour, value, class), visits) in std::mem::take(&mut counts.hours) {
        let value = named(campaign, dimension, hour.div_euclid(HOURS_OF_DAY), value);
        let key = (campaign, dimension, hour, value, class);
        *counts.hours.entry(key).or_default() += visits;
    }
    counts.hours.retain(|_, visits| *visits != 0);
    let host_at = |minute: i64, host| {
        let day = minute.div_euclid(MINUTES_OF_DAY);
        named(ALL, Dimension::Domain.name(), day, host)
    };
    for ((minute, host), visits) in std::mem::take(&mut counts.domains) {
        let key = (minute, host_at(minute, host));
        *counts.domains.entry(key).or_default() += visits;
    }
    for ((minute, host, network), visits) in std::mem::take(&mut counts.networks) {
        let day = minute.div_euclid(MINUTES_OF_DAY);
        let network = named(ALL, Dimension::Network.name(), day, network);
        let key = (minute, host_at(minute, host), network);
        *counts.networks.entry(key).or_default() += visits;
    }
}
