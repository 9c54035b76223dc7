//! Checks of a link's members that depend on more than the request: the rules for targets, the time,
//! and the caller's policy.

use serde_json::{Map, Value};
use shortlink_api::fields::Fields;
use shortlink_api::kinds::link::IN_THE_FUTURE;
use shortlink_api::kinds::whole;
use shortlink_api::link::{LinkIssue, LinkSettings, LinkTarget};
use shortlink_api::members::{Members, Usage};
use shortlink_api::rules::PlanMembers;
use shortlink_core::api_key::KeyPolicy;
use shortlink_core::campaign::CampaignDefaults;
use shortlink_core::codes::strategy::{CodePolicy, StrategyName};
use shortlink_core::link::{Change, Dedupe, Destination, Second, is_never_valid};
use shortlink_core::plan::{
    INSTEAD_NAMES, Plan, PlanChange, Rule, Variant, preview_text, rules_text, variants_text,
};
use shortlink_core::short_url::Owners;
use shortlink_core::target::{OwnHosts, Target};
use shortlink_service::access::Caller;
use shortlink_service::new_link::{LinkError, NewLink, NoCode};
use vocabulary::plan::MAX_RULES;
use vocabulary::preview::{MAX_IMAGE_LENGTH, is_image};
use vocabulary::{Preview, RedirectStatus, Validity};

use super::app::App;
use super::campaign_links::{Campaigns, read_membership};
use super::extract::Domains;
use super::problem::Problem;

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
    let click_id = target.click_id.clone();
    let target = check_target(app, fields, target, has_target, own, caller);
    let now = app.clock.now();
    let mut plan = read_plan(app, fields, usage, own, caller, |text| {
        let target = parse_target(app, text, own, caller)?;
        Ok(target.as_str().to_owned())
    });
    plan.click_id = click_id;
    if usage == Usage::New
        && let Some(target) = &target
        && !Plan::of_link(plan.text_after(None), target).is_none_or(|plan| plan.fits_link())
    {
        let has_rules = plan.rules.is_some() || plan.variants.is_some();
        let is_of_click_id = plan.click_id.is_some() && !has_rules;
        let member = if is_of_click_id { "clickId" } else { "rules" };
        fields.refuse(member, PLAN_TOO_LONG);
    }
    let mut change = Change::from(LinkSettings::read(fields, usage));
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
    if usage == Usage::New {
        let period = period(change.valid_since.flatten(), change.valid_until.flatten());
        check_periods(fields, &plan, period, None);
    }
    Change {
        target,
        plan,
        ..change
    }
}

/// Checks a target against the rules for all and for the caller; an error is worded for the caller.
fn parse_target(app: &App, text: &str, own: &OwnHosts, caller: &Caller) -> Result<Target, String> {
    let target = Target::parse(text, app.policy, own).map_err(|error| error.to_string())?;
    let allowed = app.check_domain(&target, caller);
    allowed.map(|()| target).map_err(|error| error.to_string())
}

/// The fault of a plan that no record can have.
pub(super) const PLAN_TOO_LONG: &str = "are too long together with longUrl and the targets instead of answers: at most 16384 bytes, and 8192 for a target with its click id";

/// Reads rules, targets instead of answers, and a preview; `check` makes the target that is stored out of a given one.
pub(super) fn read_plan(
    app: &App,
    fields: &mut Fields,
    usage: Usage,
    own: &OwnHosts,
    caller: &Caller,
    check: impl Fn(&str) -> Result<String, String>,
) -> PlanChange {
    let now = app.clock.now();
    let given = PlanMembers::read(fields, usage);
    let variants = given.variants.map(|given| {
        let mut variants = Vec::with_capacity(given.len());
        for (place, it) in given.into_iter().enumerate() {
            match check(&it.long_url) {
                Ok(target) => variants.push(Variant {
                    name: it.name,
                    weight: it.weight,
                    target,
                }),
                Err(detail) => {
                    fields.refuse_at(&["variants", &place.to_string(), "longUrl"], detail);
                }
            }
        }
        variants
    });
    let rules = given.rules.map(|given| {
        let mut rules = Vec::with_capacity(given.len());
        for (place, rule) in given.into_iter().enumerate() {
            // A change repeats the rules that are to stay, those that are over included.
            if usage == Usage::New
                && let Some(end) = rule.conditions.until
                && end.moment() <= now
            {
                fields.refuse_at(&["rules", &place.to_string(), "validUntil"], IN_THE_FUTURE);
            }
            match check(&rule.long_url) {
                Ok(target) => rules.push(Rule {
                    conditions: rule.conditions,
                    target,
                }),
                Err(detail) => {
                    fields.refuse_at(&["rules", &place.to_string(), "longUrl"], detail);
                }
            }
        }
        rules
    });
    let variants = variants.filter(|variants| {
        let rules = rules.as_deref().unwrap_or_default();
        let detail = if variants.is_empty() || rules.len() + variants.len() <= MAX_RULES {
            let has_share = rules.iter().any(|rule| rule.conditions.points.is_some());
            has_share.then(|| "cannot be combined with rules with percent".to_owned())
        } else {
            Some(format!("must be at most {MAX_RULES} together with rules"))
        };
        let is_fine = detail.is_none();
        if let Some(detail) = detail {
            fields.refuse("variants", detail);
        }
        is_fine
    });
    let mut instead = [
        given.expired_target,
        given.paused_target,
        given.not_yet_target,
    ];
    for (name, given) in INSTEAD_NAMES.into_iter().zip(&mut instead) {
        if let Some(Some(text)) = given {
            match fields.checked(name, check(text)) {
                Some(target) => *text = target,
                None => *given = None,
            }
        }
    }
    let preview = given.preview.map(|given| {
        let given = given?;
        let image = given.image.map(|text| check_image(app, &text, own, caller));
        let image = image.map(|image| {
            let refuse = |detail| fields.refuse_at(&["preview", "image"], detail);
            image.map_err(refuse).unwrap_or_default()
        });
        Some(preview_text(Preview {
            title: &given.title,
            description: &given.description.unwrap_or_default(),
            image: &image.unwrap_or_default(),
        }))
    });
    PlanChange {
        rules: rules.as_deref().map(rules_text),
        variants: variants.as_deref().map(variants_text),
        instead,
        preview,
        click_id: None,
    }
}

