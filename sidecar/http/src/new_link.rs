//! The members of `POST /v1/links`.

use serde_json::{Map, Value};
use shortlink_api::fields::Fields;
use shortlink_api::link::LinkIssue;
use shortlink_api::members::{Members, Usage};
use shortlink_core::codes::strategy::CodePolicy;
use shortlink_core::link::Destination;
use shortlink_service::access::Caller;
use shortlink_service::new_link::{LinkError, NewLink, NoCode};
use vocabulary::Code;

use super::app::App;
use super::campaign_links::{Campaigns, read_membership};
use super::code_members::{GivenCodes, check_codes};
use super::extract::Domains;
use super::link_members::{default_status, read_members};
use super::problem::Problem;

/// Reads a new link; `campaigns` are those that the members name.
///
/// # Errors
/// A problem that lists all faults, with pointers relative to these members.
pub(super) fn read_new_link(
    app: &App,
    members: Map<String, Value>,
    domains: &Domains,
    caller: &Caller,
    campaigns: &Campaigns,
) -> Result<NewLink, Problem> {
    let mut fields = Fields::new(members);
    let is_of_campaign = fields.has("campaignId");
    let membership = read_membership(app, &mut fields, caller, campaigns);
    let mut settings = read_members(app, &mut fields, &domains.own, caller, Usage::New);
    if settings.target.is_none() && !is_of_campaign {
        // A fault that was noted already is not repeated.
        fields.require("longUrl");
    }
    let has_slug = fields.has("customSlug");
    for name in ["strategy", "codeLength"] {
        if has_slug && fields.has(name) {
            fields.refuse(name, "can't be with customSlug, which is the code");
        }
    }
    let issue = LinkIssue::read(&mut fields, Usage::New);
    let slug = issue.custom_slug.flatten();
    let slug = slug.and_then(|text| parse_slug(app, &mut fields, &text));
    let defaults = membership
        .as_ref()
        .and_then(|membership| campaigns.of_destination(membership))
        .map(|campaign| &campaign.defaults);
    let default = defaults.map_or(app.default_policy, |it| it.policy(app.default_policy));
    let default = caller.key().policy.narrow(default);
    let codes = check_codes(
        &mut fields,
        issue.strategy.flatten(),
        issue.code_length.flatten(),
        default.strategy,
        &caller.key().policy,
    );
    let dedupe = issue.dedupe.flatten().unwrap_or_default();
    if dedupe && has_slug {
        fields.refuse(
            "dedupe",
            "can't be combined with customSlug: only one link can have a custom code",
        );
    }
    fields.finish()?;
    let destination = membership.or(settings.target.take().map(Destination::Target));
    let status = default_status(app, is_of_campaign);
    settings.redirect_status.get_or_insert(status);
    if let Some(defaults) = defaults {
        defaults.complete(&mut settings);
    }
    Ok(NewLink {
        destination: destination.ok_or_else(Problem::internal)?,
        slug,
        policy: policy(codes, default),
        settings,
        dedupe,
        created_by: caller.key().id.clone(),
    })
}

/// Describes why a link was not created. If no codes are left, the request is at fault when it
/// specified the policy; else the configuration is.
pub(super) fn not_created(app: &App, policy: CodePolicy, error: LinkError) -> Problem {
    let is_full = match &error {
        LinkError::NoCode(reason) => matches!(**reason, NoCode::Full),
        LinkError::Exhausted { .. } => true,
        _ => false,
    };
    if !is_full || policy == app.default_policy {
        return error.into();
    }
    Problem::invalid(
        "/codeLength",
        "must leave a choice: too many codes of this length are in use",
    )
}

fn parse_slug(app: &App, fields: &mut Fields, text: &str) -> Option<Code> {
    app.links
        .parse_slug(text)
        .map_err(|error| fields.refuse("customSlug", error.to_string()))
        .ok()
}

/// The policy of a new code, where the request specifies some of it.
fn policy(given: GivenCodes, default: CodePolicy) -> CodePolicy {
    let strategy = given.strategy.unwrap_or(default.strategy);
    let (least, most) = strategy.lengths();
    let (shortest, longest) = default.lengths;
    CodePolicy {
        strategy,
        // The configured lengths, as far as the strategy supports them.
        lengths: given
            .lengths
            .unwrap_or((shortest.clamp(least, most), longest.clamp(least, most))),
    }
}
