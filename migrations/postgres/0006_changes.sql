-- The log of all changes of links and campaigns, in an order that no clock decides. Rows without `applied_at` wait
-- for Redis. The others are kept for weeks: a data set of Redis says up to which place it holds all changes, and one
-- that fell behind gets those after it again.
CREATE TABLE changes (
    place BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- One of these two. No foreign keys: a link may be deleted before its changes are forgotten.
    link_id BIGINT,
    campaign_id BIGINT,
    revision BIGINT NOT NULL,
    -- Whether the link or campaign redirects less than before, perhaps: such changes are applied first.
    restricts BOOLEAN NOT NULL,
    -- By the clock of the process that made the change. For people: it orders nothing.
    enqueued_at BIGINT NOT NULL,
    -- When Redis confirmed the revision; NULL while it has not.
    applied_at BIGINT
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE INDEX changes_waiting ON changes (restricts, place) WHERE applied_at IS NULL;
CREATE INDEX changes_restricting ON changes (place) WHERE restricts;
CREATE INDEX changes_waiting_links ON changes (link_id) WHERE applied_at IS NULL AND link_id IS NOT NULL;
CREATE INDEX changes_waiting_campaigns ON changes (campaign_id) WHERE applied_at IS NULL AND campaign_id IS NOT NULL;

INSERT INTO changes (link_id, campaign_id, revision, restricts, enqueued_at)
SELECT NULL, campaign_id, revision, true, enqueued_at FROM campaign_outbox
UNION ALL
SELECT first_id, NULL, revision, true, enqueued_at FROM outbox WHERE revision > 1;

-- From now on the outbox is for new links.
DELETE FROM outbox WHERE revision > 1;
DROP INDEX outbox_changes;
DROP TABLE campaign_outbox;

-- The data set of Redis that changes were applied to.
CREATE TABLE index_state (
    only_row BIGINT PRIMARY KEY CHECK (only_row = 1),
    -- Raised whenever the data set may be another one than before.
    generation BIGINT NOT NULL,
    -- The names that the servers gave themselves when they started, as they were last seen.
    run_ids TEXT COLLATE "C" NOT NULL,
    -- The log has forgotten changes up to this place.
    forgotten BIGINT NOT NULL,
    -- Changes up to this place were made before the generation began: the data set may lack them.
    replay_to BIGINT NOT NULL,
    -- The last generation that lacks nothing that the log has forgotten.
    compared BIGINT NOT NULL
);
INSERT INTO index_state VALUES (1, 0, '', 0, 0, 0);
