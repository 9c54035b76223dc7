-- The words that links and campaigns are found by.
CREATE TABLE search_words (
    -- 1 the target of a link, 2 the note of a link, 3 a campaign.
    member INTEGER NOT NULL,
    -- In lower case.
    word TEXT NOT NULL,
    -- The creation time and the id of the link or campaign.
    created_at INTEGER NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (member, word, created_at, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX search_words_by_id ON search_words (id, member, word);

-- The walk through what was stored before there were words: one row. Each place is the id that the walk has come to;
-- NULL at its end.
CREATE TABLE search_fill (
    campaign_place INTEGER,
    link_place INTEGER
) STRICT;
INSERT INTO search_fill (campaign_place, link_place) VALUES (0, -9223372036854775808);
