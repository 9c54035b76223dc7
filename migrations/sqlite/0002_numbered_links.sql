-- Links are kept under numbers that follow from their codes; codes are issued by counting; many
-- links share one row of the outbox.

-- What belongs to the database for ever. `code_key`: the 32 secret bytes that the numbers of codes
-- depend on.
CREATE TABLE settings (
    name TEXT PRIMARY KEY NOT NULL,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Adopted into the new table, and dropped, by the program that applies this migration.
DROP INDEX links_by_age;
DROP INDEX links_revoked_by_age;
DROP INDEX links_expiring_by_age;
ALTER TABLE links RENAME TO links_before;
DROP TABLE outbox;

CREATE TABLE links (
    -- The number of the code, or minus the number of its row in `far_codes`.
    id INTEGER PRIMARY KEY,
    -- Not indexed: the id follows from it.
    code TEXT NOT NULL,
    -- A serialised http or https URL, as it goes into the Location header; NULL for a link of a
    -- campaign, whose template makes it.
    target TEXT,
    campaign_id INTEGER,
    -- The values for the campaign's template, percent-encoded and parted by `&`.
    parameters TEXT,
    redirect_status INTEGER NOT NULL CHECK (redirect_status IN (301, 302, 307, 308)),
    -- Whether the visitor's query is appended to the target.
    forward_query INTEGER NOT NULL DEFAULT 0 CHECK (forward_query IN (0, 1)),
    -- Grows by one with every change; the record in Redis carries it.
    revision INTEGER NOT NULL CHECK (revision BETWEEN 1 AND 9007199254740991),
    -- Seconds since 1970; NULL for no bound.
    valid_since INTEGER CHECK (valid_since > 0),
    valid_until INTEGER CHECK (valid_until > 0),
    max_visits INTEGER CHECK (max_visits > 0),
    -- Milliseconds since 1970, like every moment below.
    paused_at INTEGER,
    revoked_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- The id of the API key that asked for the link.
    created_by TEXT NOT NULL,
    -- What the caller calls it.
    external_id TEXT,
    note TEXT,
    -- A JSON list of texts; `link_tags` has them too.
    tags TEXT,
    CHECK ((target IS NULL) = (campaign_id IS NOT NULL))
) STRICT;

-- An index of a table with ids ends with the id. New rows go to the end of all of these.
CREATE INDEX links_by_age ON links (created_at);
CREATE INDEX links_by_creator ON links (created_by, created_at);
-- Few links are revoked, paused, or have a beginning or an end: listing those must not read all
-- others.
CREATE INDEX links_revoked_by_age ON links (created_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX links_paused_by_age ON links (created_at) WHERE paused_at IS NOT NULL;
CREATE INDEX links_starting_by_age ON links (created_at) WHERE valid_since IS NOT NULL;
CREATE INDEX links_ending_by_age ON links (created_at) WHERE valid_until IS NOT NULL;
CREATE INDEX links_by_end ON links (valid_until) WHERE valid_until IS NOT NULL;
CREATE INDEX links_by_external_id ON links (external_id, created_at)
    WHERE external_id IS NOT NULL;
CREATE INDEX links_by_campaign ON links (campaign_id, created_at) WHERE campaign_id IS NOT NULL;

-- Codes that have no number.
CREATE TABLE far_codes (
    id INTEGER PRIMARY KEY,
    code TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE link_tags (
    tag TEXT NOT NULL,
    -- The link's `created_at`, so that the links of a tag are listed by age without being sorted.
    link_created_at INTEGER NOT NULL,
    link_id INTEGER NOT NULL,
    PRIMARY KEY (tag, link_created_at, link_id)
) STRICT, WITHOUT ROWID;

-- Links that were made so that the same request finds them again.
CREATE TABLE link_digests (
    -- The SHA-256 of what was asked for.
    digest BLOB PRIMARY KEY NOT NULL CHECK (length(digest) = 32),
    link_id INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What a link was before each of its changes, as JSON.
CREATE TABLE link_history (
    link_id INTEGER NOT NULL,
    -- The revision that it had before.
    revision INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    changed_by TEXT NOT NULL,
    before TEXT NOT NULL,
    PRIMARY KEY (link_id, revision)
) STRICT, WITHOUT ROWID;

-- Links that Redis has yet to be told of: those from one id to another. A change is a row of its
-- own.
CREATE TABLE outbox (
    first_id INTEGER NOT NULL,
    last_id INTEGER NOT NULL CHECK (last_id >= first_id),
    -- 1 for new links.
    revision INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    -- When Redis confirmed the revision; NULL while it has not. Rows of new links are deleted
    -- instead. Rows of changes stay for a while, to be applied again to a Redis that crashed and
    -- forgot them.
    applied_at INTEGER,
    PRIMARY KEY (first_id, last_id)
) STRICT, WITHOUT ROWID;

-- Changes are applied before new links: a link that was not published yet is served by the
-- fallback, but a link that was revoked and not published goes on redirecting.
CREATE INDEX outbox_changes ON outbox (enqueued_at) WHERE revision > 1;

-- How far codes have been issued by counting.
CREATE TABLE code_counters (
    -- The strategy, and for codes of a length, that length.
    name TEXT PRIMARY KEY NOT NULL,
    next INTEGER NOT NULL CHECK (next >= 0)
) STRICT, WITHOUT ROWID;

-- How many links were made on each day, by the length of their codes.
CREATE TABLE code_usage (
    length INTEGER NOT NULL,
    -- Days since 1970.
    day INTEGER NOT NULL,
    links INTEGER NOT NULL,
    PRIMARY KEY (length, day)
) STRICT, WITHOUT ROWID;

-- Codes that were made ahead.
CREATE TABLE code_pool (
    id INTEGER PRIMARY KEY,
    code TEXT NOT NULL UNIQUE,
    length INTEGER NOT NULL,
    -- unused, used (handed to a process), void (found taken).
    status TEXT NOT NULL CHECK (status IN ('unused', 'used', 'void'))
) STRICT;

CREATE INDEX code_pool_unused ON code_pool (length, id) WHERE status = 'unused';

-- What became of the rows of a request that may be sent again.
CREATE TABLE idempotent_chunks (
    key_id TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    -- The SHA-256 of what was asked for.
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    -- JSON: for each row its code, or its problem in a list, or null while it has neither.
    rows TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (key_id, idempotency_key, chunk)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotent_chunks_by_age ON idempotent_chunks (created_at);

CREATE TABLE campaigns (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    -- A template: a target with places for parameters.
    target TEXT NOT NULL,
    -- JSON: the names of the parameters, in the order in which links keep their values.
    parameters TEXT NOT NULL,
    redirect_status INTEGER NOT NULL CHECK (redirect_status IN (301, 302, 307, 308)),
    forward_query INTEGER NOT NULL CHECK (forward_query IN (0, 1)),
    revision INTEGER NOT NULL CHECK (revision BETWEEN 1 AND 9007199254740991),
    valid_since INTEGER CHECK (valid_since > 0),
    valid_until INTEGER CHECK (valid_until > 0),
    paused_at INTEGER,
    revoked_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    external_id TEXT,
    note TEXT,
    -- JSON: what its links are like unless they say otherwise.
    defaults TEXT NOT NULL
) STRICT;

CREATE TABLE campaign_outbox (
    campaign_id INTEGER PRIMARY KEY,
    revision INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    applied_at INTEGER
) STRICT;
