//! A campaign.

use std::num::NonZeroU64;

use jiff::Timestamp;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use shortlink_core::campaign::{Campaign, CampaignDefaults};

use super::faults::Faults;
use super::kinds::link::{
    ClickIdName, CodeLength, Parameters, ShortDomain, Since, Strategy, Tags, TargetWithNames, Until,
};
use super::kinds::{Count, Kind, List, Name, Shape, ShortText, Status, Truth};
use super::members::{Always, Emptied, Members, Optional, Required, Usage, members};
use super::members::{object, request};
use super::rules::{PlanBody, PlanMembers};
use super::words;

members! {
    /// The members of a campaign, for new campaigns and for changes.
    pub struct CampaignSettings {
        /// Name of the campaign: 1 to 200 characters.
        name: Required<Name<200>> = "name",
        /// Target of its links: a URL with names of parameters in braces, and {code} for the code.
        long_url: Required<TargetWithNames> = "longUrl" as "url",
        /// Redirect status of its links: 301, 302, 307 or 308. Default for a new campaign:
        /// `links.default_redirect_status` of the sidecar.
        redirect_status: Always<Status> = "redirectStatus" as "status",
        /// Append the visitor's query to that of the target. Default for a new campaign: false.
        forward_query: Always<Truth> = "forwardQuery",
        /// Start of validity, rounded up to a whole second; its links answer 404 before it.
        valid_since: Optional<Since> = "validSince",
        /// End of validity, in the future, rounded down to a whole second; its links answer 410 from then on.
        valid_until: Optional<Until> = "validUntil",
        /// Note of at most 1000 characters.
        note: Optional<ShortText<1000>> = "note",
        /// Defaults of new links. A change replaces all of them.
        defaults: Emptied<Defaults> = "defaults",
        /// Number of links that can be created in the campaign. Links that have ended or were deleted count too.
        /// Default: any number.
        max_links: Optional<Count> = "maxLinks",
        /// Name of a query parameter of the target, such as `sl_click`, which gets a unique id of the visit. Report
        /// conversions with this id. Redirects are then 302 instead of 301, and 307 instead of 308. Default: none.
        click_id: Optional<ClickIdName> = "clickId",
    }
}

members! {
    /// The members of a campaign that never change.
    pub struct CampaignIdentity {
        /// Your own id for the campaign: at most 128 characters.
        external_id: Optional<ShortText<128>> = "externalId",
        /// Names of parameters, in the order in which links store the values: a letter, then up to 31 letters,
        /// digits or _; at most 16. Other names in the target follow.
        parameters: Emptied<ParameterNames> = "parameters" as "parameter",
    }
}

members! {
    /// Defaults for new links of a campaign.
    pub struct DefaultMembers {
        /// Default strategy that issues codes of new links: permuted, pool, sequence or hash. A change of any default
        /// replaces all of them.
        strategy: Optional<Strategy> = "strategy" as "default-strategy",
        /// Default number of characters of codes of new links, without the check character. From 1 to 12;
        /// sequence 4 to 12, hash 1 to 8.
        code_length: Optional<CodeLength> = "codeLength" as "default-code-length",
        /// Default number of human visits after which a new link expires: 1 or more.
        max_visits: Optional<Count> = "maxVisits" as "default-max-visits",
        /// Default tags of new links: 1 to 64 characters, at most 20 tags.
        tags: Emptied<Tags> = "tags" as "default-tag",
        /// Default short domain for the short URLs of new links: one of the active ones for the campaign.
        domain: Optional<ShortDomain> = "domain" as "default-domain",
    }
}

request! {
    /// A new campaign.
    pub NewCampaign: New, required ["name", "longUrl"], of CampaignSettings, PlanMembers, CampaignIdentity
}

request! {
    /// A change of a campaign. Absent members stay as they are; `null` removes an optional member. A new `longUrl` can
    /// omit parameters of the old one but not add others.
    pub CampaignPatch: Patch, required [], of CampaignSettings, PlanMembers
}

/// The defaults of new links. Their checks need the caller's policy.
pub enum Defaults {}

