-- The variant of the rule that a visit followed; NULL without one. Counts of visits by variant have no rows of those.
ALTER TABLE visits ADD COLUMN variant TEXT COLLATE "C";
