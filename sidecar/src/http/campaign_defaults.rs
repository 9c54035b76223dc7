//! The member `defaults` of campaigns.

use serde_json::{Map, Value};

use super::app::App;
use super::code_members::check_codes;
use crate::api::campaign::DefaultMembers;
use crate::api::fields::Fields;
use crate::api::members::{Members, Usage};
use crate::core::api_key::KeyPolicy;
use crate::core::campaign::CampaignDefaults;

/// Reads defaults of new links and checks them against the caller's policy.
pub(super) fn read_defaults(
    app: &App,
    fields: &mut Fields,
    members: Map<String, Value>,
    allowed: &KeyPolicy,
) -> CampaignDefaults {
    fields.within("defaults", members, |fields| {
        let given = DefaultMembers::read(fields, Usage::New);
        let (strategy, lengths) = (given.strategy.flatten(), given.code_length.flatten());
        let default = app.default_policy.strategy;
        let codes = check_codes(fields, strategy, lengths, default, allowed);
        CampaignDefaults {
            strategy: codes.strategy,
            code_lengths: codes.lengths,
            max_visits: given.max_visits.flatten(),
            tags: given.tags.unwrap_or_default(),
        }
    })
}
