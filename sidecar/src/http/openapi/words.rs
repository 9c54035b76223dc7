//! Schemas of what is one of a few words, or a text of a certain form.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use vocabulary::MAX_CODE_LENGTH;

use crate::core::api_key;
use crate::core::codes::strategy::StrategyName;
use crate::core::ports;
use crate::core::state::State;
use crate::core::visit::class::Class;

/// The prefix of identifiers of problems.
pub(in crate::http) const TYPE_PREFIX: &str = "urn:shortlink:problem:";

/// Every problem that there is, by the last part of its type.
pub(in crate::http) const PROBLEMS: [&str; 23] = [
    "batch-too-large",
    "expired",
    "forbidden",
    "forgotten",
    "idempotency-key-reused",
    "internal",
    "last-admin",
    "malformed",
    "method-not-allowed",
    "not-found",
    "not-from-console",
    "not-json",
    "not-rows",
    "other-revision",
    "query",
    "rate-limited",
    "revoked",
    "rotated",
    "taken",
    "too-large",
    "unauthorized",
    "unavailable",
    "validation",
];

/// Makes a type that stands for a schema, under a name of its own.
macro_rules! word {
    ($(#[doc = $text:literal])* $name:ident: $schema:expr) => {
        $(#[doc = $text])*
        pub(in crate::http) enum $name {}

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let mut schema: Schema = $schema;
                schema.insert("description".to_owned(), concat!($($text),*).trim().into());
                schema
            }
        }
    };
}

fn one_of(words: impl IntoIterator<Item = &'static str>) -> Schema {
    let words: Vec<&str> = words.into_iter().collect();
    json_schema!({ "type": "string", "enum": words })
}

fn split(names: &'static str) -> impl Iterator<Item = &'static str> {
    names.split(", ")
}

word! {
    /// The code of a link.
    Code: json_schema!({
        "type": "string",
        "pattern": format!("^[0-9A-Za-z]{{1,{MAX_CODE_LENGTH}}}$"),
        "examples": ["pM69SXfs"],
    })
}

word! {
    /// The id of a campaign.
    CampaignId: json_schema!({
        "type": "string",
        "pattern": "^[1-9A-Za-z][0-9A-Za-z]*$",
        "examples": ["1"],
    })
}

word! {
    /// A URL as the URL standard serialises it, which leaves some characters alone that RFC 3986 has
    /// escaped, such as braces in a query.
    Url: json_schema!({ "type": "string", "pattern": "^https?://" })
}

word! {
    /// The status with which a link redirects.
    RedirectStatus: json_schema!({ "type": "integer", "enum": redirect_statuses() })
}

word! {
    /// `scheduled` links are answered 404, all but `live` ones 410 else.
    LinkState: one_of(State::ALL.map(State::name))
}

word! {
    /// A link of a campaign redirects when both are `live`.
    CampaignState: one_of(State::ALL.map(State::name))
}

word! {
    /// Only `live` keys open anything.
    KeyState: {
        use api_key::KeyState as State;
        one_of([State::Live, State::Expired, State::Revoked].map(State::name))
    }
}

word! {
    /// What a key allows.
    Scope: one_of(api_key::Scope::ALL.map(api_key::Scope::name))
}

word! {
    /// How codes are come up with.
    Strategy: one_of(StrategyName::ALL.map(StrategyName::name))
}

word! {
    /// Who or what a visit was by.
    VisitClass: one_of(split(Class::NAMES))
}

word! {
    /// `active` domains are put into new short URLs, `serving` ones follow links, `retired` ones do not.
    DomainState: one_of(split(vocabulary::domains::DomainState::NAMES))
}

word! {
    /// What visits can have in common.
    Dimension: one_of(split(ports::Dimension::NAMES))
}

word! {
    /// How long the intervals are; days are those of UTC.
    Interval: one_of(["hour", "day"])
}

word! {
    /// `degraded` without Redis, or while links wait to be told to it.
    Readiness: one_of(["ready", "degraded", "unavailable"])
}

word! {
    /// Whether it answers.
    UpOrDown: one_of(["up", "down"])
}

word! {
    /// Which problem it is.
    ProblemType: {
        let types: Vec<String> = PROBLEMS.iter().map(|name| format!("{TYPE_PREFIX}{name}")).collect();
        json_schema!({ "type": "string", "format": "uri", "enum": types })
    }
}

/// The statuses with which links redirect.
pub(super) fn redirect_statuses() -> Vec<u16> {
    let codes = split(vocabulary::RedirectStatus::CODES);
    codes.filter_map(|code| code.parse().ok()).collect()
}

word! {
    /// A description as OpenAPI 3.1 has it.
    Description: json_schema!({
        "type": "object",
        "required": ["openapi", "info", "paths", "components"],
    })
}
