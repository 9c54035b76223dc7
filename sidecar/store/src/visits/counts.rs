//! Counts of visits.

use jiff::Timestamp;
use shortlink_clickhouse::ClickHouse;
use shortlink_core::boxed;
use shortlink_core::ports::{
    CountQuery, Counted, Counts, DayVisitors, Dimension, DomainCount, Intervals, LinkTotal,
    MAX_COUNTED, MAX_COUNTS, StoreError, TimeCount, ValueCount, ValueTimeCount,
};
use shortlink_core::visit::sketch::Stored;
use vocabulary::Code;

use super::sink::asked;
use super::{ALL, HOUR_MS, LinkKey, MINUTE_MS, OF_LINKS, class, sketches};
use crate::db::Db;
use crate::rows::find_id;
use crate::shared::DAY_MS;
use crate::sql::{Sql, sql};
use crate::value::{Row, Value, args, invalid};
use crate::{Scheme, Store};

/// The column that the visits of a link, and their counts, are found by.
pub(super) const LINK: &str = "{link_id|code}";

/// The counts of a campaign, or of all links, that are added up: the latest ones. Anonymous visitors choose some values,
/// so that there can be any number of them.
const COUNTS: &str = " FROM (SELECT hour, value, class, visits FROM visit_hours WHERE campaign_id = $1 \
     AND dimension = $2 AND hour >= $3 AND hour < $4 ORDER BY hour DESC LIMIT $5) AS latest ";

/// As [`COUNTS`] in a sparse dimension, and the rest of all visits: those without a value.
const SPARSE_COUNTS: &str = " FROM (WITH named AS MATERIALIZED (SELECT hour, value, class, visits FROM visit_hours \
     WHERE campaign_id = $1 AND dimension = $2 AND hour >= $3 AND hour < $4 ORDER BY hour DESC LIMIT $5) \
     SELECT * FROM named UNION ALL SELECT hour, '', class, -visits FROM named UNION ALL \
     SELECT hour, '', class, visits FROM visit_hours WHERE campaign_id = $1 AND dimension = 'total' \
     AND hour >= $3 AND hour < $4) AS latest ";

/// The visits of a link that are counted: its latest ones, with their agents.
const LATEST: [&str; 3] = [
    " FROM (SELECT * FROM visits WHERE ",
    LINK,
    " = $1 AND at >= $2 AND at < $3 ORDER BY id DESC LIMIT $4) AS latest \
     JOIN visit_agents ON visit_agents.id = agent_id ",
];

impl Store {
    /// Counts visits by time, unique visitors, and visits by dimensions: all that [`Store::count_visits`],
    /// [`Store::count_visitors`] and [`Store::count_by`] count, with as few questions as possible.
    #[boxed]
    pub async fn count(
        &self,
        query: &CountQuery,
        dimensions: &[Dimension],
    ) -> Result<Counts, StoreError> {
        let times = self.count_visits(query);
        if let (Some(sink), Counted::Link(code)) = (&self.sink, &query.of) {
            let latest = self.count_latest(sink, code, query, dimensions);
            let (times, (visitors, by)) = tokio::try_join!(times, latest)?;
            return Ok(Counts {
                times,
                visitors,
                by,
            });
        }
        let (times, visitors) = tokio::try_join!(times, self.count_visitors(query))?;
        let mut by = Vec::with_capacity(dimensions.len());
        for dimension in dimensions {
            by.push(self.count_by(query, *dimension).await?);
        }
        Ok(Counts {
            times,
            visitors,
            by,
        })
    }

    /// Counts the latest visits of a link in ClickHouse.
    async fn count_latest(
        &self,
        sink: &ClickHouse,
        code: &Code,
        query: &CountQuery,
        dimensions: &[Dimension],
    ) -> Result<(Vec<DayVisitors>, Vec<Vec<ValueCount>>), StoreError> {
        let hours = hours(query);
        let among = self.numbers_of(sink, code, hours).await?;
        let counts = sink.of_latest(code, &among, hours, dimensions);
        asked("count visits", counts.await)
    }

