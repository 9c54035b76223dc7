-- Links record how their codes were chosen.

-- 1 permuted, 2 pool, 3 sequence, 4 hash, 5 custom; NULL if unknown.
ALTER TABLE links ADD COLUMN strategy INTEGER;

-- The first 64 bits of the SHA-256 of `target`, for links that are found by it. NULL, and not in the index, if the process
-- that created the link finds none.
ALTER TABLE links ADD COLUMN target_hash INTEGER;
CREATE INDEX links_by_target ON links (target_hash, created_at) WHERE target_hash IS NOT NULL;

-- The walk that fills in missing hashes: one row.
CREATE TABLE target_fill (
    -- The id that it has come to; NULL at its end.
    place INTEGER,
    -- Whether links without a hash may have been created since it began.
    is_stale INTEGER NOT NULL CHECK (is_stale IN (0, 1))
) STRICT;
INSERT INTO target_fill (place, is_stale) VALUES (NULL, 1);

-- The time of the last request, for requests that get the same link only within a window.
ALTER TABLE link_digests ADD COLUMN used_at INTEGER;
