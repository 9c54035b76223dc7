-- Visits can be exported in the order in which they were stored.

-- The last id that a visit had. SQLite by itself would assign the ids of the latest visits again after their erasure.
CREATE TABLE visit_ids (
    last_id INTEGER NOT NULL
) STRICT;

INSERT INTO visit_ids SELECT max(
    coalesce((SELECT max(id) FROM visits), 0),
    coalesce((SELECT max(last_id) FROM visit_days), 0)
);
