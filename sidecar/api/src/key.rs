//! An API key.

use jiff::Timestamp;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value, json};
use shortlink_core::api_key::{
    self, ApiKey, InvalidPolicy, MAX_NAME_LENGTH, MAX_OVERLAP, parse_name,
};
use shortlink_core::codes::strategy::StrategyName;
use shortlink_core::target::domains::{DomainRule, DomainRules};

use super::faults::Faults;
use super::kinds::link::Parameters;
use super::kinds::{Count, Kind, Length, List, Moment, Number, Shape, Text, Truth};
use super::members::{Always, Emptied, Members, Optional, Required, Usage, members};
use super::members::{object, request};
use super::words;

/// A number of characters of a custom code.
type CustomLength = Number<1, { vocabulary::MAX_CODE_LENGTH as u32 }>;

/// A number of units of a rate limit.
type Units = Number<1, { api_key::RateLimit::MOST }>;

members! {
    /// The members of an API key, for new keys and for changes.
    pub struct KeySettings {
        /// Name of the API key, such as its purpose: 1 to 100 characters.
        name: Required<KeyName> = "name",
        /// Scopes of the API key. The key of the request must have each of them.
        scopes: Required<Scopes> = "scopes" as "scope",
        /// Time of expiry, in the future. Default: the key does not expire.
        expires_at: Optional<Moment> = "expiresAt",
        /// Rate limit, for each sidecar process. Each row of a batch counts as one request. Default: no limit.
        rate_limit: Optional<RateLimit> = "rateLimit",
        /// Restrictions of codes, of targets and of the links that the key can reach. Default: none.
        policy: Emptied<KeyPolicy> = "policy",
    }
}

members! {
    /// The members of a rate limit.
    pub struct RateLimitMembers {
        /// Number of requests per second.
        requests_per_second: Required<Units> = "requestsPerSecond" as "rate-limit",
        /// Number of requests that can be sent at once. Default: the number of requests per second.
        burst: Always<Units> = "burst",
    }
}

members! {
    /// The members of a policy.
    pub struct PolicyMembers {
        /// Strategies that codes can be issued with. Default: all strategies.
        strategies: Optional<List<StrategyName, words::Strategy>> = "strategies" as "strategy",
        /// Minimum number of characters of issued codes, without the check character.
        min_body_length: Optional<Length> = "minBodyLength",
        /// Maximum number of characters of issued codes, without the check character.
        max_body_length: Optional<Length> = "maxBodyLength",
        /// Domains that targets can be on: example.com with its subdomains, =example.com without them, or an IP
        /// address. Default: all domains.
        allowed_domains: Optional<List<DomainRule, String>> = "allowedDomains" as "allowed-domain",
        /// Links can have custom codes. Default: true.
        custom_codes: Always<Truth> = "customCodes",
        /// Minimum number of characters of custom codes.
        min_custom_length: Optional<CustomLength> = "minCustomLength",
        /// Number of links that can be created with the key, and with those that it was rotated from and to. Links that
        /// have ended or were deleted count too. Default: any number.
        max_links: Optional<Count> = "maxLinks",
        /// The key reaches only links and campaigns that were created with it, or with those that it was rotated from and
        /// to. Not with the scopes `admin`, `keys:admin` and `webhooks:admin`. Default: false.
        own_links_only: Always<Truth> = "ownLinksOnly",
    }
}

members! {
    /// The members of a rotation.
    pub struct RotationMembers {
        /// Number of seconds for which the old key remains valid: at most 7776000 (90 days).
        overlap_seconds: Required<Number<0, { MAX_OVERLAP.as_secs() as u32 }>> = "overlapSeconds",
    }
}

request! {
    /// A new API key.
    pub NewKey: New, required ["name", "scopes"], of KeySettings
}

request! {
    /// A change of an API key, each member as a whole. Absent members stay as they are.
    pub KeyPatch: Patch, required [], of KeySettings
}

request! {
    /// A rotation of an API key.
    pub Rotation: New, required ["overlapSeconds"], of RotationMembers
}

/// The name of a key.
pub enum KeyName {}

impl Kind for KeyName {
    type Value = String;
    const SHAPE: Shape = Shape::Text;
    const NOT_NULL: &'static str = Text::NOT_NULL;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        let name = parse_name(&Text::check(value, faults)?);
        name.map_err(|error| faults.refuse(error.to_string())).ok()
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH })
    }
}

/// A list of scopes.
type ScopeList = List<api_key::Scope, words::Scope>;

/// Scopes, at least one.
pub enum Scopes {}

