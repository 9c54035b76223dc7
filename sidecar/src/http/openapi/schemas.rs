//! Schemas of what handlers read member by member: the bodies of requests. A test sends each member
//! to the service, and members that are not here, so that both know the same.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use vocabulary::BodyLengths;
use vocabulary::parameters::MAX_PARAMETERS;
use vocabulary::target::MAX_TARGET_LENGTH;

use super::words;
use crate::core::annotation::{
    MAX_EXTERNAL_ID_BYTES, MAX_NOTE_CHARACTERS, MAX_TAG_CHARACTERS, MAX_TAGS,
};
use crate::core::api_key;
use crate::http::campaigns::{LONGEST_EXTERNAL_ID, LONGEST_NAME, LONGEST_NOTE};
use crate::http::fields::MAX_COUNT;
use crate::service::keys::{MAX_NAME_LENGTH, MAX_OVERLAP};

/// Makes a type that stands for the schema of an object: the members that it must have, and all.
macro_rules! object {
    (
        $(#[doc = $text:literal])*
        $name:ident($generator:ident), $required:expr, $members:expr
    ) => {
        $(#[doc = $text])*
        pub(in crate::http) enum $name {}

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                let required: &[&str] = &$required;
                let mut schema = json_schema!({
                    "type": "object",
                    "description": concat!($($text),*).trim(),
                    "properties": $members,
                    "additionalProperties": false,
                });
                if !required.is_empty() {
                    schema.insert("required".to_owned(), json!(required));
                }
                schema
            }
        }
    };
}

/// The schema of a type, by its name.
fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// What may be `null` too.
fn or_null(mut schema: Value) -> Value {
    if schema.get("$ref").is_some() {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    }
    if let Some(kind) = schema["type"].as_str() {
        schema["type"] = json!([kind, "null"]);
    }
    schema
}

fn text(description: &str, most: usize) -> Value {
    json!({ "type": "string", "maxLength": most, "description": description })
}

fn moment(description: &str) -> Value {
    let example = ["2030-12-31T23:59:59Z"];
    json!({
        "type": "string", "format": "date-time", "description": description, "examples": example,
    })
}

fn truth(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn number(description: &str, least: u64, most: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most, "description": description })
}

fn long_url(description: &str) -> Value {
    json!({
        "type": "string",
        "maxLength": MAX_TARGET_LENGTH,
        "pattern": "^[Hh][Tt][Tt][Pp][Ss]?:",
        "description": description,
        "examples": ["https://www.example.com/spring"],
    })
}

fn external_id() -> Value {
    let mut schema = text(
        "What you call it; its length counts in bytes of UTF-8.",
        MAX_EXTERNAL_ID_BYTES,
    );
    schema["minLength"] = json!(1);
    schema
}

fn tags() -> Value {
    json!({
        "type": "array",
        "description": format!("At most {MAX_TAGS} different ones; a set, answered in order."),
        "items": { "type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARACTERS },
    })
}

fn lengths() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": BodyLengths::LONGEST })
}

fn code_length() -> Value {
    json!({
        "description": "How many characters a code has without its check character. How many there \
                        can be depends on the strategy: 1 to 12, sequence 4 to 12, hash 1 to 8.",
        "anyOf": [
            lengths(),
            {
                "type": "object",
                "properties": { "min": lengths(), "max": lengths() },
                "required": ["min", "max"],
                "additionalProperties": false,
            },
            { "type": "null" },
        ],
    })
}

fn max_visits() -> Value {
    number(
        "After about how many visits by people it ends.",
        1,
        MAX_COUNT,
    )
}

/// The values of a link of a campaign.
fn parameters() -> Value {
    json!({
        "type": "object",
        "description": "A text for each name in the campaign's longUrl.",
        "maxProperties": MAX_PARAMETERS,
        "additionalProperties": { "type": "string" },
    })
}

fn utm() -> Value {
    let part = json!({ "type": ["string", "null"], "minLength": 1 });
    json!({
        "type": ["object", "null"],
        "description": "Become utm_… in the query of longUrl, in place of those there.",
        "properties": {
            "source": part, "medium": part, "campaign": part, "term": part, "content": part,
        },
        "additionalProperties": false,
    })
}

/// What can be said of a link when it is made and later.
fn link_members(generator: &mut SchemaGenerator) -> Value {
    json!({
        "longUrl": long_url("Where it leads."),
        "parameters": parameters(),
        "utm": utm(),
        "redirectStatus": of::<words::RedirectStatus>(generator),
        "forwardQuery": truth("Whether the visitor's query is appended to the target's."),
        "validSince": or_null(moment("Answered 404 before; filled up to a whole second.")),
        "validUntil": or_null(moment("Answered 410 after; cut to a whole second, in the future.")),
        "maxVisits": or_null(max_visits()),
        "tags": or_null(tags()),
        "externalId": or_null(external_id()),
        "note": or_null(text("What you want to remember.", MAX_NOTE_CHARACTERS)),
    })
}

object! {
    /// What a new link is to be. `longUrl` is needed, or `campaignId` with `parameters`: then the
    /// campaign says `longUrl`, `utm`, `redirectStatus` and `forwardQuery`.
    NewLink(generator), [], {
        let mut members = link_members(generator);
        // What `null` leaves to the default.
        for name in ["parameters", "redirectStatus", "forwardQuery"] {
            members[name] = or_null(members[name].take());
        }
        members["campaignId"] = or_null(of::<words::CampaignId>(generator));
        members["customSlug"] = or_null(of::<words::Code>(generator));
        members["strategy"] = or_null(of::<words::Strategy>(generator));
        members["codeLength"] = code_length();
        members["dedupe"] = or_null(truth(
            "The same request gets the same link, as long as that is alive and unchanged.",
        ));
        members
    }
}

