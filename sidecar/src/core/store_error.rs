//! Errors of stores.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many errors of stores there were in this process.
static STORE_ERRORS: AtomicU64 = AtomicU64::new(0);

/// The store could not do what it was asked, or nobody can know whether it did.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the database could not {operation}")]
pub struct StoreError {
    /// What it was asked.
    pub operation: &'static str,
    /// Why not.
    #[source]
    pub source: Arc<dyn Error + Send + Sync>,
}

impl StoreError {
    /// Says what went wrong during an operation, and counts it.
    pub fn new(operation: &'static str, source: Arc<dyn Error + Send + Sync>) -> Self {
        STORE_ERRORS.fetch_add(1, Ordering::Relaxed);
        Self { operation, source }
    }

    /// How many there were in this process.
    pub fn count() -> u64 {
        STORE_ERRORS.load(Ordering::Relaxed)
    }
}