    /// Counts visits by time and class.
    #[boxed]
    pub async fn count_visits(&self, query: &CountQuery) -> Result<Vec<TimeCount>, StoreError> {
        if let (Some(sink), Counted::Link(code)) = (&self.sink, &query.of) {
            return asked("count visits", sink.by_time(code, hours(query)).await);
        }
        self.read("count visits", query, |db, query| {
            Box::pin(by_time(db, query))
        })
        .await
    }

    /// Counts visits by a dimension and class, the largest first. Those of one link are counted
    /// from its latest visits, at most [`MAX_COUNTED`]; those of others from their latest hourly counts, at
    /// most [`MAX_COUNTS`].
    #[boxed]
    pub async fn count_by(
        &self,
        query: &CountQuery,
        dimension: Dimension,
    ) -> Result<Vec<ValueCount>, StoreError> {
        if let (Some(sink), Counted::Link(code)) = (&self.sink, &query.of) {
            let (_, by) = self.count_latest(sink, code, query, &[dimension]).await?;
            return Ok(by.into_iter().next().unwrap_or_default());
        }
        let args = (query, dimension);
        self.read("count visits", args, |db, (query, dimension)| {
            Box::pin(by_value(db, query, *dimension))
        })
        .await
    }

    /// Counts visits by a dimension, time and class, as [`Store::count_by`] does: those with one of
    /// `values`, in the order of time.
    #[boxed]
    pub async fn count_over_time(
        &self,
        query: &CountQuery,
        dimension: Dimension,
        values: &[String],
        by: Intervals,
    ) -> Result<Vec<ValueTimeCount>, StoreError> {
        if let (Some(sink), Counted::Link(code)) = (&self.sink, &query.of) {
            let hours = hours(query);
            let among = self.numbers_of(sink, code, hours).await?;
            let counts = sink.over_time(code, &among, hours, dimension, values, by);
            return asked("count visits", counts.await);
        }
        let args = (query, dimension, values, by);
        self.read("count visits", args, |db, args| {
            Box::pin(async move {
                let (query, dimension, values, by) = args;
                over_time(db, query, *dimension, values, *by).await
            })
        })
        .await
    }

    /// Counts the unique visitors of each day. Those of a link are counted from its visits in the
    /// period that are still stored. For others it is an estimate ([`shortlink_core::visit::sketch`])
    /// of each whole day of which the period has a part.
    #[boxed]
    pub async fn count_visitors(&self, query: &CountQuery) -> Result<Vec<DayVisitors>, StoreError> {
        if let (Some(sink), Counted::Link(code)) = (&self.sink, &query.of) {
            let (visitors, _) = self.count_latest(sink, code, query, &[]).await?;
            return Ok(visitors);
        }
        self.read("count visitors", query, |db, query| {
            Box::pin(visitors(db, query))
        })
        .await
    }

    /// Counts the visits of each link, with when the last was: of those that were visited, in no
    /// order.
    #[boxed]
    pub async fn visit_totals(&self, codes: &[Code]) -> Result<Vec<LinkTotal>, StoreError> {
        if let Some(sink) = &self.sink {
            return asked("count the visits of links", sink.totals(codes).await);
        }
        self.read("count the visits of links", codes, |db, codes| {
            Box::pin(totals(db, codes))
        })
        .await
    }

    /// Counts visits by domain and minute, since a moment: the latest counts, at most [`MAX_COUNTED`].
    #[boxed]
    pub async fn count_domains(&self, since: Timestamp) -> Result<Vec<DomainCount>, StoreError> {
        let sql = sql!(
            "SELECT minute, host, visits FROM (SELECT minute, host, visits FROM visit_domain_minutes \
             WHERE minute >= $1 ORDER BY minute DESC, host DESC LIMIT $2) AS latest \
             ORDER BY minute, host"
        );
        let since = since.as_millisecond().div_euclid(MINUTE_MS);
        let values = args![since, MAX_COUNTED];
        self.all("count the visits of domains", sql, values, |row| {
            Ok(DomainCount {
                host: row.get("host")?,
                minute: moment(row, "minute", MINUTE_MS)?,
                visits: number(row, "visits")?,
            })
        })
        .await
    }

