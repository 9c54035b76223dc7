-- UTM parameters for new links, which a team shares.
CREATE TABLE utm_templates (
    name TEXT PRIMARY KEY NOT NULL,
    source TEXT,
    medium TEXT,
    campaign TEXT,
    term TEXT,
    content TEXT,
    updated_at INTEGER NOT NULL,
    -- The id of the API key.
    updated_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;
