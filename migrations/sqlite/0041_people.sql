-- People sign in to the console at a provider of OpenID Connect. A person is an API key without a secret.
-- The provider, and its name for the person. All of these columns but the address and the role have values, or none.
ALTER TABLE api_keys ADD COLUMN issuer TEXT;
ALTER TABLE api_keys ADD COLUMN subject TEXT;
-- As of the last sign-in. Without a role, their groups gave none.
ALTER TABLE api_keys ADD COLUMN email TEXT;
ALTER TABLE api_keys ADD COLUMN role TEXT;
ALTER TABLE api_keys ADD COLUMN signed_in_at INTEGER;
CREATE UNIQUE INDEX api_keys_of_people ON api_keys (issuer, subject) WHERE issuer IS NOT NULL;

-- The sessions of people. Those of API keys are in their cookies alone.
CREATE TABLE people_sessions (
    -- The SHA-256 of the session's token: the database does not suffice to use a session.
    id TEXT PRIMARY KEY,
    key_id TEXT NOT NULL REFERENCES api_keys (id),
    -- The time of the last request, within a minute.
    used_at INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX people_sessions_by_key ON people_sessions (key_id);
