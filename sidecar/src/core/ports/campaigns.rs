//! Keeping campaigns.

use vocabulary::CampaignId;

use crate::core::campaign::{Campaign, CampaignEdit};

/// Decides, inside a store's transaction, what becomes of the campaign that is there.
pub type CampaignEditor = Box<dyn Fn(Campaign) -> CampaignEdit + Send + Sync>;

/// A revision of a campaign that Redis has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedCampaign {
    /// The campaign.
    pub id: CampaignId,
    /// The revision.
    pub revision: u64,
}
