//! Checks of a link's members that depend on more than the request: the rules for targets, the time,
//! and the caller's policy.

use shortlink_api::fields::Fields;
use shortlink_api::kinds::link::IN_THE_FUTURE;
use shortlink_api::link::{LinkSettings, LinkTarget};
use shortlink_api::members::{Members, Usage};
use shortlink_core::link::{Change, is_never_valid};
use shortlink_core::target::{OwnHosts, Target};
use shortlink_service::access::Caller;
use vocabulary::RedirectStatus;

use super::app::App;

/// Reads the target and the settings of a link, and notes their faults.
pub(super) fn read_members(
    app: &App,
    fields: &mut Fields,
    own: &OwnHosts,
    caller: &Caller,
    usage: Usage,
) -> Change {
    let has_target = fields.has("longUrl");
    let target = LinkTarget::read(fields, usage);
    let target = check_target(app, fields, target, has_target, own, caller);
    let mut change = Change::from(LinkSettings::read(fields, usage));
    let now = app.clock.now();
    if change
        .valid_until
        .flatten()
        .is_some_and(|end| end.moment() <= now)
    {
        fields.refuse("validUntil", IN_THE_FUTURE);
        change.valid_until = None;
    }
    if is_never_valid(change.valid_since.flatten(), change.valid_until.flatten()) {
        fields.refuse("validUntil", "must be later than validSince");
    }
    Change { target, ..change }
}

/// The default of a new link for the status of its redirect. That of a campaign counts for its links, whatever
/// is configured when they are created.
pub(super) fn default_status(app: &App, is_of_campaign: bool) -> RedirectStatus {
    match is_of_campaign {
        true => RedirectStatus::default(),
        false => app.default_redirect_status,
    }
}

fn check_target(
    app: &App,
    fields: &mut Fields,
    given: LinkTarget,
    has_target: bool,
    own: &OwnHosts,
    caller: &Caller,
) -> Option<Target> {
    let target = given.long_url.and_then(|text| {
        let target = match Target::parse(&text, app.policy, own) {
            Ok(target) => app
                .target_domains
                .check(&target, &caller.key().policy)
                .map(|()| target)
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        target
            .map_err(|refusal| fields.refuse("longUrl", refusal))
            .ok()
    });
    let Some(utm) = given.utm.flatten() else {
        return target;
    };
    if !has_target {
        fields.refuse("utm", "needs longUrl, which it is appended to");
    }
    // Appended parameters may make the URL too long, so it is checked like a URL from the client.
    let target = target?;
    Target::parse(&utm.appended(target.as_str()), app.policy, own)
        .map_err(|error| fields.refuse("utm", format!("longUrl with utm {error}")))
        .ok()
}
