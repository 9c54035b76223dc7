//! The member `defaults` of campaigns.

use serde_json::{Map, Value};
use shortlink_api::campaign::DefaultMembers;
use shortlink_api::fields::Fields;
use shortlink_api::members::{Members, Usage};
use shortlink_core::api_key::KeyPolicy;
use shortlink_core::campaign::CampaignDefaults;

use super::app::App;
use super::code_members::check_codes;

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
