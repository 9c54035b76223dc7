-- A/B tests: what the variants of a link, or of its campaign, lead to.

-- Human visits of links that exist, by variant; those of the default target are under an empty name, counted while there
-- are variants. The campaign is 0 without one.
CREATE TABLE variant_clicks (
    campaign_id INTEGER NOT NULL,
    code TEXT NOT NULL,
    variant TEXT NOT NULL,
    -- The times of the first and the last visit.
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    visits INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, code, variant)
) STRICT, WITHOUT ROWID;

-- Their conversions by currency, and with an empty currency those of all kinds.
CREATE TABLE variant_conversions (
    campaign_id INTEGER NOT NULL,
    code TEXT NOT NULL,
    variant TEXT NOT NULL,
    currency TEXT NOT NULL,
    conversions INTEGER NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, code, variant, currency)
) STRICT, WITHOUT ROWID;

-- The variant that a conversion counts for; NULL if for none.
ALTER TABLE conversions ADD COLUMN variant TEXT;
-- The variant that the visit of a click id followed; NULL without one.
ALTER TABLE visit_clicks ADD COLUMN variant TEXT;
