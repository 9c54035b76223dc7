-- Custom codes, no two of which differ only by case.
CREATE TABLE spellings (
    -- The code in lower case.
    folded TEXT PRIMARY KEY NOT NULL,
    -- The id of its link.
    link_id INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX spellings_by_link ON spellings (link_id);

-- Of those that differ only by case, the oldest.
INSERT INTO spellings (folded, link_id)
    SELECT lower(code), id FROM links WHERE strategy = 5 ORDER BY created_at, id
    ON CONFLICT DO NOTHING;
