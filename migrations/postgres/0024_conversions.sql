-- Conversions: what visitors of links did at the target, such as orders, as callers report it.

-- A conversion of a link that exists, by the caller's id.
CREATE TABLE conversions (
    link_id BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    -- The time of the conversion.
    at BIGINT NOT NULL,
    -- Three letters, and ten-thousandths of the currency's unit; both or neither.
    currency TEXT COLLATE "C",
    value BIGINT,
    PRIMARY KEY (link_id, id)
);

-- The conversions of a link by currency, and in the row with an empty currency those of all kinds.
CREATE TABLE link_conversions (
    link_id BIGINT NOT NULL,
    currency TEXT COLLATE "C" NOT NULL,
    conversions BIGINT NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (link_id, currency)
) WITH (fillfactor = 70);

-- As `link_conversions` for all links of a campaign, also those that were deleted, with the number of these links.
CREATE TABLE campaign_conversions (
    campaign_id BIGINT NOT NULL,
    currency TEXT COLLATE "C" NOT NULL,
    links BIGINT NOT NULL,
    conversions BIGINT NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (campaign_id, currency)
) WITH (fillfactor = 50);
