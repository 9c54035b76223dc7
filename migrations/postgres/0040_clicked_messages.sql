-- The number of the messages whose links have clicks, or had some when they were deleted.
ALTER TABLE receipt_counts ADD COLUMN clicked BIGINT NOT NULL DEFAULT 0;

-- Those of links that exist.
UPDATE receipt_counts SET clicked = found.messages FROM (
    SELECT links.campaign_id, network, status, count(*) AS messages
    FROM receipts JOIN links ON links.id = receipts.link_id
    JOIN link_clicks ON link_clicks.campaign_id = links.campaign_id AND link_clicks.code = links.code
    GROUP BY 1, 2, 3
) AS found
WHERE receipt_counts.campaign_id = found.campaign_id
    AND receipt_counts.network = found.network AND receipt_counts.status = found.status;
