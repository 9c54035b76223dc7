-- A/B tests: what the variants of a link, or of its campaign, lead to.

-- Human visits of links that exist, by variant; those of the default target are under an empty name, counted while there
-- are variants. The campaign is 0 without one.
CREATE TABLE variant_clicks (
    campaign_id BIGINT NOT NULL,
    code TEXT COLLATE "C" NOT NULL,
    variant TEXT COLLATE "C" NOT NULL,
    -- The times of the first and the last visit.
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    visits BIGINT NOT NULL,
    PRIMARY KEY (campaign_id, code, variant)
) WITH (fillfactor = 90);

-- Their conversions by currency, and with an empty currency those of all kinds.
CREATE TABLE variant_conversions (
    campaign_id BIGINT NOT NULL,
    code TEXT COLLATE "C" NOT NULL,
    variant TEXT COLLATE "C" NOT NULL,
    currency TEXT COLLATE "C" NOT NULL,
    conversions BIGINT NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (campaign_id, code, variant, currency)
) WITH (fillfactor = 70);

-- The variant that a conversion counts for; NULL if for none.
ALTER TABLE conversions ADD COLUMN variant TEXT COLLATE "C";
-- The variant that the visit of a click id followed; NULL without one.
ALTER TABLE visit_clicks ADD COLUMN variant TEXT COLLATE "C";
