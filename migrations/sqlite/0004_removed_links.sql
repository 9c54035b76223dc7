-- Links that have been dead for long enough are deleted.

-- Codes of deleted links that Redis may still know: they are taken until it does not.
CREATE TABLE removed_links (
    -- The id that the link had.
    id INTEGER PRIMARY KEY,
    code TEXT NOT NULL,
    revision INTEGER NOT NULL,
    removed_at INTEGER NOT NULL
) STRICT;

-- Finds what was revoked long ago. `links_by_end` finds what has expired.
CREATE INDEX links_by_revocation ON links (revoked_at) WHERE revoked_at IS NOT NULL;

-- A link that is deleted takes its digests along.
CREATE INDEX link_digests_by_link ON link_digests (link_id);
