//! API keys as JSON.

use std::str::FromStr;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use vocabulary::BodyLengths;

use crate::core::api_key::{ApiKey, InvalidPolicy, KeyPolicy, RateLimit, Scope};
use crate::core::codes::strategy::StrategyName;
use crate::core::target::domains::{DomainRule, DomainRules};
use crate::http::fields::{Fields, Member};
use crate::http::openapi::{schemas, words};
use crate::service::keys::parse_name;

/// A key as clients see it. Nothing of its secret is in it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Key")]
pub(in crate::http) struct KeyBody {
    id: String,
    /// What its owner calls it.
    name: String,
    #[schemars(with = "Vec<words::Scope>")]
    scopes: Vec<Scope>,
    #[schemars(with = "words::KeyState")]
    state: &'static str,
    expires_at: Option<Timestamp>,
    /// `null` without a limit.
    #[schemars(with = "Option<schemas::RateLimit>")]
    rate_limit: Option<RateLimit>,
    #[schemars(with = "schemas::KeyPolicy")]
    policy: KeyPolicy,
    /// The key that it was rotated to.
    successor_id: Option<String>,
    created_at: Timestamp,
    revoked_at: Option<Timestamp>,
}

impl KeyBody {
    /// Describes a key at a moment.
    pub(super) fn new(key: &ApiKey, now: Timestamp) -> Self {
        Self {
            id: key.id.clone(),
            name: key.name.clone(),
            scopes: key.scopes.clone(),
            state: key.state(now).name(),
            expires_at: key.expires_at,
            rate_limit: key.rate_limit,
            policy: key.policy.clone(),
            successor_id: key.successor_id.clone(),
            created_at: key.created_at,
            revoked_at: key.revoked_at,
        }
    }
}

/// A new key, with the text that it is presented with.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyWithSecret")]
pub(in crate::http) struct SecretBody {
    #[serde(flatten)]
    key: KeyBody,
    /// What it is presented with. Told this once.
    secret: String,
    /// The key that it was rotated from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "KeyBody")]
    predecessor: Option<KeyBody>,
}

impl SecretBody {
    /// Describes a new key.
    pub(super) fn new(key: &ApiKey, secret: String, now: Timestamp) -> Self {
        Self {
            key: KeyBody::new(key, now),
            secret,
            predecessor: None,
        }
    }

    /// Adds the key that it was rotated from.
    pub(super) fn with_predecessor(self, predecessor: &ApiKey, now: Timestamp) -> Self {
        Self {
            predecessor: Some(KeyBody::new(predecessor, now)),
            ..self
        }
    }
}

/// A page of the listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyPage")]
pub(in crate::http) struct PageBody {
    /// The keys.
    pub(super) keys: Vec<KeyBody>,
    /// Where the listing goes on; `None` at its end.
    pub(super) next_cursor: Option<String>,
}

/// Reads the name, which can't be taken away.
pub(super) fn read_name(fields: &mut Fields) -> Option<String> {
    match fields.text("name") {
        Member::Value(text) => match parse_name(&text) {
            Ok(name) => return Some(name),
            Err(error) => fields.refuse("name", error.to_string()),
        },
        Member::Null => fields.refuse("name", "must be a string"),
        Member::Absent => {}
    }
    None
}

/// Reads the scopes, of which there must be one.
pub(super) fn read_scopes(fields: &mut Fields) -> Option<Vec<Scope>> {
    match fields.list("scopes", Scope::from_str) {
        Member::Value(scopes) if !scopes.is_empty() => return Some(scopes),
        Member::Value(_) => fields.refuse("scopes", "must not be empty"),
        Member::Null => fields.refuse("scopes", "must be a list of strings"),
        Member::Absent => {}
    }
    None
}

/// Reads the expiry.
pub(super) fn read_expiry(fields: &mut Fields, now: Timestamp) -> Member<Timestamp> {
    match fields.moment("expiresAt") {
        Member::Value(moment) if moment <= now => {
            fields.refuse("expiresAt", "must be in the future");
            Member::Absent
        }
        member => member,
    }
}

/// Reads the rate limit. Without a burst as many requests may come at once as in a second.
pub(super) fn read_rate_limit(fields: &mut Fields) -> Member<RateLimit> {
    let limit = fields.object("rateLimit", |inner| {
        let per_second = inner
            .number("requestsPerSecond", 1, RateLimit::MOST)
            .value();
        if per_second.is_none() {
            inner.require("requestsPerSecond");
        }
        let burst = inner.number("burst", 1, RateLimit::MOST).value();
        per_second.and_then(|per_second| RateLimit::new(per_second, burst.unwrap_or(per_second)))
    });
    match limit {
        Member::Value(Some(limit)) => Member::Value(limit),
        Member::Null => Member::Null,
        // What is wrong has been noted.
        Member::Value(None) | Member::Absent => Member::Absent,
    }
}

/// Reads the policy.
pub(super) fn read_policy(fields: &mut Fields) -> Member<KeyPolicy> {
    fields.object("policy", |inner| {
        let longest = u32::from(BodyLengths::LONGEST);
        let mut length = |name: &str| {
            let length = inner.number(name, 1, longest).value();
            length.and_then(|length| u8::try_from(length).ok())
        };
        let (min_body_length, max_body_length) = (length("minBodyLength"), length("maxBodyLength"));
        let domains = inner.list("allowedDomains", DomainRule::from_str).value();
        let policy = KeyPolicy {
            strategies: inner.list("strategies", StrategyName::from_str).value(),
            min_body_length,
            max_body_length,
            allowed_domains: domains.map(DomainRules::from_iter),
        };
        if let Err(error) = policy.validate() {
            let name = match error {
                InvalidPolicy::NoStrategy => "strategies",
                InvalidPolicy::NoDomain => "allowedDomains",
                InvalidPolicy::Length | InvalidPolicy::Lengths => "minBodyLength",
            };
            inner.refuse(name, error.to_string());
        }
        policy
    })
}
