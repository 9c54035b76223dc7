//! A past that no test has the time to live through: counts of visits, as if there had been some for
//! months. Only in SQLite, and only what is counted, not the visits.

use crate::sql::Sql;

/// Counts by the hour for 90 days of all visits, and of a link; more by day than by night.
pub fn fill_hours(sql: &Sql<'_>, code: &str) {
    let shape = "WITH RECURSIVE hours(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM hours WHERE n < 2159), \
         much(n, hour, visits) AS (SELECT n, unixepoch() / 3600 - n, \
         (60 + 50 * sin((unixepoch() / 3600 - n) * 0.2618 - 2)) \
         * (1.3 + sin(n / 24 * 0.9)) * (1 + abs(((n + 7) * 2654435761) % 97) / 200.0) FROM hours), \
         classes(class, part) AS (VALUES ('human', 0.71), ('preview', 0.14), ('scanner', 0.07), \
         ('bot', 0.06), ('unknown', 0.02))";
    let values = "(dimension, value, share, beat) AS (VALUES \
         ('domain', 's1.example.com', 0.52, 31), ('domain', 's2.example.com', 0.3, 17), \
         ('domain', 'vip.example.com', 0.18, 53), \
         ('country', 'CN', 0.41, 29), ('country', 'US', 0.16, 37), ('country', 'DE', 0.12, 19), \
         ('country', 'AT', 0.1, 23), ('country', 'SG', 0.08, 41), ('country', 'JP', 0.06, 13), \
         ('country', '', 0.07, 11), \
         ('device', 'phone', 0.74, 43), ('device', 'desktop', 0.17, 47), ('device', 'tablet', 0.09, 59))";
    sql.query(&format!(
        "INSERT OR REPLACE INTO visit_hours (campaign_id, dimension, hour, value, class, visits) {shape}, \
         of{values} SELECT 0, dimension, hour, value, class, \
         CAST(visits * part * share * (1 + sin(n / beat) / 9) + 0.5 AS INTEGER) FROM much, classes, of; \
         DELETE FROM visit_hours WHERE visits = 0; \
         INSERT OR REPLACE INTO visit_hours (campaign_id, dimension, hour, value, class, visits) \
         SELECT 0, 'total', hour, '', class, sum(visits) FROM visit_hours WHERE campaign_id = 0 \
         AND dimension = 'device' GROUP BY hour, class; \
         INSERT OR REPLACE INTO visit_link_hours (link_id, hour, class, visits, last_at) {shape} \
         SELECT id, hour, class, CAST(visits * part / 6 + 0.5 AS INTEGER), hour * 3600000 \
         FROM much, classes, links WHERE code = '{code}' AND visits * part >= 3;"
    ));
}

/// Visits of a domain in each minute of the last hour, up to a minute so long ago from which on there
/// were hardly any.
pub fn fill_minutes(sql: &Sql<'_>, domain: &str, per_minute: u32, fell_ago: u32) {
    sql.query(&format!(
        "WITH RECURSIVE ago(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ago WHERE n < 60) \
         INSERT OR REPLACE INTO visit_domain_minutes (minute, host, visits) \
         SELECT unixepoch() / 60 - n, '{domain}', \
         CASE WHEN n > {fell_ago} THEN {per_minute} + n % 5 ELSE 1 END FROM ago;"
    ));
}
