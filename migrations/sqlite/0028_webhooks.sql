-- Webhooks: endpoints that events are sent to.

CREATE TABLE webhooks (
    id TEXT NOT NULL PRIMARY KEY,
    -- The members that its user sets, as JSON.
    settings TEXT NOT NULL,
    -- True if it gets the first human visits of links as events.
    first_clicks INTEGER NOT NULL,
    -- Secrets are derived from their version; the version before is valid until then.
    secret_version INTEGER NOT NULL,
    previous_until INTEGER,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    -- Each change by a user raises it.
    revision INTEGER NOT NULL,
    -- Progress is written only with the same number: each new holder of the delivery and each replay raises it.
    fence INTEGER NOT NULL,
    -- The reason of a pause.
    paused TEXT,
    paused_at INTEGER,
    -- As JSON, for each queue: the numbers of the visit and of the event up to which all are delivered.
    progress TEXT NOT NULL,
    -- The first failed attempt for an event that is still undelivered.
    failing_since INTEGER,
    -- The time of the oldest event that waits.
    waiting_since INTEGER,
    -- The number of events delivered.
    delivered INTEGER NOT NULL
) STRICT;

-- The number of the last event. Whoever stores events locks this row last: numbers are in the order of commits.
CREATE TABLE webhook_clock (
    id INTEGER PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT;
INSERT INTO webhook_clock VALUES (1, 0);

-- Events that are not visits of the feed, or are first visits by a person.
CREATE TABLE webhook_events (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    campaign_id INTEGER,
    -- The code of its link, or another subject: events with the same subject are delivered in order.
    subject TEXT NOT NULL,
    -- The visit, and its time.
    visit_id INTEGER,
    visit_at INTEGER,
    -- Its data as JSON, unless that is a visit.
    data TEXT
) STRICT;

-- Events of visits that are erased are deleted.
CREATE INDEX webhook_events_by_visit ON webhook_events (visit_id) WHERE visit_id IS NOT NULL;

-- The last visit and the last event at some times, for replays.
CREATE TABLE webhook_marks (
    at INTEGER PRIMARY KEY,
    visits INTEGER NOT NULL,
    events INTEGER NOT NULL
) STRICT;

-- The latest attempts of each webhook.
CREATE TABLE webhook_attempts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    events INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    -- The status of the answer, or the error without one.
    status INTEGER,
    error TEXT,
    took_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX webhook_attempts_by_webhook ON webhook_attempts (webhook_id, id);