impl Kind for Defaults {
    type Value = Map<String, Value>;
    const SHAPE: Shape = Shape::Object;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Map<String, Value>> {
        Parameters::check(value, faults)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        object(generator, Usage::New, &[DefaultMembers::MEMBERS], &[])
    }
}

/// Names of parameters.
pub enum ParameterNames {}

impl Kind for ParameterNames {
    type Value = Vec<String>;
    const SHAPE: Shape = Shape::List;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Vec<String>> {
        List::<String, String>::check(value, faults)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        let name = json!({ "type": "string", "pattern": "^[A-Za-z][0-9A-Za-z_]{0,31}$" });
        json!({ "type": "array", "items": name })
    }
}

/// A campaign in an answer.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Campaign")]
pub struct CampaignBody {
    #[schemars(with = "words::CampaignId")]
    id: String,
    /// Name of the campaign.
    name: String,
    /// Target of its links, with the names of parameters in braces.
    long_url: String,
    /// Names of its links' parameters.
    parameters: Vec<String>,
    #[schemars(with = "words::RedirectStatus")]
    redirect_status: u16,
    /// True if the visitor's query is appended to that of the target.
    forward_query: bool,
    #[schemars(with = "words::CampaignState")]
    state: &'static str,
    valid_since: Option<Timestamp>,
    valid_until: Option<Timestamp>,
    external_id: Option<String>,
    note: Option<String>,
    /// Defaults of new links.
    defaults: DefaultsBody,
    /// Number of links that can be created in the campaign; `null` for any number.
    max_links: Option<NonZeroU64>,
    /// Name of the query parameter with the id of the visit; `null` for none.
    click_id: Option<String>,
    #[serde(flatten)]
    plan: PlanBody,
    /// Number of links that were created in the campaign, including those that have ended or were deleted; only in
    /// answers about one campaign.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub links_created: Option<u64>,
    /// Number of the revision: 1 for a new campaign, one more for each change.
    revision: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// True if Redis has confirmed this revision; only in answers to changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub published: Option<bool>,
}

impl CampaignBody {
    /// Describes a campaign at a moment.
    pub fn new(campaign: &Campaign, now: Timestamp) -> Self {
        let moment = |second: NonZeroU64| {
            Timestamp::from_second(second.get() as i64).unwrap_or(Timestamp::MAX)
        };
        Self {
            id: campaign.id.to_string(),
            name: campaign.name.clone(),
            long_url: campaign.target.with_names(),
            parameters: campaign.target.names().to_vec(),
            redirect_status: campaign.redirect_status.code(),
            forward_query: campaign.forward_query,
            state: campaign.state(now).name(),
            valid_since: campaign.validity.since().map(moment),
            valid_until: campaign.validity.until().map(moment),
            external_id: campaign.external_id.clone(),
            note: campaign.note.clone(),
            defaults: DefaultsBody::new(&campaign.defaults),
            max_links: campaign.max_links,
            click_id: campaign.click_id.as_ref().map(|it| it.name().to_owned()),
            plan: PlanBody::of(campaign.plan.as_deref(), |target| {
                campaign.target.named(target)
            }),
            links_created: None,
            revision: campaign.revision,
            created_at: campaign.created_at,
            updated_at: campaign.updated_at,
            published: None,
        }
    }
}

/// Defaults of new links in an answer, without those that are not set.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CampaignDefaults")]
struct DefaultsBody {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    domain: Option<String>,
}

impl DefaultsBody {
    fn new(defaults: &CampaignDefaults) -> Self {
        Self {
            strategy: defaults.strategy.map(|strategy| strategy.name()),
            code_length: defaults.code_lengths.map(CodeLengthBody::new),
            max_visits: defaults.max_visits,
            tags: defaults.tags.clone(),
            domain: defaults.domain.clone(),
        }
    }
}

/// The number of characters of codes in an answer.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "CodeLength")]
enum CodeLengthBody {
    /// One number.
    One(u8),
    /// A range of numbers.
    Between {
        /// Minimum.
        min: u8,
        /// Maximum.
        max: u8,
    },
}

impl CodeLengthBody {
    fn new((min, max): (u8, u8)) -> Self {
        if min == max {
            Self::One(min)
        } else {
            Self::Between { min, max }
        }
    }
}
