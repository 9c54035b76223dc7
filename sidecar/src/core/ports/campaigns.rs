//! Keeping campaigns.

use async_trait::async_trait;
use jiff::Timestamp;
use vocabulary::CampaignId;

use super::{ChangedBy, StoreError};
use crate::core::campaign::{Campaign, CampaignEdit};

/// Decides, inside a store's transaction, what becomes of the campaign that is there.
pub type CampaignEditor = Box<dyn FnOnce(Campaign) -> CampaignEdit + Send>;

/// A revision of a campaign that Redis has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedCampaign {
    /// The campaign.
    pub id: CampaignId,
    /// The revision.
    pub revision: u64,
}

/// Keeps campaigns. Every method that changes one also puts it into the outbox, in the same
/// transaction, and has made both durable when it returns.
#[async_trait]
pub trait CampaignStore: Send + Sync {
    /// Keeps a new campaign under an id that the store chooses, which is answered. The audit log
    /// is told.
    async fn create_campaign(&self, campaign: &Campaign) -> Result<CampaignId, StoreError>;

    /// Finds a campaign, whatever its state.
    async fn find_campaign(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError>;

    /// Has `editor` decide what becomes of a campaign and keeps that; nobody else changes it
    /// meanwhile. One that is left unchanged goes into the outbox too; of a change the audit log
    /// is told.
    async fn edit_campaign(
        &self,
        id: CampaignId,
        by: &ChangedBy,
        editor: CampaignEditor,
    ) -> Result<Option<CampaignEdit>, StoreError>;

    /// Lists campaigns, the latest first, those behind `after`.
    async fn list_campaigns(
        &self,
        after: Option<CampaignId>,
        limit: u32,
    ) -> Result<Vec<Campaign>, StoreError>;

    /// Counts a campaign's links, but no more than `most`.
    async fn count_campaign_links(&self, id: CampaignId, most: u32) -> Result<u32, StoreError>;

    /// Campaigns that wait to be published since a moment or longer, in their present state.
    async fn waiting_campaigns(&self, since: Timestamp) -> Result<Vec<Campaign>, StoreError>;

    /// Notes what Redis has confirmed at `now`; it stays, as applied, until
    /// [`OutboxStore::forget_applied`](super::OutboxStore::forget_applied).
    async fn settle_campaigns(
        &self,
        published: Vec<PublishedCampaign>,
        now: Timestamp,
    ) -> Result<(), StoreError>;
}
