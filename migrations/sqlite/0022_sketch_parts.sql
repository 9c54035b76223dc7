-- Unique visitors of campaigns and days are counted by more registers, and the estimate is stored beside them.

-- NULL beside registers of an earlier version.
ALTER TABLE visit_sketches ADD COLUMN visitors INTEGER;

-- Registers of large sets of visitors, in parts: a transaction writes those that it changes.
CREATE TABLE visit_sketch_parts (
    campaign_id INTEGER NOT NULL,
    day INTEGER NOT NULL,
    part INTEGER NOT NULL,
    registers BLOB NOT NULL,
    PRIMARY KEY (campaign_id, day, part)
) STRICT, WITHOUT ROWID;
