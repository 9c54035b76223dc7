-- When the process of the server began whose numbers of batches and visits are known to be above those in ClickHouse, in
-- microseconds since 1970: after a failover or a restart, the latest numbers may be lost.
ALTER TABLE visit_sink ADD COLUMN server BIGINT NOT NULL DEFAULT 0;
