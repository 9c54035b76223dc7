-- The values of dimensions, such as referrers, that are counted by name in `visit_hours`. Visitors choose them, so only
-- the first ones of each day have a name; the others are counted together.
CREATE TABLE visit_values (
    campaign_id INTEGER NOT NULL,
    dimension TEXT NOT NULL,
    day INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (campaign_id, dimension, day, value)
) STRICT, WITHOUT ROWID;

CREATE INDEX visit_values_by_day ON visit_values (day);

-- What is counted already keeps its name.
INSERT INTO visit_values SELECT DISTINCT campaign_id, dimension, hour / 24, value FROM visit_hours
    WHERE dimension IN ('domain', 'browser', 'os', 'referrer') AND value <> '';
