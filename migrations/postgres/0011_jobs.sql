-- Bulk jobs: changes of many links, and erasures of their visits.

CREATE TABLE jobs (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The id of the API key that the job acts for.
    key_id TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    -- The selection and the change, as JSON.
    request TEXT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    -- Why it has failed.
    reason TEXT,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT,
    -- NULL until the selected links are counted.
    selected BIGINT,
    changed BIGINT NOT NULL DEFAULT 0,
    unchanged BIGINT NOT NULL DEFAULT 0,
    failed BIGINT NOT NULL DEFAULT 0,
    -- What an erasure has removed.
    visits BIGINT NOT NULL DEFAULT 0,
    agents BIGINT NOT NULL DEFAULT 0,
    counts BIGINT NOT NULL DEFAULT 0,
    -- The position of the next step: its phase, and where it begins there.
    phase BIGINT NOT NULL,
    place_at BIGINT NOT NULL,
    place_id BIGINT NOT NULL,
    idempotency_key TEXT COLLATE "C",
    digest BYTEA,
    UNIQUE (key_id, idempotency_key)
);

CREATE INDEX jobs_running ON jobs (id) WHERE state = 'running';
CREATE INDEX jobs_by_end ON jobs (finished_at) WHERE finished_at IS NOT NULL;

-- The codes of a job that has a list of them, as JSON, some in each part.
CREATE TABLE job_codes (
    job_id BIGINT NOT NULL,
    part BIGINT NOT NULL,
    codes TEXT NOT NULL,
    PRIMARY KEY (job_id, part)
);

-- The results of a job, as JSON, those of a step in each part.
CREATE TABLE job_results (
    job_id BIGINT NOT NULL,
    part BIGINT NOT NULL,
    results TEXT NOT NULL,
    PRIMARY KEY (job_id, part)
);

-- Erasures of visits. Events of earlier visits that arrive later are dropped.
CREATE TABLE visit_erasures (
    -- `link:` and its code, or `campaign:` and its id.
    subject TEXT COLLATE "C" PRIMARY KEY,
    -- Milliseconds since 1970.
    until BIGINT NOT NULL
);

CREATE INDEX visit_erasures_by_time ON visit_erasures (until);
