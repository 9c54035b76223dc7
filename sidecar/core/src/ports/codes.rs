//! Storage of the state from which codes are issued.

use std::sync::Arc;

use async_trait::async_trait;
use vocabulary::Code;

use super::StoreError;
use crate::codes::numbering::{CodeKey, Numbering};

/// Stores the state of the strategies for codes.
#[async_trait]
pub trait CodeStore: Send + Sync {
    /// The numbering of codes in this database.
    fn numbering(&self) -> Arc<Numbering>;

    /// A secret of this database, for strategies.
    fn code_key(&self) -> CodeKey;

    /// Puts codes into the pool; those that are in it already, or that links have, are left out.
    /// Returns the number of new ones.
    async fn fill_pool(&self, codes: Vec<Code>) -> Result<u64, StoreError>;
}

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
