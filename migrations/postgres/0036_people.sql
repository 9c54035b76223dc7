-- People sign in to the console at a provider of OpenID Connect. A person is an API key without a secret.
ALTER TABLE api_keys
    -- The provider, and its name for the person.
    ADD COLUMN issuer TEXT COLLATE "C",
    ADD COLUMN subject TEXT COLLATE "C",
    -- As of the last sign-in. Without a role, their groups gave none.
    ADD COLUMN email TEXT,
    ADD COLUMN role TEXT,
    ADD COLUMN signed_in_at BIGINT,
    ADD CHECK ((issuer IS NULL) = (subject IS NULL) AND (issuer IS NULL) = (signed_in_at IS NULL));
CREATE UNIQUE INDEX api_keys_of_people ON api_keys (issuer, subject) WHERE issuer IS NOT NULL;

-- The sessions of people. Those of API keys are in their cookies alone.
CREATE TABLE people_sessions (
    -- The SHA-256 of the session's token: the database does not suffice to use a session.
    id TEXT COLLATE "C" PRIMARY KEY,
    key_id TEXT COLLATE "C" NOT NULL REFERENCES api_keys (id),
    -- The time of the last request, within a minute.
    used_at BIGINT NOT NULL,
    until BIGINT NOT NULL
);
CREATE INDEX people_sessions_by_key ON people_sessions (key_id);