object! {
    /// What is to change of a link; what is left out stays, `null` takes away what may be absent. Of a
    /// link of a campaign `longUrl`, `utm`, `redirectStatus` and `forwardQuery` can't be changed, of
    /// another one `parameters` can't.
    LinkPatch(generator), [], link_members(generator)
}

/// Members of a campaign that can be said when it is made and later.
fn campaign_members(generator: &mut SchemaGenerator) -> Value {
    let mut name = text("What people call it.", LONGEST_NAME);
    name["minLength"] = json!(1);
    json!({
        "name": name,
        "longUrl": {
            "type": "string",
            "description": "Where its links lead: a URL with names of parameters in braces, and \
                            {code} for the code.",
            "examples": ["https://shop.example.com/p?m={member}&c={code}"],
        },
        "redirectStatus": of::<words::RedirectStatus>(generator),
        "forwardQuery": truth("Whether the visitor's query is appended to the target's."),
        "validSince": or_null(moment("Its links are answered 404 before.")),
        "validUntil": or_null(moment("Its links are answered 410 after; in the future.")),
        "note": or_null(text("What you want to remember.", LONGEST_NOTE)),
        "defaults": {
            "type": ["object", "null"],
            "description": "For new links that say nothing else.",
            "properties": {
                "strategy": or_null(of::<words::Strategy>(generator)),
                "codeLength": code_length(),
                "maxVisits": or_null(max_visits()),
                "tags": or_null(tags()),
            },
            "additionalProperties": false,
        },
    })
}

object! {
    /// What a new campaign is to be.
    NewCampaign(generator), ["name", "longUrl"], {
        let mut members = campaign_members(generator);
        for name in ["redirectStatus", "forwardQuery"] {
            members[name] = or_null(members[name].take());
        }
        members["externalId"] = or_null(text("What you call it.", LONGEST_EXTERNAL_ID));
        members["parameters"] = json!({
            "type": ["array", "null"],
            "description": "Names of parameters in the order in which links keep their values; \
                            those of longUrl come behind.",
            "items": { "type": "string", "pattern": "^[A-Za-z][0-9A-Za-z_]{0,31}$" },
        });
        members
    }
}

object! {
    /// What is to change of a campaign; what is left out stays, `null` takes away what may be absent.
    /// A new `longUrl` can do without names of the old one but can't bring others.
    CampaignPatch(generator), [], campaign_members(generator)
}

/// Members of a key.
fn key_members(generator: &mut SchemaGenerator) -> Value {
    let mut name = text("What you call it.", MAX_NAME_LENGTH);
    name["minLength"] = json!(1);
    let unit = |description| number(description, 1, api_key::RateLimit::MOST.into());
    let or_null_number = |description| or_null(unit(description));
    json!({
        "name": name,
        "scopes": {
            "type": "array", "minItems": 1, "items": of::<words::Scope>(generator),
            "description": "None that the key which asks lacks.",
        },
        "expiresAt": or_null(moment("From this moment on it opens nothing; in the future.")),
        "rateLimit": {
            "type": ["object", "null"],
            "description": "A request takes one unit, a row of a batch too.",
            "properties": {
                "requestsPerSecond": unit("How many units come a second."),
                "burst": or_null_number("How many it may save; as many as a second has, if not said."),
            },
            "required": ["requestsPerSecond"],
            "additionalProperties": false,
        },
        "policy": {
            "type": ["object", "null"],
            "description": "What it may issue and where to; what is left out is not restricted.",
            "properties": {
                "strategies": {
                    "type": ["array", "null"], "minItems": 1,
                    "items": of::<words::Strategy>(generator),
                },
                "minBodyLength": or_null(lengths()),
                "maxBodyLength": or_null(lengths()),
                "allowedDomains": {
                    "type": ["array", "null"], "minItems": 1, "items": { "type": "string" },
                    "description": "example.com and all below it, =example.com alone, or an address.",
                },
            },
            "additionalProperties": false,
        },
    })
}

object! {
    /// What a new API key is to be.
    NewKey(generator), ["name", "scopes"], key_members(generator)
}

object! {
    /// What is to change of an API key, each member as a whole; what is left out stays.
    KeyPatch(generator), [], key_members(generator)
}

object! {
    /// How a key is followed by another one.
    Rotation(_generator), ["overlapSeconds"], {
        let most = u64::try_from(MAX_OVERLAP.as_secs()).unwrap_or_default();
        let text = "For how long the old key goes on beside the new one: up to 90 days.";
        json!({ "overlapSeconds": number(text, 0, most) })
    }
}

object! {
    /// How many requests a key may make.
    RateLimit(_generator), ["requestsPerSecond", "burst"], {
        let most = api_key::RateLimit::MOST.into();
        json!({
            "requestsPerSecond": number("How many units come a second.", 1, most),
            "burst": number("How many it may save.", 1, most),
        })
    }
}

object! {
    /// What may be made with a key. What is `null` is not restricted.
    KeyPolicy(generator), ["strategies", "minBodyLength", "maxBodyLength", "allowedDomains"], {
        let words = json!({ "type": ["array", "null"], "items": { "type": "string" } });
        json!({
            "strategies": { "type": ["array", "null"], "items": of::<words::Strategy>(generator) },
            "minBodyLength": or_null(lengths()),
            "maxBodyLength": or_null(lengths()),
            "allowedDomains": words,
        })
    }
}
