-- Sessions of the console whose users have signed out before they expired. A session is in its cookie alone, so only
-- its end is stored, until it would have expired.
CREATE TABLE ended_sessions (
    -- Names the session; the cookie does not follow from it.
    id TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