impl Kind for Scopes {
    type Value = Vec<api_key::Scope>;
    const SHAPE: Shape = Shape::List;
    const NOT_NULL: &'static str = ScopeList::NOT_NULL;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Vec<api_key::Scope>> {
        let scopes = ScopeList::check(value, faults)?;
        if scopes.is_empty() {
            faults.refuse("must not be empty");
            return None;
        }
        Some(scopes)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        ScopeList::schema(generator)
    }
}

/// A rate limit. Without a burst as many requests can be made at once as in a second.
pub enum RateLimit {}

impl Kind for RateLimit {
    type Value = api_key::RateLimit;
    const SHAPE: Shape = Shape::Object;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<api_key::RateLimit> {
        let members = Parameters::check(value, faults)?;
        faults.within(members, |fields| {
            let given = RateLimitMembers::read(fields, Usage::New);
            let per_second = fields.required("requestsPerSecond", given.requests_per_second)?;
            api_key::RateLimit::new(per_second, given.burst.unwrap_or(per_second))
        })
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        let required = ["requestsPerSecond"];
        object(
            generator,
            Usage::New,
            &[RateLimitMembers::MEMBERS],
            &required,
        )
    }
}

/// A policy.
pub enum KeyPolicy {}

impl Kind for KeyPolicy {
    type Value = api_key::KeyPolicy;
    const SHAPE: Shape = Shape::Object;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<api_key::KeyPolicy> {
        let members = Parameters::check(value, faults)?;
        faults.within(members, |fields| {
            let given = PolicyMembers::read(fields, Usage::New);
            let length = |given: Option<Option<u32>>| {
                given.flatten().and_then(|length| u8::try_from(length).ok())
            };
            let domains = given.allowed_domains.flatten();
            let policy = api_key::KeyPolicy {
                strategies: given.strategies.flatten(),
                min_body_length: length(given.min_body_length),
                max_body_length: length(given.max_body_length),
                allowed_domains: domains.map(DomainRules::from_iter),
                custom_codes: given.custom_codes.unwrap_or(true),
                min_custom_length: length(given.min_custom_length),
                max_links: given.max_links.flatten(),
                own_links_only: given.own_links_only.unwrap_or_default(),
            };
            if let Err(error) = policy.validate() {
                let name = match error {
                    InvalidPolicy::NoStrategy => "strategies",
                    InvalidPolicy::NoDomain => "allowedDomains",
                    InvalidPolicy::Length | InvalidPolicy::Lengths => "minBodyLength",
                    InvalidPolicy::CustomLength => "minCustomLength",
                };
                fields.refuse(name, error.to_string());
            }
            Some(policy)
        })
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        object(generator, Usage::New, &[PolicyMembers::MEMBERS], &[])
    }
}

/// Schemas of answers.
mod shown {
    use super::{PolicyMembers, RateLimitMembers, request};

    request! {
        /// Rate limit of an API key, for each sidecar process.
        pub(super) RateLimit: Patch, required ["requestsPerSecond", "burst"], of RateLimitMembers
    }

    request! {
        /// Restrictions of codes, of targets and of the links that a key can reach. `null` means no restriction.
        pub(super) KeyPolicy: New, required [
            "strategies", "minBodyLength", "maxBodyLength", "allowedDomains", "customCodes", "minCustomLength",
            "maxLinks", "ownLinksOnly",
        ], of PolicyMembers
    }
}

/// An API key in an answer, without its secret.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Key")]
pub struct KeyBody {
    id: String,
    /// Name of the API key.
    name: String,
    #[schemars(with = "Vec<words::Scope>")]
    scopes: Vec<api_key::Scope>,
    #[schemars(with = "words::KeyState")]
    state: &'static str,
    expires_at: Option<Timestamp>,
    /// Rate limit of the key; `null` for no limit.
    #[schemars(with = "Option<shown::RateLimit>")]
    rate_limit: Option<api_key::RateLimit>,
    #[schemars(with = "shown::KeyPolicy")]
    policy: api_key::KeyPolicy,
    /// Number of links that were created with the key and those that it was rotated from and to, including those that
    /// have ended or were deleted; only in answers to reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub links_created: Option<u64>,
    /// Id of the key that has replaced it by a rotation.
    successor_id: Option<String>,
    created_at: Timestamp,
    revoked_at: Option<Timestamp>,
}

impl KeyBody {
    /// Describes a key at a moment.
    pub fn new(key: &ApiKey, now: Timestamp) -> Self {
        Self {
            id: key.id.clone(),
            name: key.name.clone(),
            scopes: key.scopes.clone(),
            state: key.state(now).name(),
            expires_at: key.expires_at,
            rate_limit: key.rate_limit,
            policy: key.policy.clone(),
            links_created: None,
            successor_id: key.successor_id.clone(),
            created_at: key.created_at,
            revoked_at: key.revoked_at,
        }
    }
}
