-- Visits, and what is counted of them.

-- What user agents speak of. The id follows from the text, so that it is known without looking.
CREATE TABLE visit_agents (
    id BIGINT PRIMARY KEY,
    user_agent TEXT NOT NULL,
    browser TEXT,
    browser_version TEXT,
    os TEXT,
    os_version TEXT,
    device TEXT NOT NULL,
    app TEXT
);

CREATE SEQUENCE visit_ids CACHE 100;

-- A part for each day, made when it begins and dropped as a whole; whatever is of a day without a
-- part is in the default one.
CREATE TABLE visits (
    -- About in the order in which they were stored.
    id BIGINT NOT NULL DEFAULT nextval('visit_ids'),
    -- Milliseconds since 1970.
    at BIGINT NOT NULL,
    code TEXT COLLATE "C" NOT NULL,
    host TEXT NOT NULL,
    client TEXT,
    visitor BYTEA,
    agent_id BIGINT NOT NULL,
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
    ruleset INTEGER NOT NULL,
    PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);

CREATE TABLE visits_of_other_days PARTITION OF visits DEFAULT;

-- The visits of a link, in the order in which they are listed.
CREATE INDEX visits_by_code ON visits (code, id);

-- Which events of an origin are stored: `0-99 120`. None of them is stored twice.
CREATE TABLE visit_origins (
    origin BIGINT PRIMARY KEY,
    ranges TEXT NOT NULL,
    seen_at BIGINT NOT NULL
) WITH (fillfactor = 50);

-- How often links were visited. Hours are counted since 1970.
CREATE TABLE visit_link_hours (
    code TEXT COLLATE "C" NOT NULL,
    hour BIGINT NOT NULL,
    class TEXT NOT NULL,
    visits BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (code, hour, class)
);

-- How often the links of a campaign, or all (0), were visited, by what the visits have in common.
CREATE TABLE visit_hours (
    campaign_id BIGINT NOT NULL,
    dimension TEXT NOT NULL,
    hour BIGINT NOT NULL,
    value TEXT NOT NULL,
    class TEXT NOT NULL,
    visits BIGINT NOT NULL,
    PRIMARY KEY (campaign_id, dimension, hour, value, class)
) WITH (fillfactor = 50);

-- How many people there were on a day, counted since 1970, without who they were.
CREATE TABLE visit_sketches (
    campaign_id BIGINT NOT NULL,
    day BIGINT NOT NULL,
    registers BYTEA NOT NULL,
    PRIMARY KEY (campaign_id, day)
);

-- Minutes are counted since 1970.
CREATE TABLE visit_domain_minutes (
    minute BIGINT NOT NULL,
    host TEXT NOT NULL,
    visits BIGINT NOT NULL,
    PRIMARY KEY (minute, host)
) WITH (fillfactor = 50);

-- The keys that visitors are told apart by, one a day (`2026-11-21`), until they are destroyed.
CREATE TABLE visit_day_keys (
    day TEXT PRIMARY KEY,
    key BYTEA NOT NULL CHECK (length(key) = 32)
);

-- What was in the queue of visits and is none, for somebody to look at.
CREATE TABLE visit_quarantine (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Where it was: the part of the queue and the entry, and the place of the bytes in that.
    entry TEXT NOT NULL UNIQUE,
    at BIGINT NOT NULL,
    reason TEXT NOT NULL,
    bytes BYTEA NOT NULL
);
