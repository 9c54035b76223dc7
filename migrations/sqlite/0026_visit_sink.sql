-- Visits in ClickHouse: what SQL decides of them.

-- One row. It numbers batches and visits, and whoever changes visits in ClickHouse locks it first.
CREATE TABLE visit_sink (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    -- Where visits are stored: `sql` or `clickhouse`.
    place TEXT NOT NULL,
    batches INTEGER NOT NULL,
    numbers INTEGER NOT NULL,
    -- Changes with each correction and erasure of stored visits.
    corrections INTEGER NOT NULL
) STRICT;
INSERT INTO visit_sink VALUES (1, 'sql', 0, 0, 0);

-- Rows that ClickHouse may not have yet. They are stored with what was decided of them, and deleted once ClickHouse has
-- them.
CREATE TABLE visit_batches (
    id INTEGER PRIMARY KEY,
    stored_at INTEGER NOT NULL,
    rows BLOB NOT NULL
) STRICT;

-- What jobs erase in ClickHouse: one step of each job.
CREATE TABLE visit_erasing (
    job_id INTEGER PRIMARY KEY,
    erasure TEXT NOT NULL,
    -- What was found before it was erased.
    visits INTEGER,
    counts INTEGER,
    is_done INTEGER NOT NULL
) STRICT;

-- The human visits of links with a limit: those of batches from `since` on, and those of earlier ones, if they are known.
CREATE TABLE visit_limits (
    code TEXT NOT NULL PRIMARY KEY,
    since INTEGER NOT NULL,
    visits INTEGER NOT NULL,
    earlier INTEGER
) STRICT, WITHOUT ROWID;
