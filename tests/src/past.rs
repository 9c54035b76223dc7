//! A past that no test has the time to live through: counts of visits, as if there had been some for
//! months. Only in SQLite, and only what is counted, not the visits.

use crate::sql::Sql;

/// Counts by the hour for 90 days of all visits, and of a link; more by day than by night. The counts of a dimension
/// add up to the total, and each day has unique visitors for some four of five human visits.
pub fn fill_hours(sql: &Sql<'_>, code: &str) {
    let shape = "WITH RECURSIVE hours(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM hours WHERE n < 2159), \
         much(n, hour, visits) AS (SELECT n, unixepoch() / 3600 - n, \
         (60 + 50 * sin((unixepoch() / 3600 - n) * 0.2618 - 2)) \
         * (1.3 + sin(n / 24 * 0.9)) * (1 + abs(((n + 7) * 2654435761) % 97) / 200.0) FROM hours), \
         classes(class, part) AS (VALUES ('human', 0.71), ('preview', 0.14), ('scanner', 0.07), \
         ('bot', 0.06), ('unknown', 0.02)), \
         whole(n, hour, class, total) AS (SELECT n, hour, class, CAST(visits * part + 0.5 AS INTEGER) \
         FROM much, classes)";
    // The rest of each dimension belongs to the value in `rests`.
    let values = "parts(dimension, value, share, beat) AS (VALUES \
         ('domain', 's1.example.com', 0.52, 31), ('domain', 's2.example.com', 0.3, 17), \
         ('country', 'CN', 0.41, 29), ('country', 'US', 0.16, 37), ('country', 'DE', 0.12, 19), \
         ('country', 'AT', 0.1, 23), ('country', 'SG', 0.08, 41), ('country', 'JP', 0.06, 13), \
         ('device', 'phone', 0.74, 43), ('device', 'desktop', 0.17, 47)), \
         rests(dimension, value) AS (VALUES ('domain', 'vip.example.com'), ('country', ''), ('device', 'tablet')), \
         counts(dimension, hour, value, class, visits, total) AS (SELECT dimension, hour, value, class, \
         CAST(total * share * (1 + sin(n / beat) / 9) AS INTEGER), total FROM whole, parts)";
    sql.query(&format!(
        "INSERT OR REPLACE INTO visit_hours (campaign_id, dimension, hour, value, class, visits) {shape}, {values} \
         SELECT 0, dimension, hour, value, class, visits FROM counts \
         UNION ALL SELECT 0, rests.dimension, hour, rests.value, class, max(max(total) - sum(visits), 0) \
         FROM counts JOIN rests USING (dimension) GROUP BY rests.dimension, hour, class \
         UNION ALL SELECT 0, 'total', hour, '', class, total FROM whole; \
         DELETE FROM visit_hours WHERE visits = 0; \
         INSERT OR REPLACE INTO visit_link_hours (link_id, hour, class, visits, last_at) {shape} \
         SELECT id, hour, class, total / 6, hour * 3600000 FROM whole, links WHERE code = '{code}' AND total >= 6;"
    ));
    for day in 0..90 {
        // A quarter of the 4,096 registers is used after some 1,200 visitors.
        let registers: String = (0..4096)
            .map(|at| if (at + day) % 4 == 0 { "01" } else { "00" })
            .collect();
        sql.query(&format!(
            "INSERT OR REPLACE INTO visit_sketches (campaign_id, day, registers) \
             VALUES (0, unixepoch() / 86400 - {day}, X'{registers}');"
        ));
    }
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
