//! Storage of campaigns.

use vocabulary::CampaignId;

use crate::campaign::{Campaign, CampaignEdit};

/// Decides about a change of the stored campaign, inside the store's transaction.
pub type CampaignEditor = Box<dyn Fn(Campaign) -> CampaignEdit + Send + Sync>;

/// A revision of a campaign that Redis has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedCampaign {
    /// The campaign.
    pub id: CampaignId,
    /// The revision.
    pub revision: u64,
}
