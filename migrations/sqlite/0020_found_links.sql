-- Links record how their codes were chosen.

-- 1 permuted, 2 pool, 3 sequence, 4 hash, 5 custom; NULL if unknown.
ALTER TABLE links ADD COLUMN strategy INTEGER;
