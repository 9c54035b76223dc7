//! Changes of stored rows: erasure, and hours that are not counted apart any more.

use clickhouse::query::Query;
use clickhouse::{Client, Row};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use shortlink_core::boxed;
use shortlink_core::ports::Dimension;

use crate::statistics::{HOUR_MS, column};
use crate::{Batch, ClickHouse, ClickedLink, Fault, LinkCount, MUTATION_PATIENCE};

/// Visits that are to be erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// Their links, or their campaign.
    pub of: ErasureOf,
    /// The time up to which they are erased, in milliseconds since 1970.
    pub until: i64,
    /// The batch that the erasure is: later ones are not concerned.
    pub batch: i64,
}

/// The links of visits that are to be erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErasureOf {
    /// Links by their codes.
    Links(Vec<String>),
    /// All that were counted for a campaign.
    Campaign(i64),
}

/// The visits of an erasure, before it.
#[derive(Clone, Debug, Default)]
pub struct Erased {
    /// Their number.
    pub visits: u64,
    /// The number of hourly counts of their links.
    pub counts: u64,
    /// Their values in the dimensions of counts, without those that are not known.
    pub values: Vec<ErasedValue>,
    /// The campaigns (0 without one) and days of their visitors.
    pub days: Vec<(i64, i64)>,
}

/// Visits of an erasure that are counted together.
#[derive(Clone, Debug)]
pub struct ErasedValue {
    /// The dimension.
    pub dimension: Dimension,
    /// Their campaign, or 0.
    pub campaign: i64,
    /// Their hour, counted since 1970.
    pub hour: i64,
    /// The name of their class.
    pub class: String,
    /// Their value.
    pub value: String,
    /// Their number.
    pub visits: u64,
}

#[derive(Row, Deserialize)]
struct Value {
    campaign: i64,
    hour: i64,
    class: String,
    value: String,
    visits: u64,
}

#[derive(Row, Deserialize)]
struct People {
    campaign: i64,
    day: i64,
}

#[derive(Row, Deserialize)]
struct Number {
    number: u64,
}

/// Visits of a link in the hour of an erasure that came after it.
#[derive(Row, Deserialize)]
struct Later {
    code: String,
    class: String,
    visits: u64,
    last_at: i64,
}

const DAY_MS: i64 = 24 * HOUR_MS;

impl Erasure {
    /// A statement on visits with the condition of those that are erased between its parts.
    fn of_visits(&self, client: &Client, begin: &str, end: &str) -> Query {
        let of = match &self.of {
            ErasureOf::Links(_) => "code IN ?",
            ErasureOf::Campaign(_) => "campaign = ?",
        };
        let query = client.query(&format!(
            "{begin} {of} AND at <= fromUnixTimestamp64Milli(?, 'UTC') {end}"
        ));
        let query = match &self.of {
            ErasureOf::Links(codes) => query.bind(codes),
            ErasureOf::Campaign(id) => query.bind(id),
        };
        query.bind(self.until)
    }

    /// A statement on counts that ends with the condition of those up to the hour of the erasure.
    fn of_counts(&self, client: &Client, begin: &str, codes: &[String]) -> Query {
        let sql = format!(
            "{begin} code IN ? AND is_earlier = 0 AND batch < ? AND at < fromUnixTimestamp64Milli(?, 'UTC')"
        );
        client
            .query(&sql)
            .bind(codes)
            .bind(self.batch)
            .bind(self.hour_end())
    }

    /// The end of the hour of the erasure.
    fn hour_end(&self) -> i64 {
        (self.until.div_euclid(HOUR_MS) + 1).saturating_mul(HOUR_MS)
    }
}

impl ClickHouse {
    /// Counts all stored visits.
    ///
    /// # Errors
    /// When they can't be counted.
    #[boxed]
    pub async fn count_all(&self) -> Result<u64, Fault> {
        let client = self.database().await?;
        self.number(client.query("SELECT count() AS number FROM visits FINAL"))
            .await
    }

    /// Counts the visits of an erasure, also by their values in some dimensions, and the hours of links that are counted
    /// apart.
    ///
    /// # Errors
    /// When they can't be counted.
    #[boxed]
    pub async fn count_erased(
        &self,
        erasure: &Erasure,
        dimensions: &[Dimension],
    ) -> Result<Erased, Fault> {
        let client = self.database().await?;
        let visits = "SELECT count() AS number FROM visits FINAL WHERE";
        let mut erased = Erased {
            visits: self.number(erasure.of_visits(&client, visits, "")).await?,
            ..Erased::default()
        };
        if erased.visits > 0 {
            self.find_values(&client, (erasure, dimensions), &mut erased)
                .await?;
        }
        if let ErasureOf::Links(codes) = &erasure.of {
            let hours = "SELECT uniqExact(code, toStartOfHour(at), class) AS number \
                 FROM visit_counts FINAL WHERE";
            let hours = erasure.of_counts(&client, hours, codes);
            erased.counts = self.number(hours).await?;
        }
        Ok(erased)
    }

