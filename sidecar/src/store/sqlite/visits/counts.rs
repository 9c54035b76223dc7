//! What was counted of visits.

use std::collections::HashMap;

use jiff::Timestamp;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqlitePool;
use vocabulary::Code;

use crate::core::ports::{
    CountQuery, Counted, DayVisitors, Dimension, DomainCount, Hours, LinkTotal, MAX_COUNTED,
    TimeCount, ValueCount, ValueTimeCount,
};
use crate::store::shared::DAY_MS;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::upkeep::json_list;
use crate::store::visits::{
    ALL, HOUR_MS, column, counted_campaign, day_visitors, days, domain_counts, first_of,
    hour_before, hours, link_total, minute_from, sketched_visitors, time_counts, value_counts,
    value_time_counts,
};

pub(super) async fn by_time(
    store: &SqliteStore,
    query: &CountQuery,
) -> Result<Vec<TimeCount>, sqlx::Error> {
    let (since, until) = hours(query);
    let rows: Vec<(i64, String, i64)> = match (query.of, counted_campaign(query.of)) {
        (Counted::Link(code), _) => {
            let Some(id) = store.find_id(&code).await? else {
                return Ok(Vec::new());
            };
            sqlx::query_as(
                "SELECT hour, class, visits FROM visit_link_hours \
                 WHERE link_id = ?1 AND hour >= ?2 AND hour < ?3 ORDER BY hour, class",
            )
            .bind(id)
            .bind(since)
            .bind(until)
            .fetch_all(&store.readers)
            .await?
        }
        (_, campaign) => {
            sqlx::query_as(
                "SELECT hour, class, visits FROM visit_hours WHERE campaign_id = ?1 \
                 AND dimension = ?2 AND hour >= ?3 AND hour < ?4 ORDER BY hour, class",
            )
            .bind(campaign)
            .bind(Dimension::Total.name())
            .bind(since)
            .bind(until)
            .fetch_all(&store.readers)
            .await?
        }
    };
    time_counts(rows)
}

pub(super) async fn by_value(
    store: &SqliteStore,
    query: &CountQuery,
    dimension: Dimension,
) -> Result<Vec<ValueCount>, sqlx::Error> {
    let rows: Vec<(String, String, i64)> = match (query.of, counted_campaign(query.of)) {
        (Counted::Link(code), _) => {
            let Some(id) = store.find_id(&code).await? else {
                return Ok(Vec::new());
            };
            let column = column(dimension);
            let statement = AssertSqlSafe(format!(
                "SELECT {column} AS value, class, count(*) AS visits FROM \
                 (SELECT * FROM visits WHERE link_id = ?1 AND at >= ?2 AND at < ?3 \
                 ORDER BY id DESC LIMIT ?4) AS latest \
                 JOIN visit_agents ON visit_agents.id = agent_id \
                 GROUP BY value, class ORDER BY visits DESC, value, class"
            ));
            let (since, until) = hours(query);
            sqlx::query_as(statement)
                .bind(id)
                .bind(since * HOUR_MS)
                .bind(until * HOUR_MS)
                .bind(MAX_COUNTED)
                .fetch_all(&store.readers)
                .await?
        }
        (_, campaign) => {
            let (since, until) = hours(query);
            sqlx::query_as(
                "SELECT value, class, sum(visits) AS visits FROM visit_hours \
                 WHERE campaign_id = ?1 AND dimension = ?2 AND hour >= ?3 AND hour < ?4 \
                 GROUP BY value, class ORDER BY visits DESC, value, class",
            )
            .bind(campaign)
            .bind(dimension.name())
            .bind(since)
            .bind(until)
            .fetch_all(&store.readers)
            .await?
        }
    };
    Ok(value_counts(rows))
}

