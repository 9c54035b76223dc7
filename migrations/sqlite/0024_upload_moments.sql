-- When a batch has created links, in place of an index with an entry for each link: the links of a part of a batch share a
-- creation time, and `links_by_age` finds them by it.

CREATE TABLE upload_moments (
    upload INTEGER NOT NULL,
    link_created_at INTEGER NOT NULL,
    PRIMARY KEY (upload, link_created_at)
) STRICT, WITHOUT ROWID;
INSERT INTO upload_moments (upload, link_created_at)
SELECT DISTINCT upload_id, created_at FROM links INDEXED BY links_by_upload WHERE upload_id IS NOT NULL;

DROP INDEX links_by_upload;
