-- What is kept of visits lies in the order of the links' ids, as links themselves do: links that
-- were made together are visited together, and their rows share pages then. Codes look random, so
-- that each visit touched pages of its own.

-- Moved into the new table, and dropped, by the program that applies this migration.
DROP INDEX visit_link_hours_by_hour;
ALTER TABLE visit_link_hours RENAME TO visit_link_hours_before;

-- How often links were visited. Hours are counted since 1970; -1000000000 stands for all that are
-- not kept apart any more.
CREATE TABLE visit_link_hours (
    -- The id that the link of the code has or would have (see `links`).
    link_id INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    class TEXT NOT NULL,
    visits INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (link_id, hour, class)
) STRICT, WITHOUT ROWID;

-- Finds hours that are long past. Those that were added up already are not looked for.
CREATE INDEX visit_link_hours_by_hour ON visit_link_hours (hour) WHERE hour > -1000000000;

-- The id as above. NULL in visits of before this migration, until the program has filled it in.
ALTER TABLE visits ADD COLUMN link_id INTEGER;
DROP INDEX visits_by_code;

-- The visits of a link, in the order in which they are listed: an index of a table with ids ends
-- with the id.
CREATE INDEX visits_by_link ON visits (link_id) WHERE link_id IS NOT NULL;

-- The last visit that the id was filled in of. Dropped when there are none left.
CREATE TABLE visits_before (
    last_id INTEGER NOT NULL
) STRICT;

INSERT INTO visits_before VALUES (0);
