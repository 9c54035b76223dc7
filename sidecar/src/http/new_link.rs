//! What a new link is to be: the members of `POST /v1/links`.

use serde_json::{Map, Value};
use vocabulary::{Code, RedirectStatus};

use super::app::App;
use super::campaign_links::{Campaigns, read_membership};
use super::code_members::read_code_members;
use super::extract::Domains;
use super::fields::Fields;
use super::link_members::{Null, read_members};
use super::problem::{FieldError, Problem};
use crate::core::api_key::KeyPolicy;
use crate::core::codes::strategy::CodePolicy;
use crate::core::link::Destination;
use crate::service::access::Caller;
use crate::service::new_link::NoCode;
use crate::service::new_link::{LinkError, NewLink};

/// Reads what a new link is to be; `campaigns` are those that the members name.
///
/// # Errors
/// A problem that tells everything that is wrong, with pointers from these members on.
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
    let said = read_members(app, &mut fields, &domains.own, caller, Null::IsDefault);
    if said.target.is_none() && !is_of_campaign {
        // What is wrong with it has been said already and is told once.
        fields.require("longUrl");
    }
    let has_slug = fields.has("customSlug");
    let slug = read_slug(app, &mut fields);
    let defaults = membership
        .as_ref()
        .and_then(|membership| campaigns.of_destination(membership))
        .map(|campaign| &campaign.defaults);
    let policy = read_policy(
        &mut fields,
        has_slug,
        defaults.map_or(app.default_policy, |it| it.policy(app.default_policy)),
        &caller.key().policy,
    );
    let dedupe = fields.truth("dedupe").value().unwrap_or_default();
    if dedupe && has_slug {
        fields.refuse("dedupe", "can't be with customSlug, which is had once");
    }
    fields.finish()?;
    let destination = membership.or(said.target.map(Destination::Target));
    Ok(NewLink {
        destination: destination.ok_or_else(Problem::internal)?,
        slug,
        policy,
        redirect_status: match said.redirect_status {
            Some(status) => status,
            // It is the campaign's that counts, whatever is configured when the link is made.
            None if is_of_campaign => RedirectStatus::default(),
            None => app.default_redirect_status,
        },
        forward_query: said.forward_query.unwrap_or_default(),
        valid_since: said.valid_since.flatten(),
        valid_until: said.valid_until.flatten(),
        max_visits: match said.max_visits {
            Some(most) => most,
            None => defaults.and_then(|it| it.max_visits),
        },
        external_id: said.external_id.flatten(),
        note: said.note.flatten(),
        tags: match said.tags {
            Some(tags) => tags,
            None => defaults.map(|it| it.tags.clone()).unwrap_or_default(),
        },
        dedupe,
        created_by: caller.key().id.clone(),
    })
}

/// Says why a link was not made. That its codes are used up is for whoever has asked for just
/// these, and for the operator where nobody has.
pub(super) fn not_created(app: &App, policy: CodePolicy, error: LinkError) -> Problem {
    let is_full = match &error {
        LinkError::NoCode(reason) => matches!(**reason, NoCode::Full),
        LinkError::Exhausted { .. } => true,
        _ => false,
    };
    if !is_full || policy == app.default_policy {
        return error.into();
    }
    Problem::validation(vec![FieldError {
        pointer: "/codeLength".to_owned(),
        detail: "must leave a choice: too many codes of this length are in use".to_owned(),
    }])
}

fn read_slug(app: &App, fields: &mut Fields) -> Option<Code> {
    let text = fields.text("customSlug").value()?;
    app.links
        .parse_slug(&text)
        .map_err(|error| fields.refuse("customSlug", error.to_string()))
        .ok()
}

/// Reads how the code is come up with.
fn read_policy(
    fields: &mut Fields,
    has_slug: bool,
    default: CodePolicy,
    allowed: &KeyPolicy,
) -> CodePolicy {
    let default = allowed.narrow(default);
    for name in ["strategy", "codeLength"] {
        if has_slug && fields.has(name) {
            fields.refuse(name, "can't be with customSlug, which is the code");
        }
    }
    let Some(said) = read_code_members(fields, default.strategy, allowed) else {
        return default;
    };
    let strategy = said.strategy.unwrap_or(default.strategy);
    let (least, most) = strategy.lengths();
    let (shortest, longest) = default.lengths;
    CodePolicy {
        strategy,
        // What is configured, as far as the strategy can do it.
        lengths: said
            .lengths
            .unwrap_or((shortest.clamp(least, most), longest.clamp(least, most))),
    }
}
