-- Unique visitors of campaigns and days are counted by more registers, and the estimate is stored beside them.

-- NULL beside registers of an earlier version.
ALTER TABLE visit_sketches ADD COLUMN visitors BIGINT;
ALTER TABLE visit_sketches SET (fillfactor = 50);

-- Registers of large sets of visitors, in parts: a transaction writes those that it changes.
CREATE TABLE visit_sketch_parts (
    campaign_id BIGINT NOT NULL,
    day BIGINT NOT NULL,
    part BIGINT NOT NULL,
    registers BYTEA NOT NULL,
    PRIMARY KEY (campaign_id, day, part)
) WITH (fillfactor = 50);
