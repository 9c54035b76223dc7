-- Delivery receipts.

-- The last status of the message with a link.
CREATE TABLE receipts (
    link_id BIGINT PRIMARY KEY,
    at BIGINT NOT NULL,
    status TEXT NOT NULL,
    -- The carrier; empty if unknown.
    network TEXT NOT NULL
) WITH (fillfactor = 80);

-- The number of messages of a campaign (0 without one) by their last status, also of links that were deleted since.
CREATE TABLE receipt_counts (
    campaign_id BIGINT NOT NULL,
    network TEXT NOT NULL,
    status TEXT NOT NULL,
    messages BIGINT NOT NULL,
    PRIMARY KEY (campaign_id, network, status)
) WITH (fillfactor = 50);
