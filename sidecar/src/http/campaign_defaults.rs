//! What new links of a campaign are like: the member `defaults`.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::Serialize;

use super::app::App;
use super::code_members::{CodeLengthBody, read_code_members};
use super::fields::{Fields, Member};
use super::link_members::read_tags;
use super::openapi::words;
use crate::core::api_key::KeyPolicy;
use crate::core::campaign::CampaignDefaults;

/// Reads defaults.
pub(super) fn read_defaults(
    app: &App,
    fields: &mut Fields,
    allowed: &KeyPolicy,
) -> Member<CampaignDefaults> {
    fields.object("defaults", |fields| {
        let codes = read_code_members(fields, app.default_policy.strategy, allowed);
        let codes = codes.unwrap_or_default();
        CampaignDefaults {
            strategy: codes.strategy,
            code_lengths: codes.lengths,
            max_visits: fields.count("maxVisits").value(),
            tags: read_tags(fields).unwrap_or_default(),
        }
    })
}

/// Defaults as clients see them: those that there are.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CampaignDefaults")]
pub(super) struct DefaultsBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::Strategy")]
    strategy: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CodeLengthBody")]
    code_length: Option<CodeLengthBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NonZeroU64")]
    max_visits: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

impl DefaultsBody {
    pub(super) fn new(defaults: &CampaignDefaults) -> Self {
        Self {
            strategy: defaults.strategy.map(|strategy| strategy.name()),
            code_length: defaults.code_lengths.map(CodeLengthBody::new),
            max_visits: defaults.max_visits,
            tags: defaults.tags.clone(),
        }
    }
}
