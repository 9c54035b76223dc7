//! Counts of links. Those of campaigns are in SQL.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use clickhouse::Row;
use clickhouse::query::Query;
use jiff::Timestamp;
use serde::Deserialize;
use shortlink_core::boxed;
use shortlink_core::ports::{
    DayVisitors, Dimension, Intervals, LinkTotal, MAX_COUNTED, TimeCount, ValueCount,
    ValueTimeCount,
};
use shortlink_core::visit::class::Class;
use vocabulary::Code;

use crate::lists::limited;
use crate::{ClickHouse, Fault, Numbers};

pub(crate) const HOUR_MS: i64 = 60 * MINUTE_MS;
const MINUTE_MS: i64 = 60 * 1000;

/// The visits of a link that are counted: its latest ones, which are among some numbers. Their last versions are found by
/// sorting: `FINAL` would read more than the index by code finds, and older servers all visits.
fn latest(among: &Numbers) -> String {
    format!(
        "FROM (SELECT at, class, host, country, device, browser, os, referrer_host, isp, status, variant, visitor \
         FROM visits PREWHERE code = ? WHERE {} \
         AND at >= fromUnixTimestamp64Milli(?, 'UTC') AND at < fromUnixTimestamp64Milli(?, 'UTC') \
         ORDER BY number DESC, batch DESC LIMIT 1 BY number LIMIT ?)",
        among.condition()
    )
}

#[derive(Row, Deserialize)]
struct Total {
    code: String,
    visits: i64,
    human: i64,
    refused: i64,
    last_at: i64,
}

#[derive(Row, Deserialize)]
struct Counted {
    begin: i64,
    value: String,
    class: String,
    visits: i64,
}

impl Counted {
    /// The count without its value; `begin` is in units of some milliseconds.
    fn of(&self, unit_ms: i64) -> TimeCount {
        TimeCount {
            begin: moment(self.begin * unit_ms),
            class: class(&self.class),
            visits: self.visits.unsigned_abs(),
        }
    }
}

#[derive(Row, Deserialize)]
struct Latest {
    place: u8,
    value: String,
    class: String,
    visits: u64,
    visitors: u64,
}

#[derive(Row, Deserialize)]
struct Human {
    code: String,
    visits: i64,
}

fn class(name: &str) -> Class {
    Class::by_name(name).unwrap_or(Class::Unknown)
}

pub(crate) fn moment(ms: i64) -> Timestamp {
    // Columns of ClickHouse hold no moment that this type can't.
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The column of a dimension.
pub(crate) fn column(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Total => "''",
        Dimension::Domain => "host",
        Dimension::Country => "country",
        Dimension::Device => "device",
        Dimension::Browser => "browser",
        Dimension::Os => "os",
        Dimension::Referrer => "referrer_host",
        Dimension::Network => "isp",
        Dimension::Status => "toString(status)",
        Dimension::Variant => "variant",
    }
}

