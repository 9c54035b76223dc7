-- Visits, and what is counted of them.

-- What user agents speak of. The id follows from the text, so that it is known without looking.
CREATE TABLE visit_agents (
    id INTEGER PRIMARY KEY,
    user_agent TEXT NOT NULL,
    browser TEXT,
    browser_version TEXT,
    os TEXT,
    os_version TEXT,
    device TEXT NOT NULL,
    app TEXT
) STRICT;

CREATE TABLE visits (
    -- In the order in which they were stored.
    id INTEGER PRIMARY KEY,
    -- Milliseconds since 1970.
    at INTEGER NOT NULL,
    code TEXT NOT NULL,
    host TEXT NOT NULL,
    client TEXT,
    visitor BLOB,
    agent_id INTEGER NOT NULL,
    referrer TEXT,
    referrer_host TEXT,
    language TEXT,
    method TEXT NOT NULL,
    status INTEGER NOT NULL,
    purpose TEXT,
    country TEXT,
    province TEXT,
    city TEXT,
    isp TEXT,
    class TEXT NOT NULL,
    reason TEXT NOT NULL,
    ruleset INTEGER NOT NULL
) STRICT;

-- The visits of a link, in the order in which they are listed.
CREATE INDEX visits_by_code ON visits (code, id);

-- Which events of an origin are stored: `0-99 120`. None of them is stored twice.
CREATE TABLE visit_origins (
    origin INTEGER PRIMARY KEY,
    ranges TEXT NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT;

-- How often links were visited. Hours are counted since 1970.
CREATE TABLE visit_link_hours (
    code TEXT NOT NULL,
    hour INTEGER NOT NULL,
    class TEXT NOT NULL,
    visits INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (code, hour, class)
) STRICT, WITHOUT ROWID;

-- How often the links of a campaign, or all (0), were visited, by what the visits have in common.
CREATE TABLE visit_hours (
    campaign_id INTEGER NOT NULL,
    dimension TEXT NOT NULL,
    hour INTEGER NOT NULL,
    value TEXT NOT NULL,
    class TEXT NOT NULL,
    visits INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, dimension, hour, value, class)
) STRICT, WITHOUT ROWID;

-- How many people there were on a day, counted since 1970, without who they were.
CREATE TABLE visit_sketches (
    campaign_id INTEGER NOT NULL,
    day INTEGER NOT NULL,
    registers BLOB NOT NULL,
    PRIMARY KEY (campaign_id, day)
) STRICT, WITHOUT ROWID;

-- Minutes are counted since 1970.
CREATE TABLE visit_domain_minutes (
    minute INTEGER NOT NULL,
    host TEXT NOT NULL,
    visits INTEGER NOT NULL,
    PRIMARY KEY (minute, host)
) STRICT, WITHOUT ROWID;

-- The keys that visitors are told apart by, one a day (`2026-11-21`), until they are destroyed.
CREATE TABLE visit_day_keys (
    day TEXT PRIMARY KEY NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 32)
) STRICT, WITHOUT ROWID;

-- What was in the queue of visits and is none, for somebody to look at.
CREATE TABLE visit_quarantine (
    id INTEGER PRIMARY KEY,
    -- Where it was: the part of the queue and the entry, and the place of the bytes in that.
    entry TEXT NOT NULL UNIQUE,
    at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
