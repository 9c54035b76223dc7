-- For visits in ClickHouse: where the numbers of batches are. Both rise together, so that few batches are enough.
CREATE TABLE visit_marks (
    batch BIGINT PRIMARY KEY,
    -- The number of the first visit of the batch.
    number BIGINT NOT NULL
);
