-- Webhooks: endpoints that events are sent to.

CREATE TABLE webhooks (
    id TEXT COLLATE "C" PRIMARY KEY,
    -- The members that its user sets, as JSON.
    settings TEXT NOT NULL,
    -- True if it gets the first human visits of links as events.
    first_clicks BOOLEAN NOT NULL,
    -- Secrets are derived from their version; the version before is valid until then.
    secret_version BIGINT NOT NULL,
    previous_until BIGINT,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    -- Each change by a user raises it.
    revision BIGINT NOT NULL,
    -- Progress is written only with the same number: each new holder of the delivery and each replay raises it.
    fence BIGINT NOT NULL,
    -- The reason of a pause.
    paused TEXT,
    paused_at BIGINT,
    -- As JSON, for each queue: the numbers of the visit and of the event up to which all are delivered.
    progress TEXT NOT NULL,
    -- The first failed attempt for an event that is still undelivered.
    failing_since BIGINT,
    -- The time of the oldest event that waits.
    waiting_since BIGINT,
    -- The number of events delivered.
    delivered BIGINT NOT NULL
);

-- The number of the last event. Whoever stores events locks this row last: numbers are in the order of commits.
CREATE TABLE webhook_clock (
    id BIGINT PRIMARY KEY,
    last BIGINT NOT NULL
);
INSERT INTO webhook_clock VALUES (1, 0);

-- Events that are not visits of the feed, or are first visits by a person.
CREATE TABLE webhook_events (
    number BIGINT PRIMARY KEY,
    at BIGINT NOT NULL,
    type TEXT NOT NULL,
    campaign_id BIGINT,
    -- The code of its link, or another subject: events with the same subject are delivered in order.
    subject TEXT NOT NULL,
    -- The visit, and its time.
    visit_id BIGINT,
    visit_at BIGINT,
    -- Its data as JSON, unless that is a visit.
    data TEXT
);

-- Events of visits that are erased are deleted.
CREATE INDEX webhook_events_by_visit ON webhook_events (visit_id) WHERE visit_id IS NOT NULL;

-- The last visit and the last event at some times, for replays.
CREATE TABLE webhook_marks (
    at BIGINT PRIMARY KEY,
    visits BIGINT NOT NULL,
    events BIGINT NOT NULL
);

-- The latest attempts of each webhook.
CREATE TABLE webhook_attempts (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    webhook_id TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    message_id TEXT NOT NULL,
    events BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    -- The status of the answer, or the error without one.
    status BIGINT,
    error TEXT,
    took_ms BIGINT NOT NULL
);
CREATE INDEX webhook_attempts_by_webhook ON webhook_attempts (webhook_id, id);
