-- Visits are judged a second time, by what a client did, some minutes after they were stored.

-- Stretches of visits that were stored together and are not judged again yet.
CREATE TABLE visit_stretches (
    id INTEGER PRIMARY KEY,
    -- The ids of the visits. Others may be in between.
    first_id INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    -- Milliseconds since 1970.
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    visits INTEGER NOT NULL,
    stored_at INTEGER NOT NULL
) STRICT;
