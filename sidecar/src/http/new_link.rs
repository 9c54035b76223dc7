//! Reads what a new link is to be.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::App;
use super::extract::Domains;
use super::fields::{Fields, Member};
use super::problem::Problem;
use crate::domain::link::Expiry;
use crate::domain::service::access::Caller;
use crate::domain::service::links::NewLink;
use crate::domain::target::{OwnHosts, Target};

/// Reads the members of a new link; all that is wrong with them is told.
pub(super) fn read_new_link(
    app: &App,
    members: Map<String, Value>,
    domains: &Domains,
    caller: &Caller,
) -> Result<NewLink, Problem> {
    let mut fields = Fields::new(members);
    let target = match fields.text("longUrl") {
        Member::Value(text) => read_target(app, &mut fields, &text, &domains.own, caller),
        Member::Null => {
            fields.refuse("longUrl", "must be a string");
            None
        }
        Member::Absent => {
            // A member of another type has been refused already and is told once.
            fields.require("longUrl");
            None
        }
    };
    let slug = fields.text("customSlug").value();
    let slug = slug.and_then(|text| match app.links.parse_slug(&text) {
        Ok(code) => Some(code),
        Err(error) => {
            fields.refuse("customSlug", error.to_string());
            None
        }
    });
    let redirect_status = fields.redirect_status("redirectStatus").value();
    let expires_at = match fields.moment("validUntil") {
        Member::Value(moment) => read_expiry(app, &mut fields, moment),
        Member::Absent | Member::Null => None,
    };
    fields.finish()?;
    Ok(NewLink {
        target: target.ok_or_else(Problem::internal)?,
        slug,
        policy: caller.key().policy.narrow(app.default_policy),
        redirect_status: redirect_status.unwrap_or(app.default_redirect_status),
        expires_at,
        created_by: caller.key().id.clone(),
    })
}

/// Reads a target, or refuses it.
pub(super) fn read_target(
    app: &App,
    fields: &mut Fields,
    text: &str,
    own: &OwnHosts,
    caller: &Caller,
) -> Option<Target> {
    let refusal = match Target::parse(text, app.policy, own) {
        Ok(target) => match app.target_domains.check(&target, &caller.key().policy) {
            Ok(()) => return Some(target),
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    fields.refuse("longUrl", refusal);
    None
}

/// Reads an expiry, or refuses it.
pub(super) fn read_expiry(app: &App, fields: &mut Fields, moment: Timestamp) -> Option<Expiry> {
    let now = app.clock.now();
    let expiry = Expiry::at(moment).filter(|expiry| expiry.moment() > now);
    if expiry.is_none() {
        fields.refuse("validUntil", "must be in the future");
    }
    expiry
}
