-- A process that asks again for codes of the pool, because it got no answer, finds those that it has leased.

-- The number of the request that leased the last codes; its holder counts requests from 1 on.
ALTER TABLE code_leases ADD COLUMN request INTEGER NOT NULL DEFAULT 0;

-- How many of the codes, at the end of them, that request has leased.
ALTER TABLE code_leases ADD COLUMN fresh INTEGER NOT NULL DEFAULT 0;
