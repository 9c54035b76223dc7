-- Plans of links and campaigns: their sections behind the default target, as their records have them.
ALTER TABLE links ADD COLUMN plan TEXT COLLATE "C";
ALTER TABLE campaigns ADD COLUMN plan TEXT COLLATE "C";
