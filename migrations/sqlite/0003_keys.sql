-- API keys expire, are rotated, have limits and policies; and what is done with them is noted.

-- Milliseconds since 1970; NULL for never.
ALTER TABLE api_keys ADD COLUMN expires_at INTEGER;
-- The id of the key that this one was rotated to.
ALTER TABLE api_keys ADD COLUMN successor_id TEXT;
-- Both or neither: how many units a second come back, and how many may be taken at once.
ALTER TABLE api_keys ADD COLUMN rate_per_second INTEGER CHECK (rate_per_second > 0);
ALTER TABLE api_keys ADD COLUMN rate_burst INTEGER
    CHECK ((rate_burst > 0) IS (rate_per_second > 0));
-- What may be made with the key; NULL for what it does not restrict. Names of strategies and
-- rules for domains, parted by single spaces.
ALTER TABLE api_keys ADD COLUMN strategies TEXT;
ALTER TABLE api_keys ADD COLUMN min_body_length INTEGER;
ALTER TABLE api_keys ADD COLUMN max_body_length INTEGER;
ALTER TABLE api_keys ADD COLUMN allowed_domains TEXT;

CREATE INDEX api_keys_by_age ON api_keys (created_at, id);

CREATE TABLE audit_log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Milliseconds since 1970.
    at INTEGER NOT NULL,
    -- The API key that it was done with; NULL for the command line.
    key_id TEXT,
    -- Such as key.create.
    action TEXT NOT NULL,
    -- Such as key:<id>.
    subject TEXT NOT NULL,
    -- A JSON object.
    detail TEXT NOT NULL CHECK (json_valid(detail))
) STRICT;

-- Each with the id behind it, which is the row's: newest first without sorting.
CREATE INDEX audit_log_by_subject ON audit_log (subject);
CREATE INDEX audit_log_by_key ON audit_log (key_id) WHERE key_id IS NOT NULL;
CREATE INDEX audit_log_by_action ON audit_log (action);