pub(super) async fn over_time(
    store: &SqliteStore,
    query: &CountQuery,
    dimension: Dimension,
    values: &[String],
    length: Hours,
) -> Result<Vec<ValueTimeCount>, sqlx::Error> {
    let (since, until) = hours(query);
    let values = serde_json::to_string(values).unwrap_or_default();
    let rows: Vec<(i64, String, String, i64)> = match (query.of, counted_campaign(query.of)) {
        (Counted::Link(code), _) => {
            let Some(id) = store.find_id(&code).await? else {
                return Ok(Vec::new());
            };
            let column = column(dimension);
            let statement = AssertSqlSafe(format!(
                "SELECT at / ?5 * ?6 AS begin, {column} AS value, class, count(*) AS visits FROM \
                 (SELECT * FROM visits WHERE link_id = ?1 AND at >= ?2 AND at < ?3 \
                 ORDER BY id DESC LIMIT ?4) AS latest \
                 JOIN visit_agents ON visit_agents.id = agent_id \
                 WHERE {column} IN (SELECT value FROM json_each(?7)) \
                 GROUP BY begin, {column}, class ORDER BY begin, visits DESC, {column}, class"
            ));
            sqlx::query_as(statement)
                .bind(id)
                .bind(since * HOUR_MS)
                .bind(until * HOUR_MS)
                .bind(MAX_COUNTED)
                .bind(length.count() * HOUR_MS)
                .bind(length.count())
                .bind(values)
                .fetch_all(&store.readers)
                .await?
        }
        (_, campaign) => {
            sqlx::query_as(
                "SELECT hour / ?5 * ?5 AS begin, value, class, sum(visits) AS visits \
                 FROM visit_hours WHERE campaign_id = ?1 AND dimension = ?2 \
                 AND hour >= ?3 AND hour < ?4 \
                 AND visit_hours.value IN (SELECT json_each.value FROM json_each(?6)) \
                 GROUP BY begin, value, class ORDER BY begin, visits DESC, value, class",
            )
            .bind(campaign)
            .bind(dimension.name())
            .bind(since)
            .bind(until)
            .bind(length.count())
            .bind(values)
            .fetch_all(&store.readers)
            .await?
        }
    };
    value_time_counts(rows)
}

pub(super) async fn totals(
    store: &SqliteStore,
    codes: &[Code],
) -> Result<Vec<LinkTotal>, sqlx::Error> {
    let ids = store.ids(codes).await?;
    let rows: Vec<(i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT link_id, sum(visits) AS visits, sum(iif(class = 'human', visits, 0)) AS human, \
         max(last_at) AS last_at FROM visit_link_hours \
         WHERE link_id IN (SELECT value FROM json_each(?1)) GROUP BY link_id",
    )
    .bind(json_list(&ids))
    .fetch_all(&store.readers)
    .await?;
    let codes: HashMap<i64, Code> = ids.into_iter().zip(codes.iter().copied()).collect();
    let totals = rows.into_iter().filter_map(|(id, visits, human, last_at)| {
        Some(link_total(*codes.get(&id)?, visits, human, last_at))
    });
    totals.collect()
}

pub(super) async fn domains(
    readers: &SqlitePool,
    since: Timestamp,
) -> Result<Vec<DomainCount>, sqlx::Error> {
    let rows: Vec<(i64, String, i64)> = sqlx::query_as(
        "SELECT minute, host, visits FROM visit_domain_minutes WHERE minute >= ?1 \
         ORDER BY minute, host",
    )
    .bind(minute_from(since))
    .fetch_all(readers)
    .await?;
    domain_counts(rows)
}

pub(super) async fn visitors(
    store: &SqliteStore,
    query: &CountQuery,
) -> Result<Vec<DayVisitors>, sqlx::Error> {
    let (first, last) = days(query);
    match (query.of, counted_campaign(query.of)) {
        (Counted::Link(code), _) => {
            let Some(id) = store.find_id(&code).await? else {
                return Ok(Vec::new());
            };
            let rows = sqlx::query_as(
            "SELECT day, count(DISTINCT visitor) FROM (SELECT at / ?3 AS day, visitor FROM visits \
                 WHERE link_id = ?1 AND at >= ?2 * ?3 AND at < (?4 + 1) * ?3 AND class = 'human' \
                 AND visitor IS NOT NULL ORDER BY id DESC LIMIT ?5) AS latest \
                 GROUP BY day ORDER BY day",
        )
        .bind(id)
        .bind(first)
        .bind(DAY_MS)
        .bind(last)
        .bind(i64::from(MAX_COUNTED))
        .fetch_all(&store.readers)
        .await?;
            day_visitors(rows)
        }
        (_, campaign) => {
            let rows = sqlx::query_as(
                "SELECT day, registers FROM visit_sketches WHERE campaign_id = ?1 \
                 AND day >= ?2 AND day <= ?3 ORDER BY day",
            )
            .bind(campaign)
            .bind(first)
            .bind(last)
            .fetch_all(&store.readers)
            .await?;
            sketched_visitors(rows)
        }
    }
}

pub(super) async fn recorded_days(
    readers: &SqlitePool,
    before: Timestamp,
    days: u32,
) -> Result<Option<Timestamp>, sqlx::Error> {
    let found: Vec<i64> = sqlx::query_scalar(
        "SELECT DISTINCT hour / 24 AS day FROM visit_hours WHERE campaign_id = ?1 \
         AND dimension = ?2 AND hour >= 0 AND hour < ?3 ORDER BY day DESC LIMIT ?4",
    )
    .bind(ALL)
    .bind(Dimension::Total.name())
    .bind(hour_before(before))
    .bind(days)
    .fetch_all(readers)
    .await?;
    first_of(&found, days)
}
