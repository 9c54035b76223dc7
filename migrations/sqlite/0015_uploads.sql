-- The batch that has created a link.

ALTER TABLE links ADD COLUMN upload_id INTEGER;

-- Only links of batches are in it, and those of one are next to each other.
CREATE INDEX links_by_upload ON links (upload_id, created_at) WHERE upload_id IS NOT NULL;