    async fn find_values(
        &self,
        client: &Client,
        (erasure, dimensions): (&Erasure, &[Dimension]),
        erased: &mut Erased,
    ) -> Result<(), Fault> {
        for &dimension in dimensions {
            let column = column(dimension);
            let begin = format!(
                "SELECT campaign, intDiv(toUnixTimestamp64Milli(at), {HOUR_MS}) AS hour, \
                 toString(class) AS class, toString({column}) AS value, count() AS visits \
                 FROM visits FINAL WHERE toString({column}) != '' AND"
            );
            let end = "GROUP BY campaign, hour, class, value";
            let rows = self.rows::<Value>(erasure.of_visits(client, &begin, end));
            let values = rows.await?.into_iter().map(|it| ErasedValue {
                dimension,
                campaign: it.campaign,
                hour: it.hour,
                class: it.class,
                value: it.value,
                visits: it.visits,
            });
            erased.values.extend(values);
        }
        let begin = format!(
            "SELECT DISTINCT campaign, intDiv(toUnixTimestamp64Milli(at), {DAY_MS}) AS day \
             FROM visits FINAL WHERE class = 'human' AND visitor IS NOT NULL AND"
        );
        let days = self.rows::<People>(erasure.of_visits(client, &begin, ""));
        erased.days = days.await?.iter().map(|it| (it.campaign, it.day)).collect();
        Ok(())
    }

    async fn number(&self, query: Query) -> Result<u64, Fault> {
        let rows = self.rows::<Number>(query).await?;
        Ok(rows.first().map_or(0, |it| it.number))
    }

    /// Deletes the visits of an erasure, and moves the counts of its links to those of earlier hours, with times that
    /// are rounded down to days. Of the last hour, the visits after the erasure stay: they can still be corrected. The
    /// clicks of its links that exist, `links`, are counted again. All batches before that of the erasure have been
    /// inserted. Without `has_visits`, no visits are deleted. A repetition changes nothing.
    ///
    /// # Errors
    /// When not everything is known to be erased.
    #[boxed]
    pub async fn erase(
        &self,
        erasure: &Erasure,
        has_visits: bool,
        links: &[ClickedLink<'_>],
    ) -> Result<(), Fault> {
        let client = self.database().await?;
        if has_visits {
            let delete = erasure.of_visits(&client, "ALTER TABLE visits DELETE WHERE", "");
            self.mutate(delete).await?;
        }
        let ErasureOf::Links(codes) = &erasure.of else {
            return self.erase_clicks(&client, erasure, links).await;
        };
        let round = "ALTER TABLE visit_counts UPDATE is_earlier = 1, \
             at = toDateTime64(toStartOfDay(at), 3, 'UTC') WHERE";
        self.mutate(erasure.of_counts(&client, round, codes))
            .await?;
        let later = "SELECT code, toString(class) AS class, count() AS visits, \
             toUnixTimestamp64Milli(max(v.at)) AS last_at FROM visits AS v FINAL WHERE code IN ? \
             AND batch < ? AND v.at > fromUnixTimestamp64Milli(?, 'UTC') \
             AND v.at < fromUnixTimestamp64Milli(?, 'UTC') GROUP BY code, class ORDER BY code, class";
        let later = client.query(later).bind(codes).bind(erasure.batch);
        let later = later.bind(erasure.until).bind(erasure.hour_end());
        let later = self.rows::<Later>(later).await?;
        let moves = later.iter().flat_map(|later| {
            let visits = later.visits.cast_signed();
            [(-visits, true), (visits, false)].map(|(visits, is_earlier)| LinkCount {
                code: &later.code,
                class: &later.class,
                visits,
                last_at: match is_earlier {
                    true => later.last_at.div_euclid(DAY_MS) * DAY_MS,
                    false => later.last_at,
                },
                is_earlier,
            })
        });
        self.insert(&Batch::new(erasure.batch, [], moves, []))
            .await?;
        self.erase_clicks(&client, erasure, links).await
    }

    /// Counts hours before a moment together from now on, if there are any.
    ///
    /// # Errors
    /// When the counts can't be changed.
    #[boxed]
    pub async fn fold_hours(&self, before: Timestamp) -> Result<(), Fault> {
        let client = self.database().await?;
        let condition = "is_earlier = 0 AND at < fromUnixTimestamp64Milli(?, 'UTC')";
        let due = format!("SELECT 1::UInt64 AS number FROM visit_counts WHERE {condition} LIMIT 1");
        let due = client.query(&due).bind(before.as_millisecond());
        if self.rows::<Number>(due).await?.is_empty() {
            return Ok(());
        }
        let fold = format!("ALTER TABLE visit_counts UPDATE is_earlier = 1 WHERE {condition}");
        self.mutate(client.query(&fold).bind(before.as_millisecond()))
            .await
    }

    /// Rewrites rows, and waits for it.
    pub(crate) async fn mutate(&self, query: Query) -> Result<(), Fault> {
        self.execute(MUTATION_PATIENCE, query.with_setting("mutations_sync", "1"))
            .await
    }
}
