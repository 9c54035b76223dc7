//! What new links of a campaign are like.

use std::num::NonZeroU64;

use crate::core::codes::strategy::{CodePolicy, StrategyName};

/// What is said of new links of a campaign unless their requests say otherwise. Links that there
/// are already do not change with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CampaignDefaults {
    /// How their codes are come up with.
    pub strategy: Option<StrategyName>,
    /// How many characters their codes may have before the check character.
    pub code_lengths: Option<(u8, u8)>,
    /// After about how many visits they are to end.
    pub max_visits: Option<NonZeroU64>,
    /// What they are found by, in ascending order and each once.
    pub tags: Vec<String>,
}

impl CampaignDefaults {
    /// How codes are come up with, where `others` is what holds for links of no campaign.
    pub fn policy(&self, others: CodePolicy) -> CodePolicy {
        CodePolicy {
            strategy: self.strategy.unwrap_or(others.strategy),
            lengths: self.code_lengths.unwrap_or(others.lengths),
        }
    }
}
