//! Errors of stores.

use std::error::Error;
use std::sync::Arc;

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
