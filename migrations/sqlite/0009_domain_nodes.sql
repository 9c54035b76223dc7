-- What each nginx has said of the short domains when it was last heard, for people to look at: nothing is
-- decided by it. Texts as they stand in its headers. Moments are milliseconds since 1970.
CREATE TABLE domain_nodes (
    node TEXT PRIMARY KEY NOT NULL,
    bases TEXT NOT NULL,
    names TEXT NOT NULL,
    states TEXT NOT NULL,
    -- How many domains it has besides.
    more INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    heard_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
