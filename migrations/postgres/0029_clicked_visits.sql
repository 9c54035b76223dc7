-- The visits of click ids, for listings, the feed and exports.

-- The number of the visit; NULL if it was stored before this column existed.
ALTER TABLE visit_clicks ADD COLUMN visit_id BIGINT;

CREATE INDEX visit_clicks_by_visit ON visit_clicks (visit_id) WHERE visit_id IS NOT NULL;