    /// Returns the start of the first of the latest `days` days (UTC) with counted visits before a
    /// moment; `None` if fewer days have visits.
    #[boxed]
    pub async fn recorded_days(
        &self,
        before: Timestamp,
        days: u32,
    ) -> Result<Option<Timestamp>, StoreError> {
        let sql = sql!(
            "SELECT DISTINCT hour / 24 AS day FROM visit_hours WHERE campaign_id = $1 \
             AND dimension = $2 AND hour >= 0 AND hour < $3 ORDER BY day DESC LIMIT $4"
        );
        let before = before.as_millisecond().div_euclid(HOUR_MS);
        let values = args![ALL, Dimension::Total.name(), before, days];
        let read = |row: &Row| moment(row, "day", DAY_MS);
        let operation = "find days with visits";
        let found: Vec<Timestamp> = self.all(operation, sql, values, read).await?;
        let is_enough = found.len() as u64 >= u64::from(days);
        Ok(found.last().copied().filter(|_| is_enough))
    }
}

async fn by_time(db: &mut Db<'_>, query: &CountQuery) -> Result<Vec<TimeCount>, sqlx::Error> {
    let (since, until) = hours(query);
    let read = |row: &Row| time_count(row, "hour", HOUR_MS);
    let campaign = match query.of {
        Counted::Link(code) => {
            let Some(link) = link(db, &code).await? else {
                return Ok(Vec::new());
            };
            let sql = sql!(
                "SELECT hour, class, visits FROM visit_link_hours WHERE ",
                LINK,
                " = $1 AND hour >= $2 AND hour < $3 ORDER BY hour, class"
            );
            let values = [link, since.into(), until.into()];
            return db.all(sql, &values, read).await;
        }
        Counted::Campaign(id) => Value::from(id),
        Counted::All => Value::from(ALL),
    };
    let sql = sql!(
        "SELECT hour, class, visits FROM visit_hours WHERE campaign_id = $1 \
         AND dimension = $2 AND hour >= $3 AND hour < $4 ORDER BY hour, class"
    );
    let values = args![campaign, Dimension::Total.name(), since, until];
    db.all(sql, values, read).await
}

/// A count of the time that a column has the number of, in times of so many milliseconds since 1970.
pub(super) fn time_count(
    row: &Row,
    column: &'static str,
    length_ms: i64,
) -> Result<TimeCount, sqlx::Error> {
    Ok(TimeCount {
        begin: moment(row, column, length_ms)?,
        class: class(row.get("class")?),
        visits: number(row, "visits")?,
    })
}

async fn by_value(
    db: &mut Db<'_>,
    query: &CountQuery,
    dimension: Dimension,
) -> Result<Vec<ValueCount>, sqlx::Error> {
    let (since, until) = hours(query);
    let read = |row: &Row| {
        Ok(ValueCount {
            value: row.get("value")?,
            class: class(row.get("class")?),
            visits: number(row, "visits")?,
        })
    };
    let campaign = match query.of {
        Counted::Link(code) => {
            let Some(link) = link(db, &code).await? else {
                return Ok(Vec::new());
            };
            let mut statement = db.statement(sql!("SELECT "));
            statement.push(column(dimension)).push(sql!(
                " AS value, class, count(*) AS visits",
                LATEST[0],
                LATEST[1],
                LATEST[2],
                "GROUP BY value, class ORDER BY visits DESC, value, class"
            ));
            let (since, until) = (since * HOUR_MS, until * HOUR_MS);
            let values = [link, since.into(), until.into(), MAX_COUNTED.into()];
            return db.all(&statement, &values, read).await;
        }
        Counted::Campaign(id) => Value::from(id),
        Counted::All => Value::from(ALL),
    };
    let mut statement = db.statement(sql!(
        "SELECT value, class, CAST(sum(visits) AS bigint) AS visits"
    ));
    statement.push(counts(dimension)).push(sql!(
        "GROUP BY value, class HAVING sum(visits) <> 0 ORDER BY visits DESC, value, class"
    ));
    let values = args![campaign, dimension.name(), since, until, MAX_COUNTS];
    db.all(&statement, values, read).await
}

