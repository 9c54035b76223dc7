-- Visits of campaigns, and all (0), of the last two days by the minute. Minutes are counted since 1970.
CREATE TABLE visit_minutes (
    campaign_id INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    class TEXT NOT NULL,
    visits INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, minute, class)
) STRICT, WITHOUT ROWID;

-- From the visits that are stored, of 50 hours; those of three days are found by their ids.
INSERT INTO visit_minutes
    WITH found AS MATERIALIZED (
        SELECT coalesce(campaign_id, 0) AS campaign_id, at / 60000 AS minute, class, count(*) AS visits
        FROM visits
        WHERE id >= (SELECT min(first_id) FROM visit_days WHERE day >= (unixepoch() - 50 * 3600) / 86400)
            AND at >= (unixepoch() - 50 * 3600) * 1000
        GROUP BY 1, 2, 3
    )
    SELECT campaign_id, minute, class, visits FROM found WHERE campaign_id > 0
    UNION ALL SELECT 0, minute, class, sum(visits) FROM found GROUP BY 2, 3;

CREATE INDEX visit_minutes_by_minute ON visit_minutes (minute);
