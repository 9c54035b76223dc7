-- The tables and columns of SQLite's newest schema, for PostgreSQL 14 or newer. (What SQLite keeps in
-- `settings` and is no setting has tables of its own.)
--
-- Moments are milliseconds since 1970 unless a column says seconds. Text is compared byte by byte
-- (COLLATE "C"): `Ab` and `aB` are two codes, and no index depends on the system's locales. What
-- is JSON is kept as TEXT: only the program reads it, and just as it was written.

-- What belongs to the database for ever. `code_key`: the 32 secret bytes that the numbers of codes
-- depend on.
CREATE TABLE settings (
    name TEXT COLLATE "C" PRIMARY KEY,
    value BYTEA NOT NULL
);

-- Parted by a hash of the id: each part has indexes of its own, which many writers append to at
-- once, and is vacuumed on its own. Few parts: a statement opens each with all of its indexes,
-- which is most of what a single link costs.
CREATE TABLE links (
    -- The number of the code, or minus the number of its row in `far_codes`.
    id BIGINT PRIMARY KEY,
    -- Not indexed: the id follows from it.
    code TEXT COLLATE "C" NOT NULL,
    -- A serialised http or https URL, as it goes into the Location header; NULL for a link of a
    -- campaign, whose template makes it.
    target TEXT COLLATE "C",
    campaign_id BIGINT,
    -- The values for the campaign's template, percent-encoded and parted by `&`.
    parameters TEXT COLLATE "C",
    redirect_status INTEGER NOT NULL CHECK (redirect_status IN (301, 302, 307, 308)),
    -- Whether the visitor's query is appended to the target.
    forward_query BOOLEAN NOT NULL DEFAULT FALSE,
    -- Grows by one with every change; the record in Redis carries it.
    revision BIGINT NOT NULL CHECK (revision BETWEEN 1 AND 9007199254740991),
    -- Seconds since 1970; NULL for no bound.
    valid_since BIGINT CHECK (valid_since > 0),
    valid_until BIGINT CHECK (valid_until > 0),
    max_visits BIGINT CHECK (max_visits > 0),
    paused_at BIGINT,
    revoked_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    -- The id of the API key that asked for the link.
    created_by TEXT COLLATE "C" NOT NULL,
    -- What the caller calls it.
    external_id TEXT COLLATE "C",
    note TEXT COLLATE "C",
    -- A JSON list of texts; `link_tags` has them too.
    tags TEXT COLLATE "C",
    CHECK ((target IS NULL) = (campaign_id IS NOT NULL))
) PARTITION BY HASH (id);

CREATE TABLE links_0 PARTITION OF links FOR VALUES WITH (MODULUS 4, REMAINDER 0);
CREATE TABLE links_1 PARTITION OF links FOR VALUES WITH (MODULUS 4, REMAINDER 1);
CREATE TABLE links_2 PARTITION OF links FOR VALUES WITH (MODULUS 4, REMAINDER 2);
CREATE TABLE links_3 PARTITION OF links FOR VALUES WITH (MODULUS 4, REMAINDER 3);