async fn over_time(
    db: &mut Db<'_>,
    query: &CountQuery,
    dimension: Dimension,
    wanted: &[String],
    by: Intervals,
) -> Result<Vec<ValueTimeCount>, sqlx::Error> {
    let (since, until) = hours(query);
    let (length, ahead) = (by.length.count(), by.ahead);
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let read = |row: &Row| {
        Ok(ValueTimeCount {
            begin: moment(row, "begin", HOUR_MS)?,
            value: row.get("value")?,
            class: class(row.get("class")?),
            visits: number(row, "visits")?,
        })
    };
    let campaign = match query.of {
        Counted::Link(code) => {
            let Some(link) = link(db, &code).await? else {
                return Ok(Vec::new());
            };
            let column = column(dimension);
            let mut statement = db.statement(sql!("SELECT (at + $8) / $5 * $6 - $9 AS begin, "));
            statement
                .push(column)
                .push(sql!(
                    " AS value, class, count(*) AS visits",
                    LATEST[0],
                    LATEST[1],
                    LATEST[2],
                    "WHERE "
                ))
                .push(column)
                .push(sql!(
                    " {IN (SELECT value FROM json_each($7))|= ANY($7::text[])} GROUP BY begin, "
                ))
                .push(column)
                .push(sql!(", class ORDER BY begin, visits DESC, "))
                .push(column)
                .push(sql!(", class"));
            let values = args![
                link,
                since * HOUR_MS,
                until * HOUR_MS,
                MAX_COUNTED,
                length * HOUR_MS,
                length,
                wanted,
                ahead * HOUR_MS,
                ahead
            ];
            return db.all(&statement, values, read).await;
        }
        Counted::Campaign(id) => Value::from(id),
        Counted::All => Value::from(ALL),
    };
    let mut statement = db.statement(sql!(
        "SELECT (hour + $8) / $6 * $6 - $8 AS begin, latest.value, class, CAST(sum(visits) AS bigint) AS visits"
    ));
    statement.push(counts(dimension)).push(sql!(
        "WHERE latest.value {IN (SELECT json_each.value FROM json_each($7))|= ANY($7::text[])} \
         GROUP BY begin, latest.value, class HAVING sum(visits) <> 0 \
         ORDER BY begin, visits DESC, latest.value, class"
    ));
    let values = args![
        campaign,
        dimension.name(),
        since,
        until,
        MAX_COUNTS,
        length,
        wanted,
        ahead
    ];
    db.all(&statement, values, read).await
}

/// The counts of a campaign, or of all links, in a dimension.
fn counts(dimension: Dimension) -> Sql {
    match dimension.is_sparse() {
        true => sql!(SPARSE_COUNTS),
        false => sql!(COUNTS),
    }
}

async fn visitors(db: &mut Db<'_>, query: &CountQuery) -> Result<Vec<DayVisitors>, sqlx::Error> {
    let (since, until) = hours(query);
    let campaign = match query.of {
        Counted::Link(code) => {
            let Some(link) = link(db, &code).await? else {
                return Ok(Vec::new());
            };
            let sql = sql!(
                "SELECT day, count(DISTINCT visitor) AS visitors FROM \
                 (SELECT at / $3 AS day, class, visitor FROM visits WHERE ",
                LINK,
                " = $1 AND at >= $2 AND at < $4 ORDER BY id DESC LIMIT $5) AS latest \
                 WHERE class = 'human' AND visitor IS NOT NULL GROUP BY day ORDER BY day"
            );
            let (since, until) = (since * HOUR_MS, until * HOUR_MS);
            let values = args![link, since, DAY_MS, until, MAX_COUNTED];
            let read = |row: &Row| {
                Ok(DayVisitors {
                    day: moment(row, "day", DAY_MS)?,
                    visitors: number(row, "visitors")?,
                })
            };
            return db.all(sql, values, read).await;
        }
        Counted::Campaign(id) => Value::from(id),
        Counted::All => Value::from(ALL),
    };
    // An earlier version that replaces the registers leaves the estimate beside them as it was.
    let sql = sql!(
        "SELECT day, visitors, CASE WHEN visitors IS NULL OR length(registers) = $4 THEN registers END \
         AS registers FROM visit_sketches WHERE campaign_id = $1 AND day >= $2 AND day <= $3 ORDER BY day"
    );
    let (first, last) = (since.div_euclid(24), (until - 1).div_euclid(24));
    let values = args![campaign, first, last, Stored::LENGTH_BEFORE];
    db.all(sql, values, |row| {
        let visitors = match row.find::<&[u8]>("registers")? {
            Some(head) => sketches::parsed(&Stored::with_head(head))?.estimate(),
            None => row.get("visitors")?,
        };
        Ok(DayVisitors {
            day: moment(row, "day", DAY_MS)?,
            visitors,
        })
    })
    .await
}

