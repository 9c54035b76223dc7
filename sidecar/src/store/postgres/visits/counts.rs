//! What was counted of visits.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::AssertSqlSafe;
use vocabulary::Code;

use crate::core::ports::{
    CountQuery, Counted, DayVisitors, Dimension, DomainCount, Hours, LinkTotal, MAX_COUNTED,
    TimeCount, ValueCount, ValueTimeCount,
};
use crate::store::postgres::statements::Statements;
use crate::store::postgres::work::Work;
use crate::store::shared::{DAY_MS, invalid};
use crate::store::visits::{
    ALL, HOUR_MS, column, counted_campaign, day_visitors, days, domain_counts, first_of,
    hour_before, hours, link_total, minute_from, sketched_visitors, time_counts, value_counts,
    value_time_counts,
};

pub(super) struct CountByTime<'a>(pub(super) &'a CountQuery);

#[async_trait]
impl Work for CountByTime<'_> {
    type Output = Vec<TimeCount>;
    const OPERATION: &'static str = "count visits";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<TimeCount>, sqlx::Error> {
        let query = self.0;
        let (since, until) = hours(query);
        let rows: Vec<(i64, String, i64)> = match (query.of, counted_campaign(query.of)) {
            (Counted::Link(code), _) => {
                sqlx::query_as(
                    "SELECT hour, class, visits FROM visit_link_hours \
                     WHERE code = $1 AND hour >= $2 AND hour < $3 ORDER BY hour, class",
                )
                .bind(code.to_string())
                .bind(since)
                .bind(until)
                .fetch_all(&mut *connection)
                .await?
            }
            (_, campaign) => {
                sqlx::query_as(
                    "SELECT hour, class, visits FROM visit_hours WHERE campaign_id = $1 \
                     AND dimension = $2 AND hour >= $3 AND hour < $4 ORDER BY hour, class",
                )
                .bind(campaign)
                .bind(Dimension::Total.name())
                .bind(since)
                .bind(until)
                .fetch_all(&mut *connection)
                .await?
            }
        };
        time_counts(rows)
    }
}

pub(super) struct CountByValue<'a> {
    pub(super) query: &'a CountQuery,
    pub(super) dimension: Dimension,
}

#[async_trait]
impl Work for CountByValue<'_> {
    type Output = Vec<ValueCount>;
    const OPERATION: &'static str = "count visits";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<ValueCount>, sqlx::Error> {
        let Self { query, dimension } = *self;
        let rows: Vec<(String, String, i64)> = match (query.of, counted_campaign(query.of)) {
            (Counted::Link(code), _) => {
                let column = column(dimension);
                let statement = AssertSqlSafe(format!(
                    "SELECT {column} AS value, class, count(*) AS visits FROM \
                     (SELECT * FROM visits WHERE code = $1 AND at >= $2 AND at < $3 \
                     ORDER BY id DESC LIMIT $4) AS latest \
                     JOIN visit_agents ON visit_agents.id = agent_id \
                     GROUP BY value, class ORDER BY visits DESC, value, class"
                ));
                let (since, until) = hours(query);
                sqlx::query_as(statement)
                    .bind(code.to_string())
                    .bind(since * HOUR_MS)
                    .bind(until * HOUR_MS)
                    .bind(i64::from(MAX_COUNTED))
                    .fetch_all(&mut *connection)
                    .await?
            }
            (_, campaign) => {
                let (since, until) = hours(query);
                sqlx::query_as(
                    "SELECT value, class, sum(visits)::bigint AS visits FROM visit_hours \
                     WHERE campaign_id = $1 AND dimension = $2 AND hour >= $3 AND hour < $4 \
                     GROUP BY value, class ORDER BY visits DESC, value, class",
                )
                .bind(campaign)
                .bind(dimension.name())
                .bind(since)
                .bind(until)
                .fetch_all(&mut *connection)
                .await?
            }
        };
        Ok(value_counts(rows))
    }
}

pub(super) struct CountOverTime<'a> {
    pub(super) query: &'a CountQuery,
    pub(super) dimension: Dimension,
    pub(super) values: &'a [String],
    pub(super) hours: Hours,
}

