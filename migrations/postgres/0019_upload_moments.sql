-- When a batch has created links, in place of an index with an entry for each link: the links of a part of a batch share a
-- creation time, and `links_by_age` finds them by it.

CREATE TABLE upload_moments (
    upload BIGINT NOT NULL,
    link_created_at BIGINT NOT NULL,
    PRIMARY KEY (upload, link_created_at)
);
INSERT INTO upload_moments (upload, link_created_at)
SELECT DISTINCT upload_id, created_at FROM links WHERE upload_id IS NOT NULL;

DROP INDEX links_by_upload;
