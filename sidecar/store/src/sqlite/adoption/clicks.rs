//! Counting the clicks of links of which visits were stored before clicks were counted.

use crate::db::Db;
use crate::sql::sql;

/// Counts the clicks of all links within a transaction; `false`, since none are left then.
pub(super) async fn count(db: &mut Db<'_>) -> Result<bool, sqlx::Error> {
    for sql in [
        // In the order of the table, so that its pages are filled one after the other.
        sql!(
            "INSERT INTO link_clicks SELECT coalesce(campaign_id, 0), link_id, min(at), max(at), count(*) \
             FROM visits WHERE class = 'human' AND link_id IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
        ),
        sql!(
            "INSERT INTO campaign_clicks SELECT campaign_id, first_at / 3600000, count(*) FROM link_clicks \
             WHERE campaign_id > 0 GROUP BY 1, 2"
        ),
        // Links that were deleted are counted only. A code may have a link of another campaign now.
        sql!(
            "DELETE FROM link_clicks WHERE NOT EXISTS (SELECT 1 FROM links WHERE id = link_id \
             AND coalesce(links.campaign_id, 0) = link_clicks.campaign_id)"
        ),
    ] {
        db.run(sql, &[]).await?;
    }
    Ok(false)
}