#[async_trait]
impl Work for CountOverTime<'_> {
    type Output = Vec<ValueTimeCount>;
    const OPERATION: &'static str = "count visits";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<ValueTimeCount>, sqlx::Error> {
        let query = self.query;
        let length = self.hours.count();
        let (since, until) = hours(query);
        let rows: Vec<(i64, String, String, i64)> = match (query.of, counted_campaign(query.of)) {
            (Counted::Link(code), _) => {
                let column = column(self.dimension);
                let statement = AssertSqlSafe(format!(
                    "SELECT at / $5 * $6 AS begin, {column} AS value, class, count(*) AS visits \
                     FROM (SELECT * FROM visits WHERE code = $1 AND at >= $2 AND at < $3 \
                     ORDER BY id DESC LIMIT $4) AS latest \
                     JOIN visit_agents ON visit_agents.id = agent_id \
                     WHERE {column} = ANY($7::text[]) \
                     GROUP BY begin, {column}, class ORDER BY begin, visits DESC, {column}, class"
                ));
                sqlx::query_as(statement)
                    .bind(code.to_string())
                    .bind(since * HOUR_MS)
                    .bind(until * HOUR_MS)
                    .bind(i64::from(MAX_COUNTED))
                    .bind(length * HOUR_MS)
                    .bind(length)
                    .bind(self.values)
                    .fetch_all(&mut *connection)
                    .await?
            }
            (_, campaign) => {
                sqlx::query_as(
                    "SELECT hour / $5 * $5 AS begin, value, class, sum(visits)::bigint AS visits \
                     FROM visit_hours WHERE campaign_id = $1 AND dimension = $2 \
                     AND hour >= $3 AND hour < $4 AND value = ANY($6::text[]) \
                     GROUP BY begin, value, class ORDER BY begin, visits DESC, value, class",
                )
                .bind(campaign)
                .bind(self.dimension.name())
                .bind(since)
                .bind(until)
                .bind(length)
                .bind(self.values)
                .fetch_all(&mut *connection)
                .await?
            }
        };
        value_time_counts(rows)
    }
}

pub(super) struct CountTotals<'a>(pub(super) &'a [Code]);

#[async_trait]
impl Work for CountTotals<'_> {
    type Output = Vec<LinkTotal>;
    const OPERATION: &'static str = "count the visits of links";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<LinkTotal>, sqlx::Error> {
        let codes = self.0;
        let codes: Vec<String> = codes.iter().map(Code::to_string).collect();
        let rows: Vec<(String, i64, i64, i64)> = sqlx::query_as(
            "SELECT code, sum(visits)::bigint AS visits, \
             coalesce(sum(visits) FILTER (WHERE class = 'human'), 0)::bigint AS human, \
             max(last_at) AS last_at FROM visit_link_hours \
             WHERE code = ANY($1::text[]) GROUP BY code",
        )
        .bind(codes)
        .fetch_all(&mut *connection)
        .await?;
        let totals = rows.into_iter().map(|(code, visits, human, last_at)| {
            let code = code.parse();
            let code = code.map_err(|_error| invalid("visit_link_hours", "code"))?;
            link_total(code, visits, human, last_at)
        });
        totals.collect()
    }
}

pub(super) struct CountDomains(pub(super) Timestamp);

#[async_trait]
impl Work for CountDomains {
    type Output = Vec<DomainCount>;
    const OPERATION: &'static str = "count the visits of domains";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<DomainCount>, sqlx::Error> {
        let since = self.0;
        let rows: Vec<(i64, String, i64)> = sqlx::query_as(
            "SELECT minute, host, visits FROM visit_domain_minutes WHERE minute >= $1 \
             ORDER BY minute, host",
        )
        .bind(minute_from(since))
        .fetch_all(&mut *connection)
        .await?;
        domain_counts(rows)
    }
}

pub(super) struct CountVisitors<'a>(pub(super) &'a CountQuery);

#[async_trait]
impl Work for CountVisitors<'_> {
    type Output = Vec<DayVisitors>;
    const OPERATION: &'static str = "count visitors";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Vec<DayVisitors>, sqlx::Error> {
        let query = self.0;
        let (first, last) = days(query);
        match (query.of, counted_campaign(query.of)) {
            (Counted::Link(code), _) => {
                let rows = sqlx::query_as(
                    "SELECT day, count(DISTINCT visitor) FROM (SELECT at / $3 AS day, visitor FROM visits \
                     WHERE code = $1 AND at >= $2 * $3 AND at < ($4 + 1) * $3 AND class = 'human' \
                     AND visitor IS NOT NULL ORDER BY id DESC LIMIT $5) AS latest \
                     GROUP BY day ORDER BY day",
                )
                .bind(code.to_string())
                .bind(first)
                .bind(DAY_MS)
                .bind(last)
                .bind(i64::from(MAX_COUNTED))
                .fetch_all(&mut *connection)
                .await?;
                day_visitors(rows)
            }
            (_, campaign) => {
                let rows = sqlx::query_as(
                    "SELECT day, registers FROM visit_sketches WHERE campaign_id = $1 \
                     AND day >= $2 AND day <= $3 ORDER BY day",
                )
                .bind(campaign)
                .bind(first)
                .bind(last)
                .fetch_all(&mut *connection)
                .await?;
                sketched_visitors(rows)
            }
        }
    }
}

pub(super) struct FindRecordedDays {
    pub(super) before: Timestamp,
    pub(super) days: u32,
}

#[async_trait]
impl Work for FindRecordedDays {
    type Output = Option<Timestamp>;
    const OPERATION: &'static str = "look on which days visits were recorded";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<Timestamp>, sqlx::Error> {
        let found: Vec<i64> = sqlx::query_scalar(
            "SELECT DISTINCT hour / 24 AS day FROM visit_hours WHERE campaign_id = $1 \
             AND dimension = $2 AND hour >= 0 AND hour < $3 ORDER BY day DESC LIMIT $4",
        )
        .bind(ALL)
        .bind(Dimension::Total.name())
        .bind(hour_before(self.before))
        .bind(i64::from(self.days))
        .fetch_all(connection)
        .await?;
        first_of(&found, self.days)
    }
}