/// Checks the image of a preview against the rules for targets, and its own.
fn check_image(app: &App, text: &str, own: &OwnHosts, caller: &Caller) -> Result<String, String> {
    let image = parse_target(app, text, own, caller)?;
    let image = image.as_str();
    let must = || format!("must be an https URL of at most {MAX_IMAGE_LENGTH} bytes");
    is_image(image).then(|| image.to_owned()).ok_or_else(must)
}

/// The period between two bounds; always if it would end before it begins, which is a fault of its own.
pub(super) fn period(since: Option<Second>, until: Option<Second>) -> Validity {
    let bound = |second: Option<Second>| second.map(Second::non_zero);
    Validity::new(bound(since), bound(until)).unwrap_or_default()
}

/// Checks that the new rules can match in the period of their link or campaign. Rules of `present` that a change repeats
/// may be over.
pub(super) fn check_periods(
    fields: &mut Fields,
    plan: &PlanChange,
    period: Validity,
    present: Option<&Plan>,
) {
    // With a fault, rules are missing from the list.
    if fields.is_refused("rules") {
        return;
    }
    for (place, error) in plan.out_of_period(period, present) {
        let place = place.to_string();
        let path: Vec<&str> = ["rules", &*place]
            .into_iter()
            .chain(error.member())
            .collect();
        fields.refuse_at(&path, error.to_string());
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
        let target = parse_target(app, &text, own, caller);
        fields.checked("longUrl", target)
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
            fields.refuse(
                name,
                "cannot be combined with customSlug, which is the code",
            );
        }
    }
    let issue = LinkIssue::read(&mut fields, Usage::New);
    let slug = issue.custom_slug.flatten();
    let slug = slug.and_then(|text| fields.checked("customSlug", app.links.parse_slug(&text)));
    if let Some(code) = &slug {
        let allowed = caller.key().policy.check_custom_code(code);
        fields.checked("customSlug", allowed);
    }
    // Without the campaign, the domains of the link are unknown.
    if membership.is_some() || !is_of_campaign {
        let owners = Owners {
            campaign: membership.as_ref().and_then(Destination::campaign),
            key: &caller.key().id,
        };
        check_short_domain(&mut fields, &settings, domains, owners, None);
    }
    let defaults = membership
        .as_ref()
        .and_then(|membership| campaigns.of_destination(membership))
        .map(|campaign| &campaign.defaults);
    let default = caller.key().policy.narrow(default_policy(app, defaults));
    let codes = check_codes(
        &mut fields,
        issue.strategy.flatten(),
        issue.code_length.flatten(),
        default.strategy,
        &caller.key().policy,
    );
    let campaign_quota = membership
        .as_ref()
        .and_then(|membership| campaigns.of_destination(membership))
        .and_then(|campaign| campaign.max_links);
    let dedupe = issue.dedupe.flatten().unwrap_or_default();
    if dedupe != Dedupe::Never && has_slug {
        fields.refuse(
            "dedupe",
            "can't be combined with customSlug: only one link can have a custom code",
        );
    }
    fields.finish()?;
    let destination = membership.or(settings.target.take().map(Destination::Target));
    // The status of a campaign counts for its links, whatever is configured when they are created.
    settings
        .redirect_status
        .get_or_insert(match is_of_campaign {
            true => RedirectStatus::default(),
            false => app.default_redirect_status,
        });
    if let Some(defaults) = defaults {
        defaults.complete(&mut settings);
    }
    Ok(NewLink {
        destination: destination.ok_or_else(Problem::internal)?,
        slug,
        policy: policy(codes, default),
        settings,
        dedupe,
        dedupe_among: caller
            .key()
            .own_ids()
            .map(|_| caller.key().first_id.clone()),
        created_by: caller.key().id.clone(),
        upload: None,
        has_quota: campaign_quota.or(caller.key().policy.max_links).is_some(),
    })
}

