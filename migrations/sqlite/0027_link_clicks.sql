-- Which links people have clicked: those with a human visit.

-- A row for each link with a human visit that is not erased, also one that retention has deleted; without a campaign 0.
CREATE TABLE link_clicks (
    campaign_id INTEGER NOT NULL,
    link_id INTEGER NOT NULL,
    -- The times of the first and the last human visit.
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    -- The number of human visits.
    visits INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, link_id)
) STRICT, WITHOUT ROWID;

-- The number of a campaign's links whose first human visit was in an hour, also of links that were deleted since. Hours
-- are counted since 1970.
CREATE TABLE campaign_clicks (
    campaign_id INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    links INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, hour)
) STRICT, WITHOUT ROWID;

-- Dropped by the program that applies this migration, once it has counted the visits that are stored.
CREATE TABLE clicks_before (
    id INTEGER PRIMARY KEY
) STRICT;
