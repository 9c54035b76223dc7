-- Visits can be exported in the order in which they were stored.

-- Sessions took ids 100 at a time and used them later, so that a visit could get a lower id than one that was
-- stored long before. Now the transactions with new visits, for which an export waits, have all ids up to the last.
ALTER SEQUENCE visit_ids CACHE 1;