/// Checks that the short domain of new settings is active for a link, or is the `present` one.
pub(super) fn check_short_domain(
    fields: &mut Fields,
    settings: &Change,
    domains: &Domains,
    owners: Owners<'_>,
    present: Option<&str>,
) {
    if let Some(Some(name)) = &settings.domain {
        fields.checked("domain", domains.bases.check(name, owners, present));
    }
}

/// The origin of the lengths that a new link's code may have.
#[derive(Clone, Copy, Debug)]
pub(super) enum LengthsFrom {
    /// The request.
    Request,
    /// The defaults of the link's campaign.
    Campaign,
    /// The policy of the caller's API key.
    Key,
    /// The configuration of the service.
    Configuration,
}

impl LengthsFrom {
    /// Finds the origin for a request; `campaigns` are those that it names.
    pub(super) fn of(
        app: &App,
        request: &Map<String, Value>,
        caller: &Caller,
        campaigns: &Campaigns,
    ) -> Self {
        if request.get("codeLength").is_some_and(|it| !it.is_null()) {
            return Self::Request;
        }
        let defaults = campaigns.named_by(request).map(|it| &it.defaults);
        let default = default_policy(app, defaults);
        if caller.key().policy.narrow(default).lengths != default.lengths {
            Self::Key
        } else if defaults.is_some_and(|it| it.code_lengths.is_some()) {
            Self::Campaign
        } else {
            Self::Configuration
        }
    }
}

/// The policy of codes for a request that specifies none, before that of the key.
fn default_policy(app: &App, defaults: Option<&CampaignDefaults>) -> CodePolicy {
    defaults.map_or(app.default_policy, |it| it.policy(app.default_policy))
}

/// Describes why a link was not created. If no codes of the allowed lengths are left, the origin of these lengths is at
/// fault.
pub(super) fn not_created(error: LinkError, lengths_from: LengthsFrom) -> Problem {
    let is_full = match &error {
        LinkError::NoCode(reason) => matches!(**reason, NoCode::Full { .. }),
        error => matches!(error, LinkError::Exhausted { .. }),
    };
    let (pointer, detail) = match lengths_from {
        LengthsFrom::Request if is_full => (
            "/codeLength",
            "must leave a choice: too many codes of this length are in use",
        ),
        LengthsFrom::Campaign if is_full => (
            "/campaignId",
            "has defaults that leave no choice: too many codes of their codeLength are in use",
        ),
        LengthsFrom::Key if is_full => (
            "",
            "needs a code of a length that the policy of the API key excludes: too many codes of the others are in use",
        ),
        _ => return error.into(),
    };
    Problem::invalid(pointer, detail)
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

/// Options of a request for issuing codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenCodes {
    /// The strategy.
    pub(super) strategy: Option<StrategyName>,
    /// The minimum and the maximum number of characters before the check character.
    pub(super) lengths: Option<(u8, u8)>,
}

/// Checks the options; `default` is the strategy if none is specified.
pub(super) fn check_codes(
    fields: &mut Fields,
    strategy: Option<StrategyName>,
    lengths: Option<Value>,
    default: StrategyName,
    allowed: &KeyPolicy,
) -> GivenCodes {
    if let Some(strategy) = strategy {
        fields.checked("strategy", allowed.check_strategy(strategy));
    }
    // The bounds of the length follow from the strategy, which is unknown if it has a fault of its own.
    let is_unknown = strategy.is_none() && fields.is_refused("strategy");
    let lengths = lengths.filter(|_| !is_unknown);
    let lengths = lengths.and_then(|it| check_lengths(fields, it, strategy.unwrap_or(default)));
    if let Some((shortest, longest)) = lengths {
        let checked = allowed.check_body_length(shortest);
        let checked = checked.and_then(|()| allowed.check_body_length(longest));
        fields.checked("codeLength", checked);
    }
    GivenCodes { strategy, lengths }
}

/// Reads a number of characters, or a minimum and a maximum, without the check character.
fn check_lengths(fields: &mut Fields, value: Value, strategy: StrategyName) -> Option<(u8, u8)> {
    let (least, most) = strategy.lengths();
    let allowed =
        format!("must be a whole number from {least} to {most} with the strategy {strategy}");
    let within = |value: &Value| {
        let length = u8::try_from(whole(value)?).ok()?;
        (least..=most).contains(&length).then_some(length)
    };
    let mut members = match value {
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
