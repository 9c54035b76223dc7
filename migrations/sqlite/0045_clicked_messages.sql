-- The number of the messages whose links have clicks, or had some when they were deleted.
ALTER TABLE receipt_counts ADD COLUMN clicked INTEGER NOT NULL DEFAULT 0;

-- Those of links that exist.
UPDATE receipt_counts SET clicked = found.messages FROM (
    SELECT campaign_id, network, status, count(*) AS messages
    FROM link_clicks CROSS JOIN receipts ON receipts.link_id = link_clicks.link_id
    WHERE campaign_id IN (SELECT campaign_id FROM receipt_counts) AND campaign_id > 0 GROUP BY 1, 2, 3
) AS found
WHERE receipt_counts.campaign_id = found.campaign_id
    AND receipt_counts.network = found.network AND receipt_counts.status = found.status;
