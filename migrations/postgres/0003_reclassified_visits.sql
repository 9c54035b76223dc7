-- Visits can be classified again, and what was counted of them with them.

-- The campaign that a visit was counted for; its link may be gone by then.
ALTER TABLE visits ADD COLUMN campaign_id BIGINT;

UPDATE visits SET campaign_id = links.campaign_id FROM links
    WHERE links.code = visits.code AND links.campaign_id IS NOT NULL;

-- Days that somebody was counted on who turned out to be nobody: a sketch forgets nobody, so that
-- people are counted again. The generation is another one whenever the row was touched.
CREATE TABLE visit_stale_sketches (
    campaign_id BIGINT NOT NULL,
    day BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    PRIMARY KEY (campaign_id, day)
);
