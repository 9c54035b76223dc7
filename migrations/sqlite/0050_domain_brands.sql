-- The brands of short domains, as they stand in the header of each nginx.
ALTER TABLE domain_nodes ADD COLUMN brands TEXT NOT NULL DEFAULT '';
