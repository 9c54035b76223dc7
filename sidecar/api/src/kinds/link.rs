//! The kinds of members of links.

use jiff::Timestamp;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};
use shortlink_core::annotation::{
    MAX_EXTERNAL_ID_BYTES, MAX_NOTE_CHARACTERS, MAX_TAG_CHARACTERS, MAX_TAGS, check_external_id,
    check_note, check_tag, normalized_tags,
};
use shortlink_core::campaign::ClickParameter;
use shortlink_core::codes::strategy::StrategyName;
use shortlink_core::link::{Dedupe, Second, Window, WindowError};
use shortlink_core::query;
use shortlink_core::short_url::domain_name;
use shortlink_core::webhook::MAX_URL_LENGTH;
use vocabulary::parameters::MAX_PARAMETERS;
use vocabulary::target::MAX_TARGET_LENGTH;

use super::{
    Kind, Length, Moment, Name, Shape, Shown, checked, expect, items, list, object, shown_as_is,
    text, texts,
};
use crate::faults::Faults;
use crate::schema::of;
use crate::words;

texts! {
    /// The target of a link.
    LongUrl: |_| json!({
        "type": "string",
        "maxLength": MAX_TARGET_LENGTH,
        "pattern": "^[Hh][Tt][Tt][Pp][Ss]?:",
        "examples": ["https://www.example.com/spring"],
    });

    /// The target of a campaign's links, with names of parameters.
    TargetWithNames: |_| {
        let example = ["https://shop.example.com/p?m={member}&c={code}"];
        json!({ "type": "string", "examples": example })
    };

    /// The endpoint of a webhook.
    EndpointUrl: |_| json!({
        "type": "string",
        "maxLength": MAX_URL_LENGTH,
        "pattern": "^[Hh][Tt][Tt][Pp][Ss]?:",
        "examples": ["https://hooks.example.com/clicks"],
    });

    /// The id of a campaign.
    CampaignId: |generator| of::<words::CampaignId>(generator);

    /// The text of a message.
    MessageText: |_| {
        let example = ["Hi {name}, see https://www.example.com/spring?m={member}."];
        json!({ "type": "string", "examples": example })
    };

    /// A custom code.
    Code: |generator| of::<words::Code>(generator);
}

shown_as_is!(Tags, ExternalId, Note, ShortDomain);

/// The most bytes of the name of a domain in DNS.
const MAX_DOMAIN_BYTES: usize = 253;

/// The fault of an end that has passed.
pub const IN_THE_FUTURE: &str = "must be in the future";

/// Declares kinds of bounds of a period: how a time is rounded, and the fault of one that no link can have.
macro_rules! bounds {
    ($($(#[doc = $about:literal])+ $Bound:ident: $round:path, $fault:expr;)+) => {$(
        $(#[doc = $about])+
        pub enum $Bound {}

        impl Kind for $Bound {
            type Value = Second;
            const SHAPE: Shape = Shape::Moment;

            fn check(value: Value, faults: &mut Faults<'_>) -> Option<Second> {
                let second = $round(Moment::check(value, faults)?);
                checked(second.ok_or($fault), faults)
            }

            fn schema(generator: &mut SchemaGenerator) -> Value {
                Moment::schema(generator)
            }
        }

        impl Shown for $Bound {
            type Shown = Timestamp;

            fn show(value: &Second) -> Timestamp {
                value.moment()
            }
        }
    )+};
}

bounds! {
    /// The time from which on a link is valid. It is rounded up to a whole second: a link is never valid outside of
    /// the requested time.
    Since: Second::not_before, "must be after the beginning of 1970";
    /// The time until which a link is valid, rounded down to a whole second.
    Until: Second::at, IN_THE_FUTURE;
}

/// Tags, in ascending order and deduplicated.
pub enum Tags {}

impl Kind for Tags {
    type Value = Vec<String>;
    const SHAPE: Shape = Shape::List;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Vec<String>> {
        let values = list(value, faults, "a list")?;
        let check = |tag: &str| check_tag(tag).map(|()| tag.to_owned());
        let tags = items(&values, faults, check);
        let are_valid = tags.len() == values.len();
        let tags = normalized_tags(tags);
        if tags.len() > MAX_TAGS {
            faults.refuse(format!("must be at most {MAX_TAGS} different ones"));
            return None;
        }
        are_valid.then_some(tags)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        let tag = json!({ "type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARACTERS });
        json!({ "type": "array", "items": tag })
    }
}

/// The name of the query parameter with a click id.
pub enum ClickIdName {}

impl Kind for ClickIdName {
    type Value = String;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        let name = Name::<32>::check(value, faults)?;
        let checked = ClickParameter::check_name(&name);
        checked
            .map_err(|error| faults.refuse(error.to_string()))
            .ok()?;
        Some(name)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "string", "pattern": "^[-.0-9A-Z_a-z]{1,32}$", "examples": ["sl_click"] })
    }
}

/// The name of a short domain. Whether it is active depends on nginx.
pub enum ShortDomain {}

impl Kind for ShortDomain {
    type Value = String;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        let name = domain_name(&text(value, faults)?).filter(|name| name.len() <= MAX_DOMAIN_BYTES);
        expect(
            name,
            faults,
            "the name of a short domain, without scheme, port and path",
        )
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        let example = ["s.example.com"];
        json!({ "type": "string", "minLength": 1, "maxLength": MAX_DOMAIN_BYTES, "examples": example })
    }
}

