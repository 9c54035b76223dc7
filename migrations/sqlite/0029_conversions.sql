-- Conversions: what visitors of links did at the target, such as orders, as callers report it.

-- A conversion of a link that exists, by the caller's id.
CREATE TABLE conversions (
    link_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    -- The time of the conversion.
    at INTEGER NOT NULL,
    -- Three letters, and ten-thousandths of the currency's unit; both or neither.
    currency TEXT,
    value INTEGER,
    PRIMARY KEY (link_id, id)
) STRICT, WITHOUT ROWID;

-- The conversions of a link by currency, and in the row with an empty currency those of all kinds.
CREATE TABLE link_conversions (
    link_id INTEGER NOT NULL,
    currency TEXT NOT NULL,
    conversions INTEGER NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (link_id, currency)
) STRICT, WITHOUT ROWID;

-- As `link_conversions` for all links of a campaign, also those that were deleted, with the number of these links.
CREATE TABLE campaign_conversions (
    campaign_id INTEGER NOT NULL,
    currency TEXT NOT NULL,
    links INTEGER NOT NULL,
    conversions INTEGER NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, currency)
) STRICT, WITHOUT ROWID;
