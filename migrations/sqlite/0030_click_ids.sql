-- Click ids: a parameter of a campaign's targets, with an id for each visit.

-- The name of the parameter.
ALTER TABLE campaigns ADD COLUMN click_id TEXT;

-- The click ids of stored visits, wherever these are stored.
CREATE TABLE visit_clicks (
    click_id BLOB PRIMARY KEY,
    code TEXT NOT NULL,
    -- The time of the visit.
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX visit_clicks_by_code ON visit_clicks (code);
CREATE INDEX visit_clicks_by_time ON visit_clicks (at);
