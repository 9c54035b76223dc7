-- Visits are also counted by network, which is the provider of the client's Internet access, and by status.

-- Dropped by the program that applies this migration, once it has counted the visits that are stored.
CREATE TABLE networks_before (
    id INTEGER PRIMARY KEY
) STRICT;

-- Human visits of the last hours by short domain and network, which make a domain visible that one network blocks. Minutes
-- are counted since 1970.
CREATE TABLE visit_network_minutes (
    minute INTEGER NOT NULL,
    host TEXT NOT NULL,
    network TEXT NOT NULL,
    visits INTEGER NOT NULL,
    PRIMARY KEY (minute, host, network)
) STRICT, WITHOUT ROWID;
