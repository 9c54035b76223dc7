-- Listings and counts read no more than they need.

-- The first and the last id of the visits of each day, counted since 1970: a listing of a period finds its visits
-- without reading all others. A visit that is stored late makes its day's stretch of ids longer.
CREATE TABLE visit_days (
    day INTEGER PRIMARY KEY,
    first_id INTEGER NOT NULL,
    last_id INTEGER NOT NULL
) STRICT;

-- In the order of the ids, so that nothing is sorted.
INSERT INTO visit_days SELECT at / 86400000, id, id FROM visits WHERE true ORDER BY id
    ON CONFLICT (day) DO UPDATE SET last_id = excluded.last_id;

-- Most codes in the pool are used ones, which grow more and more: they are not counted one by one.
CREATE INDEX code_pool_void ON code_pool (length) WHERE status = 'void';

-- How many codes of a length were ever in the pool.
INSERT INTO code_counters SELECT 'pooled:' || length, count(*) FROM code_pool GROUP BY length;