-- New rows go to the end of all of these.
CREATE INDEX links_by_age ON links (created_at, id);
CREATE INDEX links_by_creator ON links (created_by, created_at, id);
-- Few links are revoked, paused, or have a beginning or an end: listing those must not read all
-- others.
CREATE INDEX links_revoked_by_age ON links (created_at, id) WHERE revoked_at IS NOT NULL;
CREATE INDEX links_paused_by_age ON links (created_at, id) WHERE paused_at IS NOT NULL;
CREATE INDEX links_starting_by_age ON links (created_at, id) WHERE valid_since IS NOT NULL;
CREATE INDEX links_ending_by_age ON links (created_at, id) WHERE valid_until IS NOT NULL;
-- Find what has expired or was revoked long ago.
CREATE INDEX links_by_end ON links (valid_until, id) WHERE valid_until IS NOT NULL;
CREATE INDEX links_by_revocation ON links (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX links_by_external_id ON links (external_id, created_at, id)
    WHERE external_id IS NOT NULL;
CREATE INDEX links_by_campaign ON links (campaign_id, created_at) WHERE campaign_id IS NOT NULL;

-- Codes that have no number.
CREATE TABLE far_codes (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    code TEXT COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE link_tags (
    tag TEXT COLLATE "C" NOT NULL,
    -- The link's `created_at`, so that the links of a tag are listed by age without being sorted.
    link_created_at BIGINT NOT NULL,
    link_id BIGINT NOT NULL,
    PRIMARY KEY (tag, link_created_at, link_id)
);

-- Links that were made so that the same request finds them again.
CREATE TABLE link_digests (
    -- The SHA-256 of what was asked for.
    digest BYTEA PRIMARY KEY CHECK (length(digest) = 32),
    link_id BIGINT NOT NULL
);

-- A link that is deleted takes its digests along.
CREATE INDEX link_digests_by_link ON link_digests (link_id);

-- Codes of deleted links that Redis may still know: they are taken until it does not.
CREATE TABLE removed_links (
    -- The id that the link had.
    id BIGINT PRIMARY KEY,
    code TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    removed_at BIGINT NOT NULL
);

CREATE INDEX removed_links_by_age ON removed_links (removed_at);

-- What a link was before each of its changes, as JSON.
CREATE TABLE link_history (
    link_id BIGINT NOT NULL,
    -- The revision that it had before.
    revision BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    changed_by TEXT COLLATE "C" NOT NULL,
    before TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (link_id, revision)
);

-- Links that Redis has yet to be told of: those from one id to another. A change is a row of its
-- own. Rows come and go all the time, so what they leave behind is cleared away soon.
CREATE TABLE outbox (
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL CHECK (last_id >= first_id),
    -- 1 for new links.
    revision BIGINT NOT NULL,
    enqueued_at BIGINT NOT NULL,
    -- When Redis confirmed the revision; NULL while it has not. Rows of new links are deleted
    -- instead. Rows of changes stay for a while, to be applied again to a Redis that crashed and
    -- forgot them.
    applied_at BIGINT,
    -- The new links that wait, if not all links between the first and the last do: one row for
    -- many whose ids are far from each other.
    ids BIGINT[],
    PRIMARY KEY (first_id, last_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Changes are applied before new links: a link that was not published yet is served by the
-- fallback, but a link that was revoked and not published goes on redirecting.
CREATE INDEX outbox_changes ON outbox (enqueued_at, first_id, last_id) WHERE revision > 1;

CREATE INDEX outbox_scattered ON outbox (first_id) WHERE ids IS NOT NULL;

-- Ids that are far from each other can't be compressed.
ALTER TABLE outbox ALTER COLUMN ids SET STORAGE EXTERNAL;

-- How far codes have been issued by counting, and how many codes of a length were ever in the pool.
CREATE TABLE code_counters (
    -- The strategy, and for codes of a length, that length; `pooled:` and a length.
    name TEXT COLLATE "C" PRIMARY KEY,
    next BIGINT NOT NULL CHECK (next >= 0)
) WITH (fillfactor = 20);

-- How many links were made on each day, by the length of their codes, less those that were deleted.
-- Today's rows change with every creation: room beside them keeps that within a page.
CREATE TABLE code_usage (
    length BIGINT NOT NULL,
    -- Days since 1970.
    day BIGINT NOT NULL,
    -- A count is the sum of all slots: who makes links at the same time counts in different ones, since
    -- a row is locked until its change is on the disk.
    slot INTEGER NOT NULL,
    links BIGINT NOT NULL,
    PRIMARY KEY (length, day, slot)
) WITH (fillfactor = 20);

-- Codes that were made ahead.
CREATE TABLE code_pool (
    -- The order in which they are taken. Not indexed by itself: most rows are used ones.
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    code TEXT COLLATE "C" PRIMARY KEY,
    length BIGINT NOT NULL,
    -- unused, used (handed to a process), void (found taken).
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('unused', 'used', 'void'))
);

CREATE INDEX code_pool_unused ON code_pool (length, id) WHERE status = 'unused';
CREATE INDEX code_pool_void ON code_pool (length) WHERE status = 'void';

-- What became of the rows of a request that may be sent again.
CREATE TABLE idempotent_chunks (
    key_id TEXT COLLATE "C" NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    chunk BIGINT NOT NULL,
    -- The SHA-256 of what was asked for.
    digest BYTEA NOT NULL CHECK (length(digest) = 32),
    -- JSON: for each row its code, or its problem in a list, or null while it has neither.
    rows TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (key_id, idempotency_key, chunk)
);

CREATE INDEX idempotent_chunks_by_age ON idempotent_chunks (created_at);

-- How far those have come who walk through all links.
CREATE TABLE notes (
    name TEXT COLLATE "C" PRIMARY KEY,
    note TEXT COLLATE "C" NOT NULL
);

-- Tasks that one of several processes does, and until when it has claimed them.
CREATE TABLE claims (
    task TEXT COLLATE "C" PRIMARY KEY,
    holder TEXT COLLATE "C" NOT NULL,
    until BIGINT NOT NULL
);

CREATE TABLE campaigns (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    -- A template: a target with places for parameters.
    target TEXT COLLATE "C" NOT NULL,
    -- JSON: the names of the parameters, in the order in which links keep their values.
    parameters TEXT COLLATE "C" NOT NULL,
    redirect_status INTEGER NOT NULL CHECK (redirect_status IN (301, 302, 307, 308)),
    forward_query BOOLEAN NOT NULL,
    revision BIGINT NOT NULL CHECK (revision BETWEEN 1 AND 9007199254740991),
    valid_since BIGINT CHECK (valid_since > 0),
    valid_until BIGINT CHECK (valid_until > 0),
    paused_at BIGINT,
    revoked_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    external_id TEXT COLLATE "C",
    note TEXT COLLATE "C",
    -- JSON: what its links are like unless they say otherwise.
    defaults TEXT COLLATE "C" NOT NULL
);

CREATE TABLE campaign_outbox (
    campaign_id BIGINT PRIMARY KEY,
    revision BIGINT NOT NULL,
    enqueued_at BIGINT NOT NULL,
    applied_at BIGINT
);

CREATE TABLE api_keys (
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    secret_sha256 BYTEA NOT NULL CHECK (length(secret_sha256) = 32),
    -- Names of scopes, parted by single spaces.
    scopes TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT,
    -- NULL for never.
    expires_at BIGINT,
    -- The id of the key that this one was rotated to.
    successor_id TEXT COLLATE "C",
    -- Both or neither: how many units a second come back, and how many may be taken at once.
    rate_per_second BIGINT CHECK (rate_per_second > 0),
    rate_burst BIGINT,
    -- What may be made with the key; NULL for what it does not restrict. Names of strategies and
    -- rules for domains, parted by single spaces.
    strategies TEXT COLLATE "C",
    min_body_length BIGINT,
    max_body_length BIGINT,
    allowed_domains TEXT COLLATE "C",
    CHECK ((rate_burst > 0) IS NOT DISTINCT FROM (rate_per_second > 0))
);

CREATE INDEX api_keys_by_age ON api_keys (created_at, id);

CREATE TABLE audit_log (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at BIGINT NOT NULL,
    -- The API key that it was done with; NULL for the command line.
    key_id TEXT COLLATE "C",
    -- Such as key.create.
    action TEXT COLLATE "C" NOT NULL,
    -- Such as key:<id>.
    subject TEXT COLLATE "C" NOT NULL,
    -- A JSON object.
    detail TEXT COLLATE "C" NOT NULL CHECK (json_typeof(detail::json) = 'object')
);

-- Each with the id, so that the newest come first without sorting.
CREATE INDEX audit_log_by_subject ON audit_log (subject, id);
CREATE INDEX audit_log_by_key ON audit_log (key_id, id) WHERE key_id IS NOT NULL;
CREATE INDEX audit_log_by_action ON audit_log (action, id);
