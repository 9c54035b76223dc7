-- Custom codes, no two of which differ only by case.
CREATE TABLE spellings (
    -- The code in lower case.
    folded TEXT COLLATE "C" PRIMARY KEY,
    -- The id of its link.
    link_id BIGINT NOT NULL
);

CREATE INDEX spellings_by_link ON spellings (link_id);

-- Of those that differ only by case, the oldest.
INSERT INTO spellings (folded, link_id)
    SELECT lower(code), id FROM links WHERE strategy = 5 ORDER BY created_at, id
    ON CONFLICT DO NOTHING;
