-- The short domain that a link's short URL has while it is active for the link; NULL for the choice of the service.
ALTER TABLE links ADD COLUMN domain TEXT COLLATE "C";
