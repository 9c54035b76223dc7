-- Bulk jobs: changes of many links, and erasures of their visits.

CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The id of the API key that the job acts for.
    key_id TEXT NOT NULL,
    action TEXT NOT NULL,
    -- The selection and the change, as JSON.
    request TEXT NOT NULL,
    state TEXT NOT NULL,
    -- Why it has failed.
    reason TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    -- NULL until the selected links are counted.
    selected INTEGER,
    changed INTEGER NOT NULL DEFAULT 0,
    unchanged INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    -- What an erasure has removed.
    visits INTEGER NOT NULL DEFAULT 0,
    agents INTEGER NOT NULL DEFAULT 0,
    counts INTEGER NOT NULL DEFAULT 0,
    -- The position of the next step: its phase, and where it begins there.
    phase INTEGER NOT NULL,
    place_at INTEGER NOT NULL,
    place_id INTEGER NOT NULL,
    idempotency_key TEXT,
    digest BLOB,
    UNIQUE (key_id, idempotency_key)
) STRICT;

CREATE INDEX jobs_running ON jobs (id) WHERE state = 'running';
CREATE INDEX jobs_by_end ON jobs (finished_at) WHERE finished_at IS NOT NULL;

-- The codes of a job that has a list of them, as JSON, some in each part.
CREATE TABLE job_codes (
    job_id INTEGER NOT NULL,
    part INTEGER NOT NULL,
    codes TEXT NOT NULL,
    PRIMARY KEY (job_id, part)
) STRICT, WITHOUT ROWID;

-- The results of a job, as JSON, those of a step in each part.
CREATE TABLE job_results (
    job_id INTEGER NOT NULL,
    part INTEGER NOT NULL,
    results TEXT NOT NULL,
    PRIMARY KEY (job_id, part)
) STRICT, WITHOUT ROWID;

-- Erasures of visits. Events of earlier visits that arrive later are dropped.
CREATE TABLE visit_erasures (
    -- `link:` and its code, or `campaign:` and its id.
    subject TEXT PRIMARY KEY NOT NULL,
    -- Milliseconds since 1970.
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX visit_erasures_by_time ON visit_erasures (until);
