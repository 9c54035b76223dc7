//! Keeping what nginx says of the short domains.

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;
use crate::core::announcement::{Announcement, Heard};

/// Keeps the latest announcement of each nginx, so that every sidecar can tell of all.
#[async_trait]
pub trait DomainStore: Send + Sync {
    /// Keeps what a node says in place of what it has said before, unless that was heard later, and
    /// forgets nodes that were last heard before `forget_before`.
    async fn note_domains(
        &self,
        announcement: &Announcement,
        now: Timestamp,
        forget_before: Timestamp,
    ) -> Result<(), StoreError>;

    /// What all nodes have said, by their names.
    async fn list_domains(&self) -> Result<Vec<Heard>, StoreError>;
}
