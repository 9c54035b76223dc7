//! Schemas of texts with a certain form, and of values from a short list.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use shortlink_core::api_key;
use shortlink_core::codes::strategy::{CodeOrigin, StrategyName};
use shortlink_core::visit::class::Class;
use shortlink_core::webhook;
use vocabulary::{MAX_CODE_LENGTH, State};

/// Declares a type that represents a named schema.
#[macro_export]
macro_rules! word {
    ($(#[doc = $text:literal])* $vis:vis $name:ident: $schema:expr) => {
        $(#[doc = $text])*
        $vis enum $name {}

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut schema: schemars::Schema = $schema;
                schema.insert("description".to_owned(), concat!($($text),*).trim().into());
                schema
            }
        }
    };
}

pub use word;

/// The schema of a value from a list.
pub fn one_of(words: impl IntoIterator<Item = &'static str>) -> Schema {
    let words: Vec<&str> = words.into_iter().collect();
    json_schema!({ "type": "string", "enum": words })
}

/// The values of a list that messages show.
pub fn split(names: &'static str) -> impl Iterator<Item = &'static str> {
    names.split(", ")
}

word! {
    /// Code of a link.
    pub Code: json_schema!({
        "type": "string",
        "pattern": format!("^[0-9A-Za-z_-]{{1,{MAX_CODE_LENGTH}}}$"),
        "examples": ["pM69SXfs"],
    })
}

word! {
    /// Id of a campaign.
    pub CampaignId: json_schema!({
        "type": "string",
        // Below 19 * 62^6, which is less than the greatest number that an id can have.
        "pattern": "^([1-9A-Za-z][0-9A-Za-z]{0,5}|[1-9A-I][0-9A-Za-z]{6})$",
        "examples": ["1"],
    })
}

word! {
    /// Class of a visit: the kind of its client.
    pub VisitClass: one_of(split(Class::NAMES))
}

word! {
    /// Type of an event.
    pub EventType: one_of(split(webhook::EventType::NAMES))
}

word! {
    /// Visits that are events: only the first human visit of each link, or each visit.
    pub Clicks: one_of(split(webhook::Clicks::NAMES))
}

word! {
    /// State of a webhook. One that is `failing` has an event whose last attempt has failed.
    pub WebhookState: one_of(["active", "failing", "paused"])
}

word! {
    /// Reason of a pause: a request; an event that could not be delivered for three days; or an endpoint that has answered 410.
    pub PauseReason: one_of(split(webhook::PauseReason::NAMES))
}

word! {
    /// Id of an upload: of all links that one batch has created.
    pub UploadId: json_schema!({
        "type": "string",
        "pattern": "^[0-7][0-9a-f]{15}$",
        "examples": ["3f0c9d24a6b1e857"],
    })
}

word! {
    /// A URL as the URL standard serialises it. It does not escape some characters that RFC 3986
    /// requires to be escaped, such as braces in a query.
    pub Url: json_schema!({ "type": "string", "pattern": "^https?://" })
}

word! {
    /// State of a link. `live` links redirect, `scheduled` ones answer 404, all others 410.
    pub LinkState: one_of(State::ALL.map(State::name))
}

word! {
    /// State of a campaign. A link of a campaign redirects if the link and the campaign are `live`.
    pub CampaignState: one_of(State::ALL.map(State::name))
}

word! {
    /// Role of a person. Each includes those before it.
    pub Role: one_of(api_key::Role::ALL.map(api_key::Role::name))
}

word! {
    /// State of a person. One that is `blocked` cannot sign in.
    pub PersonState: one_of(api_key::PersonState::ALL.map(api_key::PersonState::name))
}

word! {
    /// State of an API key. Only `live` keys are valid.
    pub KeyState: one_of(api_key::KeyState::ALL.map(api_key::KeyState::name))
}

word! {
    /// Permission of an API key.
    pub Scope: one_of(api_key::Scope::ALL.map(api_key::Scope::name))
}

word! {
    /// Status of a message. Of two for the same time, the later in this list counts.
    pub ReceiptStatus: one_of(split(shortlink_core::receipt::ReceiptStatus::NAMES))
}

word! {
    /// Strategy that issues codes.
    pub Strategy: one_of(StrategyName::ALL.map(StrategyName::name))
}

word! {
    /// Strategy that issued the code of a link; `custom` for a custom code.
    pub LinkStrategy: one_of(CodeOrigin::ALL.map(CodeOrigin::name))
}

/// Status of a redirect.
#[derive(Serialize)]
#[serde(transparent)]
pub struct RedirectStatus(pub u16);

impl JsonSchema for RedirectStatus {
    fn schema_name() -> Cow<'static, str> {
        "RedirectStatus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "integer",
            "enum": redirect_statuses(),
            "description": "Status of a redirect.",
        })
    }
}

/// Lists the statuses that a redirect can have.
pub fn redirect_statuses() -> Vec<u16> {
    let codes = split(vocabulary::RedirectStatus::CODES);
    codes.filter_map(|code| code.parse().ok()).collect()
}
