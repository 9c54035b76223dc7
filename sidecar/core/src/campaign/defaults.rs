//! Defaults of a campaign's new links.

use std::num::NonZeroU64;

use serde_json::{Value, json};

use crate::codes::strategy::{CodePolicy, StrategyName};
use crate::link::Change;

/// Defaults of a campaign's new links where requests specify nothing. A change does not affect
/// existing links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CampaignDefaults {
    /// Strategy of their codes.
    pub strategy: Option<StrategyName>,
    /// Range of their codes' lengths, without the check character.
    pub code_lengths: Option<(u8, u8)>,
    /// The approximate number of visits after which links end.
    pub max_visits: Option<NonZeroU64>,
    /// Tags, in ascending order without duplicates.
    pub tags: Vec<String>,
    /// The short domain of their short URLs.
    pub domain: Option<String>,
}

impl CampaignDefaults {
    /// Returns the policy of codes; `others` is the one for links of no campaign.
    pub fn policy(&self, others: CodePolicy) -> CodePolicy {
        CodePolicy {
            strategy: self.strategy.unwrap_or(others.strategy),
            lengths: self.code_lengths.unwrap_or(others.lengths),
        }
    }

    /// Completes the settings of a new link.
    pub fn complete(&self, settings: &mut Change) {
        settings.max_visits.get_or_insert(self.max_visits);
        settings.tags.get_or_insert_with(|| self.tags.clone());
        settings.domain.get_or_insert_with(|| self.domain.clone());
    }

    /// The members by the API's names, for the audit log.
    pub fn members(&self) -> Value {
        json!({
            "strategy": self.strategy,
            "codeLength": self.code_lengths,
            "maxVisits": self.max_visits,
            "tags": self.tags,
            "domain": self.domain,
        })
    }
}
