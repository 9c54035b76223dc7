-- API keys and campaigns have quotas, keys restrict custom codes, and a key can be restricted to its own links.

-- The number of links that may be created with the key; NULL for any number.
ALTER TABLE api_keys ADD COLUMN max_links BIGINT CHECK (max_links > 0);
ALTER TABLE api_keys ADD COLUMN custom_codes BOOLEAN NOT NULL DEFAULT true;
ALTER TABLE api_keys ADD COLUMN min_custom_length BIGINT;
ALTER TABLE api_keys ADD COLUMN own_links_only BOOLEAN NOT NULL DEFAULT false;

-- The id of the first key of a sequence of rotations, whose keys share their links and their quota.
ALTER TABLE api_keys ADD COLUMN first_id TEXT NOT NULL DEFAULT '';
WITH RECURSIVE rotations (first_id, id) AS (
    SELECT id, id FROM api_keys AS first
        WHERE NOT EXISTS (SELECT 1 FROM api_keys WHERE successor_id = first.id)
    UNION ALL
    SELECT rotations.first_id, successor_id FROM rotations JOIN api_keys ON api_keys.id = rotations.id
        WHERE successor_id IS NOT NULL
)
UPDATE api_keys SET first_id = rotations.first_id FROM rotations WHERE rotations.id = api_keys.id;
CREATE INDEX api_keys_by_first ON api_keys (first_id);

-- The number of links that may be created in the campaign; NULL for any number.
ALTER TABLE campaigns ADD COLUMN max_links BIGINT CHECK (max_links > 0);
CREATE INDEX campaigns_by_creator ON campaigns (created_by, id);

-- The number of links that were ever created with the keys of a sequence of rotations, or in a campaign. Links that
-- were deleted before this migration are not counted.
CREATE TABLE link_counts (
    -- Such as key:<first id> or campaign:<id>.
    owner TEXT NOT NULL,
    -- A count is the sum of all slots, as in `code_usage`.
    slot INTEGER NOT NULL,
    links BIGINT NOT NULL,
    PRIMARY KEY (owner, slot)
) WITH (fillfactor = 20);

INSERT INTO link_counts (owner, slot, links)
    SELECT 'key:' || coalesce(first_id, created_by), 0, sum(links) FROM
        (SELECT created_by, count(*) AS links FROM links GROUP BY created_by) AS created
        LEFT JOIN api_keys ON api_keys.id = created_by GROUP BY 1;
INSERT INTO link_counts (owner, slot, links)
    SELECT 'campaign:' || campaign_id, 0, count(*) FROM links WHERE campaign_id IS NOT NULL GROUP BY campaign_id;
