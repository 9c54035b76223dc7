-- Visits in ClickHouse: what SQL decides of them.

-- One row. It numbers batches and visits, and whoever changes visits in ClickHouse locks it first.
CREATE TABLE visit_sink (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    -- Where visits are stored: `sql` or `clickhouse`.
    place TEXT NOT NULL,
    batches BIGINT NOT NULL,
    numbers BIGINT NOT NULL,
    -- Changes with each correction and erasure of stored visits.
    corrections BIGINT NOT NULL
);
INSERT INTO visit_sink VALUES (1, 'sql', 0, 0, 0);

-- Rows that ClickHouse may not have yet. They are stored with what was decided of them, and deleted once ClickHouse has
-- them.
CREATE TABLE visit_batches (
    id BIGINT PRIMARY KEY,
    stored_at BIGINT NOT NULL,
    rows BYTEA NOT NULL
);

-- What jobs erase in ClickHouse: one step of each job.
CREATE TABLE visit_erasing (
    job_id BIGINT PRIMARY KEY,
    erasure TEXT NOT NULL,
    -- What was found before it was erased.
    visits BIGINT,
    counts BIGINT,
    is_done BIGINT NOT NULL
);

-- The human visits of links with a limit: those of batches from `since` on, and those of earlier ones, if they are known.
CREATE TABLE visit_limits (
    code TEXT COLLATE "C" PRIMARY KEY,
    since BIGINT NOT NULL,
    visits BIGINT NOT NULL,
    earlier BIGINT
);
