//! Quotas: the number of links that may be created with an API key or in a campaign.

use std::num::NonZeroU64;

use vocabulary::CampaignId;

/// The owner of a quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaOwner {
    /// An API key, by its id. It shares its quota with all keys of its sequence of rotations.
    Key(String),
    /// A campaign.
    Campaign(CampaignId),
}

/// A quota that has no place for a further link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the quota of {limit} links is used up")]
pub struct UsedUp {
    /// The owner.
    pub owner: QuotaOwner,
    /// The number of links that may be created.
    pub limit: NonZeroU64,
    /// The number of links that were created, including those that have ended or were deleted.
    pub used: u64,
}
