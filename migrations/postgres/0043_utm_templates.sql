-- UTM parameters for new links, which a team shares.
CREATE TABLE utm_templates (
    name TEXT COLLATE "C" PRIMARY KEY,
    source TEXT,
    medium TEXT,
    campaign TEXT,
    term TEXT,
    content TEXT,
    updated_at BIGINT NOT NULL,
    -- The id of the API key.
    updated_by TEXT COLLATE "C" NOT NULL
);
