-- User agents are deleted once no visit has them.

-- The last day, counted since 1970, on which a visit of the agent was stored. The default is computed once for the rows
-- that exist, without writing them.
ALTER TABLE visit_agents
    ADD COLUMN seen_day BIGINT NOT NULL DEFAULT floor(extract(epoch FROM now()) / 86400)::bigint;

-- Agents whose visits were erased or reclassified on a day. Other visits may have them.
CREATE TABLE visit_agent_checks (
    agent_id BIGINT PRIMARY KEY,
    day BIGINT NOT NULL
);
