-- Links, the outbox of what Redis has yet to be told, and the API's keys.
--
-- Text is compared byte by byte (BINARY, SQLite's default): `Ab` and `aB` are two codes.

CREATE TABLE links (
    id INTEGER PRIMARY KEY,
    code TEXT NOT NULL UNIQUE,
    -- A serialised http or https URL, as it goes into the Location header.
    target TEXT NOT NULL,
    redirect_status INTEGER NOT NULL CHECK (redirect_status IN (301, 302, 307, 308)),
    -- Grows by one with every change; the record in Redis carries it.
    revision INTEGER NOT NULL CHECK (revision BETWEEN 1 AND 9007199254740991),
    -- Seconds since 1970; NULL for never.
    expires_at INTEGER CHECK (expires_at > 0),
    -- Milliseconds since 1970, like every moment below.
    revoked_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- The id of the API key that asked for the link.
    created_by TEXT NOT NULL
) STRICT;

-- A row of links is long and codes come in no order. The rows are therefore kept in the order in
-- which they were made, and only this small index and the one behind UNIQUE are written in places
-- all over the file.
CREATE INDEX links_by_age ON links (created_at, code);

-- Few links are revoked or have an expiry: listing those must not read all others.
CREATE INDEX links_revoked_by_age ON links (created_at, code) WHERE revoked_at IS NOT NULL;
CREATE INDEX links_expiring_by_age ON links (created_at, code) WHERE expires_at IS NOT NULL;

CREATE TABLE outbox (
    code TEXT PRIMARY KEY NOT NULL,
    revision INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    -- When Redis confirmed the revision; NULL while it has not. Rows of new links are deleted
    -- instead. Rows of changes stay for a while, to be applied again to a Redis that crashed and
    -- forgot them.
    applied_at INTEGER
) STRICT, WITHOUT ROWID;

-- Changes are applied before new links: a link that was not published yet is served by the
-- fallback, but a link that was revoked and not published goes on redirecting.
CREATE INDEX outbox_changes ON outbox (enqueued_at) WHERE revision > 1;

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    secret_sha256 BLOB NOT NULL CHECK (length(secret_sha256) = 32),
    -- Names of scopes, parted by single spaces.
    scopes TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
