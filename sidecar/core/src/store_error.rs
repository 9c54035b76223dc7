//! Errors of stores.

use std::error::Error;
use std::sync::Arc;

/// A failed operation of the store, which may have had an effect nevertheless.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the database could not {operation}")]
pub struct StoreError {
    /// The operation.
    pub operation: &'static str,
    /// The cause.
    #[source]
    pub source: Arc<dyn Error + Send + Sync>,
}
