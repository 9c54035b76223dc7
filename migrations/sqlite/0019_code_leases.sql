-- What processes have leased for new links, and numbers that were given back.
CREATE TABLE code_leases (
    -- The counter that the numbers are of, or `pool:` or `capacity:` and the length of codes, check character included.
    name TEXT NOT NULL,
    -- The process; empty for numbers that were given back, which anyone may lease.
    holder TEXT NOT NULL,
    -- The number after the last one; 0 for what is no range.
    until INTEGER NOT NULL,
    -- The first number that may be unused; of capacity, the number of links that may still be stored.
    next INTEGER NOT NULL,
    -- Codes out of the pool, parted by single spaces.
    codes TEXT,
    -- Grows with each report of the holder. A lease whose beat stands still is taken back.
    beat INTEGER NOT NULL DEFAULT 0,
    -- The time of the last report, by the clock of the holder.
    reported_at INTEGER NOT NULL,
    PRIMARY KEY (name, holder, until)
) STRICT, WITHOUT ROWID;
