//! Counting by network and by status the visits that were stored before these were counted.

use crate::db::Db;
use crate::sql::sql;

/// Counts all stored visits within a transaction; of the others that are counted, network and status are unknown.
/// Returns `false`, since none are left then.
pub(super) async fn count(db: &mut Db<'_>) -> Result<bool, sqlx::Error> {
    for sql in [
        sql!(
            "INSERT INTO visit_hours \
             WITH found AS MATERIALIZED ( \
             SELECT coalesce(campaign_id, 0) AS campaign_id, at / 3600000 AS hour, coalesce(isp, '') AS network, \
             CAST(status AS text) AS status, class, count(*) AS visits \
             FROM visits GROUP BY 1, 2, 3, 4, 5 \
             ), counted AS ( \
             SELECT campaign_id, hour, network, status, class, visits FROM found WHERE campaign_id > 0 \
             UNION ALL SELECT 0, hour, network, status, class, visits FROM found \
             ), stored AS ( \
             SELECT campaign_id, hour, class, sum(visits) AS visits FROM counted GROUP BY 1, 2, 3 \
             ), gone AS ( \
             SELECT total.campaign_id, total.hour, total.class, total.visits - coalesce(stored.visits, 0) AS visits \
             FROM visit_hours AS total LEFT JOIN stored ON stored.campaign_id = total.campaign_id \
             AND stored.hour = total.hour AND stored.class = total.class \
             WHERE total.dimension = 'total' AND total.visits > coalesce(stored.visits, 0) \
             ), by_value AS ( \
             SELECT campaign_id, 'network' AS dimension, hour, network AS value, class, visits FROM counted \
             UNION ALL SELECT campaign_id, 'status', hour, status, class, visits FROM counted \
             UNION ALL SELECT campaign_id, 'network', hour, '', class, visits FROM gone \
             UNION ALL SELECT campaign_id, 'status', hour, '', class, visits FROM gone \
             ) \
             SELECT campaign_id, dimension, hour, value, class, CAST(sum(visits) AS bigint) FROM by_value \
             GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"
        ),
        sql!(
            "INSERT INTO visit_values SELECT DISTINCT campaign_id, dimension, hour / 24, value FROM visit_hours \
             WHERE dimension = 'network' AND value <> ''"
        ),
    ] {
        db.run(sql, &[]).await?;
    }
    Ok(false)
}
