//! What a new link is to be: the members of `POST /v1/links`.

use serde_json::{Map, Value};
use vocabulary::{Code, RedirectStatus};

use super::App;
use super::campaign_links::{Campaigns, read_membership};
use super::extract::Domains;
use super::fields::{Fields, Member};
use super::link_members::{Null, read_members};
use super::problem::{FieldError, Problem};
use crate::domain::api_key::KeyPolicy;
use crate::domain::codes::strategy::StrategyName;
use crate::domain::link::Destination;
use crate::domain::service::access::Caller;
use crate::domain::service::issue::{CodePolicy, NoCode};
use crate::domain::service::links::{LinkError, NewLink};

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
    let policy = read_policy(
        &mut fields,
        has_slug,
        app.default_policy,
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
        max_visits: said.max_visits.flatten(),
        external_id: said.external_id.flatten(),
        note: said.note.flatten(),
        tags: said.tags.unwrap_or_default(),
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
    let strategy = match fields.text("strategy") {
        Member::Value(name) => match name.parse() {
            Ok(strategy) => {
                if let Err(error) = allowed.check_strategy(strategy) {
                    fields.refuse("strategy", error.to_string());
                }
                strategy
            }
            Err(_unknown) => {
                fields.refuse(
                    "strategy",
                    format!("must be one of {}", StrategyName::NAMES),
                );
                // How long its codes could be is not known either.
                fields.ignore("codeLength");
                return default;
            }
        },
        Member::Absent | Member::Null => default.strategy,
    };
    let (least, most) = strategy.lengths();
    let (shortest, longest) = default.lengths;
    let lengths = read_lengths(fields, strategy);
    if let Some((shortest, longest)) = lengths {
        for length in [shortest, longest] {
            if let Err(error) = allowed.check_body_length(length) {
                fields.refuse("codeLength", error.to_string());
                break;
            }
        }
    }
    CodePolicy {
        strategy,
        // What is configured, as far as the strategy can do it.
        lengths: lengths.unwrap_or((shortest.clamp(least, most), longest.clamp(least, most))),
    }
}

/// Reads a number, or the least and the most: without the check character.
fn read_lengths(fields: &mut Fields, strategy: StrategyName) -> Option<(u8, u8)> {
    let must = "a number, or an object with the numbers min and max";
    let value = fields.member("codeLength", must, |value| match value {
        Value::Number(_) | Value::Object(_) => Some(value),
        _ => None,
    });
    let (least, most) = strategy.lengths();
    let allowed =
        format!("must be a whole number from {least} to {most} with the strategy {strategy}");
    let within = |value: &Value| {
        let length = u8::try_from(value.as_u64()?).ok()?;
        (least..=most).contains(&length).then_some(length)
    };
    let mut members = match value.value()? {
        Value::Object(members) => members,
        number => {
            let length = within(&number);
            if length.is_none() {
                fields.refuse("codeLength", allowed);
            }
            return length.map(|length| (length, length));
        }
    };
    let mut bound = |name| {
        let length = members.remove(name).as_ref().and_then(within);
        if length.is_none() {
            fields.refuse_at(&["codeLength", name], &*allowed);
        }
        length
    };
    let (min, max) = (bound("min"), bound("max"));
    for name in members.keys() {
        fields.refuse_at(&["codeLength", name], "is not known");
    }
    let lengths = (min?, max?);
    if lengths.0 > lengths.1 {
        fields.refuse("codeLength", "must have a min that is not above its max");
    }
    Some(lengths)
}