/// The caller's own id of a link.
pub enum ExternalId {}

impl Kind for ExternalId {
    type Value = String;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        let text = text(value, faults)?;
        checked(check_external_id(&text), faults).map(|()| text)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": MAX_EXTERNAL_ID_BYTES })
    }
}

/// The note of a link; an empty note counts as absent.
pub enum Note {}

impl Kind for Note {
    type Value = String;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        let text = text(value, faults)?;
        checked(check_note(&text), faults).map(|()| text)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "string", "maxLength": MAX_NOTE_CHARACTERS })
    }

    fn is_null(value: &String) -> bool {
        value.is_empty()
    }
}

/// UTM parameters.
pub enum Utm {}

impl Kind for Utm {
    type Value = query::Utm;
    const SHAPE: Shape = Shape::Object;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<query::Utm> {
        let mut members = object(value, faults)?;
        let mut utm = query::Utm::default();
        for (name, place) in utm.members() {
            match members.remove(name) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) if !text.is_empty() => *place = Some(text),
                Some(_) => faults.refuse_at(name, "must be a string that is not empty"),
            }
        }
        for name in members.keys() {
            faults.refuse_at(name, "is not known");
        }
        Some(utm)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        let part = json!({ "type": ["string", "null"], "minLength": 1 });
        let names = query::Utm::MEMBERS.into_iter().map(str::to_owned);
        let properties: Map<String, Value> = names.map(|name| (name, part.clone())).collect();
        json!({ "type": "object", "properties": properties, "additionalProperties": false })
    }
}

/// Values for the parameters of a campaign. Their checks need the campaign.
pub enum Parameters {}

impl Kind for Parameters {
    type Value = Map<String, Value>;
    const SHAPE: Shape = Shape::Object;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Map<String, Value>> {
        object(value, faults)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({
            "type": "object",
            "maxProperties": MAX_PARAMETERS,
            "additionalProperties": { "type": "string" },
        })
    }
}

/// A strategy that issues codes.
pub enum Strategy {}

impl Kind for Strategy {
    type Value = StrategyName;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<StrategyName> {
        let name = text(value, faults)?;
        let must = format_args!("one of {}", StrategyName::NAMES);
        expect(name.parse().ok(), faults, must)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        of::<words::Strategy>(generator)
    }
}

/// The numbers of characters that a code may have: one, or the least and the most. Their bounds depend on the
/// strategy.
pub enum CodeLength {}

impl Kind for CodeLength {
    type Value = Value;
    const SHAPE: Shape = Shape::Length;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Value> {
        let must = "a number, or an object with the numbers min and max";
        let is_one = matches!(value, Value::Number(_) | Value::Object(_));
        expect(is_one.then_some(value), faults, must)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        let length = Length::schema(generator);
        let range = json!({
            "type": "object",
            "properties": { "min": length, "max": length },
            "required": ["min", "max"],
            "additionalProperties": false,
        });
        json!({ "anyOf": [length, range] })
    }
}

/// The requests whose links are accepted.
pub enum Deduplication {}

impl Kind for Deduplication {
    type Value = Dedupe;
    const SHAPE: Shape = Shape::Window;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Dedupe> {
        let mut members = match value {
            Value::Bool(true) => return Some(Dedupe::Always),
            Value::Bool(false) => return Some(Dedupe::Never),
            Value::Object(members) => members,
            _ => {
                let must = "true, false, or an object with the duration within";
                return expect(None, faults, must);
            }
        };
        let within = members.remove("within");
        let within = within.as_ref().and_then(Value::as_str).unwrap_or_default();
        let within = within.parse().map_err(|error: WindowError| {
            faults.refuse_at("within", error.to_string());
        });
        for name in members.keys() {
            faults.refuse_at(name, "is not known");
        }
        let within = within.ok().filter(|_| members.is_empty());
        within.map(Dedupe::Within)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        let within = json!({ "type": "string", "pattern": Window::PATTERN, "examples": ["1h"] });
        let window = json!({
            "type": "object",
            "properties": { "within": within },
            "required": ["within"],
            "additionalProperties": false,
        });
        json!({ "anyOf": [{ "type": "boolean" }, window] })
    }
}