async fn totals(db: &mut Db<'_>, codes: &[Code]) -> Result<Vec<LinkTotal>, sqlx::Error> {
    let keys = LinkKey::known(db, codes).await?;
    let sql = sql!(
        "SELECT ",
        LINK,
        " AS link, CAST(sum(visits) AS bigint) AS visits, \
         CAST(sum(CASE WHEN class = 'human' THEN visits ELSE 0 END) AS bigint) AS human, \
         CAST(sum(CASE WHEN class = 'refused' THEN visits ELSE 0 END) AS bigint) AS refused, \
         max(last_at) AS last_at FROM visit_link_hours WHERE ",
        OF_LINKS,
        " GROUP BY ",
        LINK
    );
    let wanted = LinkKey::list(db, keys.keys());
    db.all(sql, &[wanted], |row| {
        let code = keys.get(&LinkKey::read(row)?);
        Ok(LinkTotal {
            code: **code.ok_or_else(|| invalid("link"))?,
            visits: number(row, "visits")?,
            human: number(row, "human")?,
            refused: number(row, "refused")?,
            last_at: row.get("last_at")?,
        })
    })
    .await
}

/// Returns the value of [`LINK`] for a link; `None` for a code that no visit can have.
pub(super) async fn link(
    db: &mut Db<'_>,
    code: &Code,
) -> Result<Option<Value<'static>>, sqlx::Error> {
    Ok(match db.scheme() {
        Scheme::Sqlite => find_id(db, code).await?.map(Value::from),
        Scheme::Postgres => Some(code.to_string().into()),
    })
}

/// The hours that a query asks for: from the first on, and before the second.
pub(super) fn hours(query: &CountQuery) -> (i64, i64) {
    let hour = |at: Timestamp| at.as_millisecond().div_euclid(HOUR_MS);
    (hour(query.since), hour(query.until))
}

/// The column of visits that a dimension counts, where the agents' are joined.
fn column(dimension: Dimension) -> Sql {
    match dimension {
        Dimension::Total => sql!("''"),
        Dimension::Domain => sql!("host"),
        Dimension::Country => sql!("coalesce(country, '')"),
        Dimension::Device => sql!("device"),
        Dimension::Browser => sql!("coalesce(browser, '')"),
        Dimension::Os => sql!("coalesce(os, '')"),
        Dimension::Referrer => sql!("coalesce(referrer_host, '')"),
        Dimension::Network => sql!("coalesce(isp, '')"),
        Dimension::Status => sql!("CAST(status AS text)"),
        Dimension::Variant => sql!("coalesce(variant, '')"),
    }
}

/// Reads when an hour, a minute or a day begins, from how many there were since 1970.
pub(super) fn moment(
    row: &Row,
    column: &'static str,
    length_ms: i64,
) -> Result<Timestamp, sqlx::Error> {
    let count: i64 = row.get(column)?;
    let moment = count.checked_mul(length_ms);
    let moment = moment.and_then(|moment| Timestamp::from_millisecond(moment).ok());
    moment.ok_or_else(|| invalid(column))
}

/// Reads a count. Those that are corrected may be below 0 for a while.
pub(super) fn number(row: &Row, column: &'static str) -> Result<u64, sqlx::Error> {
    row.get(column).map(i64::unsigned_abs)
}
