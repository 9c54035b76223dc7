-- Links that had never changed and were published again, by a request that changed nothing, waited for ever, and kept
-- others from being published. They are in Redis; where a record is missing, the fallback answers.
UPDATE changes SET applied_at = enqueued_at WHERE link_id IS NOT NULL AND revision = 1 AND applied_at IS NULL;