impl ClickHouse {
    /// Counts the visits of each link, with when the last was: of those that were visited, in no order.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn totals(&self, codes: &[Code]) -> Result<Vec<LinkTotal>, Fault> {
        if codes.is_empty() {
            return Ok(Vec::new());
        }
        let known: HashMap<&str, Code> = codes.iter().map(|code| (code.as_str(), *code)).collect();
        let texts: Vec<&str> = known.keys().copied().collect();
        let query = "SELECT code, toInt64(sum(c.visits)) AS visits, \
             toInt64(sumIf(c.visits, class = 'human')) AS human, \
             toInt64(sumIf(c.visits, class = 'refused')) AS refused, \
             toUnixTimestamp64Milli(max(at)) AS last_at \
             FROM visit_counts AS c FINAL WHERE code IN ? GROUP BY code HAVING visits > 0";
        let query = self.database().await?.query(query).bind(texts);
        let rows = self.rows::<Total>(query).await?.into_iter();
        Ok(rows
            .filter_map(|row| {
                Some(LinkTotal {
                    code: *known.get(&*row.code)?,
                    visits: row.visits.unsigned_abs(),
                    human: row.human.unsigned_abs(),
                    refused: row.refused.unsigned_abs(),
                    last_at: moment(row.last_at),
                })
            })
            .collect())
    }

    /// Counts the human visits of links that batches before one have contributed.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn human_before(
        &self,
        codes: &[String],
        batch: i64,
    ) -> Result<HashMap<String, i64>, Fault> {
        let query = "SELECT code, toInt64(sum(c.visits)) AS visits FROM visit_counts AS c FINAL \
             WHERE code IN ? AND batch < ? AND class = 'human' GROUP BY code";
        let query = self.database().await?.query(query).bind(codes).bind(batch);
        let rows = self.rows::<Human>(query).await?.into_iter();
        Ok(rows.map(|row| (row.code, row.visits)).collect())
    }

    /// Counts the visits of a link by hour and class, from one hour since 1970 on and before another.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn by_time(&self, code: &Code, hours: (i64, i64)) -> Result<Vec<TimeCount>, Fault> {
        let query = "SELECT intDiv(toUnixTimestamp64Milli(at), 3600000) AS begin, '' AS value, \
             toString(class) AS class, toInt64(sum(c.visits)) AS visits \
             FROM visit_counts AS c FINAL WHERE code = ? AND is_earlier = 0 \
             AND at >= fromUnixTimestamp64Milli(?, 'UTC') AND at < fromUnixTimestamp64Milli(?, 'UTC') \
             GROUP BY begin, class HAVING visits <> 0 ORDER BY begin, class";
        let query = self.database().await?.query(query).bind(code.as_str());
        let rows = self.counted(in_hours(query, hours)).await?.into_iter();
        Ok(rows.map(|row| row.of(HOUR_MS)).collect())
    }

    /// Counts the latest visits of a link, which are among some numbers: by each of some dimensions and class, the largest
    /// count first, and the unique visitors of each day among the human ones. It is one question, for however many
    /// dimensions: to find the visits takes longer than to count them.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn of_latest(
        &self,
        code: &Code,
        among: &Numbers,
        hours: (i64, i64),
        dimensions: &[Dimension],
    ) -> Result<(Vec<DayVisitors>, Vec<Vec<ValueCount>>), Fault> {
        let mut by = vec![Vec::new(); dimensions.len()];
        if among.is_empty() {
            return Ok((Vec::new(), by));
        }
        let mut places =
            String::from("(0::UInt8, toString(intDiv(toUnixTimestamp64Milli(at), 86400000)))");
        for (place, dimension) in (1..).zip(dimensions) {
            // Writing to a string does not fail.
            let _ = write!(
                places,
                ", ({place}::UInt8, toString({}))",
                column(*dimension)
            );
        }
        let query = format!(
            "SELECT counted.1 AS place, counted.2 AS value, toString(class) AS class, count() AS visits, \
             uniqExactIf(visitor, place = 0 AND class = 'human') AS visitors {} ARRAY JOIN [{places}] AS counted \
             GROUP BY place, value, class ORDER BY place, visits DESC, value, class{}",
            latest(among),
            among.settings(),
        );
        let query = self.database().await?.query(&query).bind(code.as_str());
        let query = in_hours(query, hours).bind(MAX_COUNTED);
        let mut days = BTreeMap::new();
        for row in self.rows::<Latest>(query).await? {
            let Some(place) = usize::from(row.place).checked_sub(1) else {
                if let (Ok(day), 1..) = (row.value.parse::<i64>(), row.visitors) {
                    days.insert(day, row.visitors);
                }
                continue;
            };
            if let Some(counts) = by.get_mut(place) {
                counts.push(ValueCount {
                    value: row.value,
                    class: class(&row.class),
                    visits: row.visits,
                });
            }
        }
        let days = days.into_iter().map(|(day, visitors)| DayVisitors {
            day: moment(day * 24 * HOUR_MS),
            visitors,
        });
        Ok((days.collect(), by))
    }

    /// Counts the latest visits of a link, which are among some numbers, by minute and class.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn by_minute(
        &self,
        code: &Code,
        among: &Numbers,
        hours: (i64, i64),
    ) -> Result<Vec<TimeCount>, Fault> {
        if among.is_empty() {
            return Ok(Vec::new());
        }
        let query = format!(
            "SELECT intDiv(toUnixTimestamp64Milli(at), {MINUTE_MS}) AS begin, '' AS value, \
             toString(class) AS class, toInt64(count()) AS visits {} \
             GROUP BY begin, class ORDER BY begin, class{}",
            latest(among),
            among.settings(),
        );
        let query = self.database().await?.query(&query).bind(code.as_str());
        let query = in_hours(query, hours).bind(MAX_COUNTED);
        let rows = self.counted(query).await?.into_iter();
        Ok(rows.map(|row| row.of(MINUTE_MS)).collect())
    }

    /// Counts the latest visits of a link with one of some values by a dimension, time and class.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn over_time(
        &self,
        code: &Code,
        among: &Numbers,
        hours: (i64, i64),
        dimension: Dimension,
        values: &[String],
        by: Intervals,
    ) -> Result<Vec<ValueTimeCount>, Fault> {
        if values.is_empty() || among.is_empty() {
            return Ok(Vec::new());
        }
        let (length, ahead) = (by.length.count(), by.ahead);
        let column = column(dimension);
        let query = format!(
            "SELECT intDiv(toUnixTimestamp64Milli(at) + {ahead_ms}, {length_ms}) * {length} - {ahead} AS begin, \
             toString({column}) AS value, toString(class) AS class, toInt64(count()) AS visits {} \
             WHERE value IN ? GROUP BY begin, value, class ORDER BY begin, visits DESC, value, class{}",
            latest(among),
            among.settings(),
            ahead_ms = ahead * HOUR_MS,
            length_ms = length * HOUR_MS,
        );
        let query = self.database().await?.query(&query).bind(code.as_str());
        let query = in_hours(query, hours).bind(MAX_COUNTED).bind(values);
        let rows = self.counted(query).await?.into_iter();
        Ok(rows
            .map(|row| ValueTimeCount {
                begin: moment(row.begin * HOUR_MS),
                value: row.value,
                class: class(&row.class),
                visits: row.visits.unsigned_abs(),
            })
            .collect())
    }

    async fn counted(&self, query: Query) -> Result<Vec<Counted>, Fault> {
        self.rows(query).await
    }
}

/// Binds the begin of the first and the end of the last hour.
pub(crate) fn in_hours(query: Query, (since, until): (i64, i64)) -> Query {
    query
        .bind(limited(since.saturating_mul(HOUR_MS)))
        .bind(limited(until.saturating_mul(HOUR_MS)))
}
