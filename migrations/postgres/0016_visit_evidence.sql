-- What visits are judged by beside their texts, so that later rules can judge them again.

-- The properties of the request as bits; NULL if the edge reported none.
ALTER TABLE visits ADD COLUMN evidence INTEGER;
-- The number of the client's autonomous system; NULL if it is unknown.
ALTER TABLE visits ADD COLUMN asn BIGINT;
