-- Delivery receipts.

-- The last status of the message with a link.
CREATE TABLE receipts (
    link_id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    status TEXT NOT NULL,
    -- The carrier; empty if unknown.
    network TEXT NOT NULL
) STRICT;

-- The number of messages of a campaign (0 without one) by their last status, also of links that were deleted since.
CREATE TABLE receipt_counts (
    campaign_id INTEGER NOT NULL,
    network TEXT NOT NULL,
    status TEXT NOT NULL,
    messages INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, network, status)
) STRICT, WITHOUT ROWID;
