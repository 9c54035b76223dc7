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
