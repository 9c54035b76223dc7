//! Keeping what codes are made from.

use std::sync::Arc;

use async_trait::async_trait;
use vocabulary::Code;

use super::StoreError;
use crate::core::codes::numbering::{CodeKey, Numbering};

/// Keeps what the strategies for codes have to remember.
#[async_trait]
pub trait CodeStore: Send + Sync {
    /// How codes are numbered in this database.
    fn numbering(&self) -> Arc<Numbering>;

    /// A secret of this database, for strategies.
    fn code_key(&self) -> CodeKey;

    /// Moves a counter forward, to `floor` first if it is behind, and answers where it was: the
    /// `count` numbers from there on belong to the caller alone, whatever becomes of it.
    async fn lease(&self, counter: &str, floor: u64, count: u64) -> Result<u64, StoreError>;

    /// Takes unused codes of a length out of the pool, at most `count`: they are used.
    async fn take_pooled(&self, length: usize, count: u32) -> Result<Vec<Code>, StoreError>;

    /// Puts codes into the pool; those that are in it already, or that links have, are left out.
    /// Answers how many were new.
    async fn fill_pool(&self, codes: Vec<Code>) -> Result<u64, StoreError>;

    /// Notes that pooled codes were found taken.
    async fn void_pooled(&self, codes: Vec<Code>) -> Result<(), StoreError>;

    /// How many codes of a length the pool holds by status: unused, used, void.
    async fn count_pooled(&self, length: usize) -> Result<PoolCounts, StoreError>;

    /// How many links were made, by the length of their codes: in all, and since a day (in days
    /// since 1970).
    async fn code_usage(&self, since_day: i64) -> Result<Vec<CodeUsage>, StoreError>;
}

/// What the pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Codes to be had.
    pub unused: u64,
    /// Codes that were handed out.
    pub used: u64,
    /// Codes that turned out to be taken.
    pub void: u64,
}

/// How many links have codes of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeUsage {
    /// The length, check character included.
    pub length: usize,
    /// Links that were made, without those that were deleted.
    pub links: u64,
    /// Those made since the day that was asked for.
    pub lately: u64,
}
