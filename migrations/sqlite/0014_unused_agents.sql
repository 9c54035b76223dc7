-- User agents are deleted once no visit has them.

-- The last day, counted since 1970, on which a visit of the agent was stored.
ALTER TABLE visit_agents ADD COLUMN seen_day INTEGER NOT NULL DEFAULT 0;
UPDATE visit_agents SET seen_day = unixepoch() / 86400;

-- Agents whose visits were erased or reclassified on a day. Other visits may have them.
CREATE TABLE visit_agent_checks (
    agent_id INTEGER PRIMARY KEY,
    day INTEGER NOT NULL
) STRICT;
