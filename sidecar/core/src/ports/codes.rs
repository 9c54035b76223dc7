//! Storage of the state from which codes are issued.

/// The contents of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Codes that are free.
    pub unused: u64,
    /// Codes that were issued.
    pub used: u64,
    /// Codes that turned out to be taken.
    pub void: u64,
}

/// The number of links that have codes of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeUsage {
    /// The length, check character included.
    pub length: usize,
    /// Links that were created, without those that were deleted.
    pub links: u64,
    /// Those created since the given day.
    pub lately: u64,
}

/// Numbers, codes or capacity that a process has leased, or numbers that were given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLease {
    /// The counter, or the name of what is no range of numbers.
    pub name: String,
    /// The process; empty for numbers that were given back.
    pub holder: String,
    /// The number after the last one; 0 for what is no range.
    pub until: u64,
    /// The first number that may be unused; of capacity, the links that may still be stored.
    pub next: u64,
    /// Grows by one for each report.
    pub beat: i64,
    /// The time of the last report in milliseconds since 1970, by the clock of the holder.
    pub reported_at: i64,
}

/// The result of a request for capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityGrant {
    /// Links that the process may store besides those that it might store before.
    pub granted: u64,
    /// Capacity that was free before.
    pub free: u64,
    /// Stored links.
    pub links: u64,
    /// Links that other processes may still store.
    pub others: u64,
    /// False if the earlier lease was taken back: only what is being stored counts.
    pub kept: bool,
}
