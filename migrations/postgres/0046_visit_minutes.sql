-- Visits of campaigns, and all (0), of the last two days by the minute. Minutes are counted since 1970.
CREATE TABLE visit_minutes (
    campaign_id BIGINT NOT NULL,
    minute BIGINT NOT NULL,
    class TEXT NOT NULL,
    visits BIGINT NOT NULL,
    PRIMARY KEY (campaign_id, minute, class)
) WITH (fillfactor = 50);

-- From the visits that are stored, of 50 hours.
INSERT INTO visit_minutes
    WITH found AS MATERIALIZED (
        SELECT coalesce(campaign_id, 0) AS campaign_id, at / 60000 AS minute, class, count(*) AS visits
        FROM visits WHERE at >= CAST(extract(epoch FROM now() - interval '50 hours') * 1000 AS bigint)
        GROUP BY 1, 2, 3
    )
    SELECT campaign_id, minute, class, visits FROM found WHERE campaign_id > 0
    UNION ALL SELECT 0, minute, class, CAST(sum(visits) AS bigint) FROM found GROUP BY 2, 3;

CREATE INDEX visit_minutes_by_minute ON visit_minutes (minute);
