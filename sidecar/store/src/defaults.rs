//! Campaigns' defaults as JSON, in `campaigns.defaults` of both databases.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use shortlink_core::campaign::CampaignDefaults;

/// The defaults as JSON. Members that a later version adds must be optional: stored texts never change.
#[derive(Debug, Deserialize, Serialize)]
struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strategy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code_lengths: Option<(u8, u8)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_visits: Option<NonZeroU64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
}

/// Returns the text to store.
pub(super) fn to_json(defaults: &CampaignDefaults) -> String {
    let kept = Kept {
        strategy: defaults.strategy.map(|it| it.name().to_owned()),
        code_lengths: defaults.code_lengths,
        max_visits: defaults.max_visits,
        tags: defaults.tags.clone(),
        domain: defaults.domain.clone(),
    };
    // There is nothing in it that JSON can't hold.
    serde_json::to_string(&kept).unwrap_or_default()
}

/// Parses a stored text; `None` if it is invalid.
pub(super) fn from_json(text: &str) -> Option<CampaignDefaults> {
    let kept: Kept = serde_json::from_str(text).ok()?;
    Some(CampaignDefaults {
        strategy: match kept.strategy {
            Some(name) => Some(name.parse().ok()?),
            None => None,
        },
        code_lengths: kept.code_lengths,
        max_visits: kept.max_visits,
        tags: kept.tags,
        domain: kept.domain,
    })
}

#[cfg(test)]
mod tests {
    use shortlink_core::codes::strategy::StrategyName;

    use super::*;

    #[test]
    fn defaults_are_read_as_they_were_and_none_are_an_empty_object() {
        let full = CampaignDefaults {
            strategy: Some(StrategyName::Pool),
            code_lengths: Some((5, 7)),
            max_visits: NonZeroU64::new(3),
            tags: vec!["a".to_owned()],
            domain: Some("s.example.com".to_owned()),
        };
        for defaults in [CampaignDefaults::default(), full] {
            assert_eq!(from_json(&to_json(&defaults)), Some(defaults));
        }
        assert_eq!(from_json("{}"), Some(CampaignDefaults::default()));
        assert_eq!(from_json("{\"strategy\":\"magic\"}"), None);
    }
}
