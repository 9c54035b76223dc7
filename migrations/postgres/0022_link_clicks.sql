-- Which links people have clicked: those with a human visit.

-- A row for each link with a human visit that is not erased, also one that retention has deleted; without a campaign 0.
CREATE TABLE link_clicks (
    campaign_id BIGINT NOT NULL,
    code TEXT COLLATE "C" NOT NULL,
    -- The times of the first and the last human visit.
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    -- The number of human visits.
    visits BIGINT NOT NULL,
    PRIMARY KEY (campaign_id, code)
) WITH (fillfactor = 90);

-- The number of a campaign's links whose first human visit was in an hour, also of links that were deleted since. Hours
-- are counted since 1970.
CREATE TABLE campaign_clicks (
    campaign_id BIGINT NOT NULL,
    hour BIGINT NOT NULL,
    links BIGINT NOT NULL,
    PRIMARY KEY (campaign_id, hour)
) WITH (fillfactor = 50);

-- From the visits that are stored.
INSERT INTO link_clicks
    SELECT coalesce(campaign_id, 0), code, min(at), max(at), count(*) FROM visits
    WHERE class = 'human' GROUP BY 1, 2 ORDER BY 1, 2;

INSERT INTO campaign_clicks
    SELECT campaign_id, first_at / 3600000, count(*) FROM link_clicks WHERE campaign_id > 0 GROUP BY 1, 2;

-- Links that were deleted are counted only. A code may have a link of another campaign now.
DELETE FROM link_clicks WHERE NOT EXISTS (
    SELECT 1 FROM links
    WHERE links.code = link_clicks.code AND coalesce(links.campaign_id, 0) = link_clicks.campaign_id
);
