-- Visits are judged a second time, by what a client did, some minutes after they were stored.

-- Stretches of visits that were stored together and are not judged again yet.
CREATE TABLE visit_stretches (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The ids of the visits. Others may be in between.
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    -- Milliseconds since 1970.
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    visits BIGINT NOT NULL,
    stored_at BIGINT NOT NULL
);
