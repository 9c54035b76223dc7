-- What each nginx has said of the short domains when it was last heard, for people to look at: nothing is
-- decided by it. Texts as they stand in its headers. Moments are milliseconds since 1970.
CREATE TABLE domain_nodes (
    node TEXT COLLATE "C" PRIMARY KEY,
    bases TEXT NOT NULL,
    names TEXT NOT NULL,
    states TEXT NOT NULL,
    -- How many domains it has besides.
    more BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    heard_at BIGINT NOT NULL
);
