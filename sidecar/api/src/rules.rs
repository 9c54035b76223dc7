//! Rules for some visitors, targets instead of 410 and 404, and previews.

use std::borrow::Cow;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use shortlink_core::plan::{Conditions, POINTS_OF_ONE, Plan, Rule, check_rules};
use vocabulary::Instead;
use vocabulary::plan::{Condition, Device, Devices, MAX_RULES, MAX_VARIANT_LENGTH, Share};

use super::faults::Faults;
use super::fields::Fields;
use super::kinds::link::{LongUrl, Since, Until};
use super::kinds::{Kind, Shape, expect, items, list, object, text};
use super::members::{Emptied, Members, Optional, Required, Usage, members, request};
use super::preview::{PreviewBody, PreviewOf};
use super::schema::of;
use super::variants::Variants;

members! {
    /// Rules and targets instead of answers, for new links and campaigns and for changes.
    pub struct PlanMembers {
        /// Rules, at most 20: a visitor follows the first rule whose conditions are all met, else `longUrl`. A change
        /// replaces all rules. Not for a link of a campaign, whose campaign has them.
        rules: Emptied<Rules> = "rules",
        /// Variants of an A/B test, at most 20: rules with a share of all visitors by weight, after all other rules.
        /// They replace earlier rules of this kind, and answers show them in `rules`. `null` removes them.
        variants: Emptied<Variants> = "variants",
        /// Target (302) instead of 410 after the expiry.
        expired_target: Optional<LongUrl> = "expiredTarget",
        /// Target (302) instead of 410 during a pause.
        paused_target: Optional<LongUrl> = "pausedTarget",
        /// Target (302) instead of 404 before the start of validity.
        not_yet_target: Optional<LongUrl> = "notYetTarget",
        /// Preview in messengers: a page with title, description and image, instead of the redirect. A change replaces
        /// all of it. Not for a link of a campaign, whose campaign has it.
        preview: Optional<PreviewOf> = "preview",
    }
}

members! {
    /// A rule: at least one condition besides `variant`, and a target.
    pub struct RuleMembers {
        /// Kinds of devices: the visitor's user agent is that of one of them.
        device: Optional<DeviceNames> = "device",
        /// Language tags: the language that the visitor prefers most is one of them, or a variety of one, as de-AT is
        /// of de.
        language: Optional<Languages> = "language",
        /// Countries such as DE, or regions such as US-CA, one of which the visitor is in. Needs `shortlink_country` of
        /// nginx.
        country: Optional<Places> = "country",
        /// Start of the time of the rule, rounded up to a whole second.
        valid_since: Optional<Since> = "validSince",
        /// End of the time of the rule, rounded down to a whole second.
        valid_until: Optional<Until> = "validUntil",
        /// Parameter that the visitor's query has; with `value`, the parameter has that value.
        query: Optional<QueryParameter> = "query",
        /// Share of all visitors, more than 0, with at most two decimals. A visitor is always in the same share. The shares
        /// of the rules of a link do not overlap; their sum is at most 100.
        percent: Optional<Percent> = "percent",
        /// Name that visits by this rule carry.
        variant: Optional<Variant> = "variant",
        /// Target of the rule, with the requirements for that of the link or the campaign.
        long_url: Required<LongUrl> = "longUrl",
    }
}

request! {
    /// A rule. It needs at least one condition besides `variant`, all of which a visitor must meet.
    pub NewRule: New, required ["longUrl"], of RuleMembers
}

/// A rule whose target is not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenRule {
    /// Its conditions.
    pub conditions: Conditions,
    /// The target, as it was given.
    pub long_url: String,
}

/// Reads a list of objects that become rules, each by a function that returns `None` if it has noted a fault.
pub(super) fn objects<T>(
    value: Value,
    faults: &mut Faults<'_>,
    what: &str,
    mut read: impl FnMut(&mut Fields) -> Option<T>,
) -> Option<Vec<T>> {
    let values = list(value, faults, &format!("a list of {what}"))?;
    if values.len() > MAX_RULES {
        faults.refuse(format!("must be at most {MAX_RULES} {what}"));
        return None;
    }
    let count = values.len();
    let mut objects = Vec::with_capacity(count);
    for (place, value) in values.into_iter().enumerate() {
        let Value::Object(members) = value else {
            faults.refuse_at(&place.to_string(), "must be an object");
            continue;
        };
        objects.extend(faults.within_item(place, members, &mut read));
    }
    (objects.len() == count).then_some(objects)
}

/// Rules, in their order.
pub enum Rules {}

impl Kind for Rules {
    type Value = Vec<GivenRule>;
    const SHAPE: Shape = Shape::Json;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Vec<GivenRule>> {
        let rules = objects(value, faults, "rules", read_rule)?;
        let conditions: Vec<&Conditions> = rules.iter().map(|rule| &rule.conditions).collect();
        let wrong = check_rules(&conditions);
        for (place, error) in &wrong {
            let place = place.to_string();
            let path: Vec<&str> = std::iter::once(&*place).chain(error.member()).collect();
            faults.refuse_within(&path, error.to_string());
        }
        wrong.is_empty().then_some(rules)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        let rule = of::<NewRule>(generator);
        json!({ "type": "array", "items": rule, "maxItems": MAX_RULES })
    }
}

/// Reads a rule; `None` if a fault was noted.
fn read_rule(fields: &mut Fields) -> Option<GivenRule> {
    let given = RuleMembers::read(fields, Usage::New);
    let long_url = fields.required("longUrl", given.long_url);
    if !fields.is_faultless() {
        return None;
    }
    Some(GivenRule {
        conditions: Conditions {
            devices: given.device.flatten().unwrap_or_default(),
            languages: given.language.flatten().unwrap_or_default(),
            places: given.country.flatten().unwrap_or_default(),
            since: given.valid_since.flatten(),
            until: given.valid_until.flatten(),
            query: given.query.flatten(),
            points: given.percent.flatten(),
            variant: given.variant.flatten(),
        },
        long_url: long_url?,
    })
}

/// Reads a list of at least one text, each of which a condition can have.
fn texts_of(
    value: Value,
    faults: &mut Faults<'_>,
    must: &str,
    check: impl Fn(&str) -> bool,
) -> Option<Vec<String>> {
    let values = list(value, faults, "a list")?;
    if values.is_empty() {
        faults.refuse("must not be empty");
        return None;
    }
    let checked = items(&values, faults, |text| match check(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("must be {must}")),
    });
    (checked.len() == values.len()).then_some(checked)
}

/// Reports whether a text is a condition of one value.
fn is_condition(letter: &str, text: &str) -> bool {
    !text.contains(',') && Condition::parse(format!("{letter}={text}").as_bytes()).is_some()
}

/// Reports whether a text is a country, or a region with its country.
pub fn is_place(text: &str) -> bool {
    is_condition("c", text)
}

/// Kinds of devices.
pub enum DeviceNames {}

impl Kind for DeviceNames {
    type Value = Devices;
    const SHAPE: Shape = Shape::List;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Devices> {
        let names = Device::ALL.map(|(_, name, _)| name).join(", ");
        let is_known = |name: &str| Device::from_name(name).is_some();
        let names = texts_of(value, faults, &format!("one of {names}"), is_known)?;
        let devices = names.iter().filter_map(|name| Device::from_name(name));
        Some(devices.fold(Devices::default(), Devices::with))
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        let names = Device::ALL.map(|(_, name, _)| name);
        let name = json!({ "type": "string", "enum": names });
        json!({ "type": "array", "items": name, "minItems": 1 })
    }
}

/// Declares kinds of lists of texts: the letter of their condition, what each must be, its pattern and examples.
macro_rules! texts_of_condition {
    ($($(#[doc = $about:literal])+ $List:ident: $letter:literal, $must:literal, $pattern:literal, $examples:expr;)+) => {$(
        $(#[doc = $about])+
        pub enum $List {}

        impl Kind for $List {
            type Value = Vec<String>;
            const SHAPE: Shape = Shape::List;

            fn check(value: Value, faults: &mut Faults<'_>) -> Option<Vec<String>> {
                texts_of(value, faults, $must, |text| is_condition($letter, text))
            }

            fn schema(_: &mut SchemaGenerator) -> Value {
                let text = json!({ "type": "string", "pattern": $pattern, "examples": $examples });
                json!({ "type": "array", "items": text, "minItems": 1 })
            }
        }
    )+};
}

texts_of_condition! {
    /// Languages.
    Languages: "l", "a language tag such as de or pt-BR", "^[0-9A-Za-z]{2,8}(-[0-9A-Za-z]{1,8})*$", ["de", "pt-BR"];
    /// Countries and regions.
    Places: "c", "a country such as DE, or a region such as US-CA, in capitals", "^[A-Z]{2}(-[0-9A-Za-z]{1,3})?$",
        ["DE", "US-CA"];
}

/// The most bytes of the name or the value of a parameter.
const MAX_QUERY_LENGTH: usize = 256;

/// A parameter of the query, with a value or with any.
pub enum QueryParameter {}

impl Kind for QueryParameter {
    type Value = (String, Option<String>);
    const SHAPE: Shape = Shape::Object;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Self::Value> {
        let mut members = object(value, faults)?;
        let must = format!(
            "must be a string of 1 to {MAX_QUERY_LENGTH} bytes without control characters, other \
             than . and .."
        );
        // A record can have no others.
        let is_fine = |text: &String| {
            text.len() <= MAX_QUERY_LENGTH
                && !text.chars().any(char::is_control)
                && !matches!(&**text, "." | "..")
        };
        let name = match members.remove("name") {
            Some(Value::String(name)) if !name.is_empty() && is_fine(&name) => Some(name),
            _ => {
                faults.refuse_at("name", must.clone());
                None
            }
        };
        let value = match members.remove("value") {
            None | Some(Value::Null) => Some(None),
            Some(Value::String(value)) if is_fine(&value) => Some(Some(value)),
            Some(_) => {
                faults.refuse_at("value", must);
                None
            }
        };
        for name in members.keys() {
            faults.refuse_at(name, "is not known");
        }
        name.zip(value).filter(|_| members.is_empty())
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": MAX_QUERY_LENGTH },
                "value": { "type": ["string", "null"], "maxLength": MAX_QUERY_LENGTH },
            },
            "required": ["name"],
            "additionalProperties": false,
        })
    }
}

/// A share in percent, as a number of points.
pub enum Percent {}

impl Kind for Percent {
    type Value = u16;
    const SHAPE: Shape = Shape::Number;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<u16> {
        let points = value.as_f64().map(|percent| percent * POINTS_OF_ONE);
        let points = points.filter(|points| (points - points.round()).abs() < 1e-6);
        let points = points.map(|points| points.round() as u16);
        let points = points.filter(|points| (1..=Share::WHOLE).contains(points));
        let must = "a number over 0, up to 100, with at most two decimals";
        expect(points, faults, must)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "number", "minimum": 0.01, "maximum": 100 })
    }
}

/// The name of a variant.
pub enum Variant {}

impl Kind for Variant {
    type Value = String;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        let name = text(value, faults)?;
        let is_name = is_condition("v", &name);
        let must = format_args!("1 to {MAX_VARIANT_LENGTH} ASCII letters, digits, - or _");
        expect(is_name.then_some(name), faults, must)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "string", "pattern": "^[-0-9A-Z_a-z]{1,32}$" })
    }
}

/// Rules and targets instead of answers, in an answer; absent members are not set.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Plan")]
pub struct PlanBody {
    /// Rules; the visitor follows the first one that matches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<RuleBody>,
    /// Target instead of 410 after the expiry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    expired_target: Option<String>,
    /// Target instead of 410 during a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    paused_target: Option<String>,
    /// Target instead of 404 before the start of validity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    not_yet_target: Option<String>,
    /// Preview in messengers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PreviewBody")]
    preview: Option<PreviewBody>,
}

/// A rule in an answer, without the conditions that it has not.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct RuleBody(Map<String, Value>);

impl JsonSchema for RuleBody {
    fn schema_name() -> Cow<'static, str> {
        RuleOfAnswer::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        RuleOfAnswer::json_schema(generator)
    }
}

/// The schema of a rule in an answer.
#[derive(JsonSchema)]
#[schemars(rename = "Rule", rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the members, which the core writes")]
struct RuleOfAnswer {
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    device: Vec<&'static str>,
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    language: Vec<String>,
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    country: Vec<String>,
    #[schemars(with = "Timestamp", skip_serializing_if = "Option::is_none")]
    valid_since: Option<Timestamp>,
    #[schemars(with = "Timestamp", skip_serializing_if = "Option::is_none")]
    valid_until: Option<Timestamp>,
    #[schemars(with = "QueryBody", skip_serializing_if = "Option::is_none")]
    query: Option<QueryBody>,
    #[schemars(with = "f64", skip_serializing_if = "Option::is_none")]
    percent: Option<f64>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    long_url: String,
}

/// A parameter of the query in an answer.
#[derive(JsonSchema)]
#[schemars(rename = "RuleQuery")]
#[expect(dead_code, reason = "describes the members, which the core writes")]
struct QueryBody {
    name: String,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

impl PlanBody {
    /// Describes a plan; `shown` makes the text of a target.
    pub fn of(plan: Option<&Plan>, shown: impl Fn(&str) -> String) -> Self {
        let Some(plan) = plan else {
            return Self::default();
        };
        let [expired_target, paused_target, not_yet_target] =
            Instead::ALL.map(|of| plan.instead(of).map(&shown));
        let rules = plan.rules();
        Self {
            rules: rules
                .iter()
                .map(|rule| RuleBody::of(rule, &shown))
                .collect(),
            expired_target,
            paused_target,
            not_yet_target,
            preview: plan.preview().map(PreviewBody::of),
        }
    }
}

impl RuleBody {
    /// Describes a rule; `shown` makes the text of its target.
    pub fn of(rule: &Rule, shown: impl Fn(&str) -> String) -> Self {
        Self(rule.members(shown))
    }
}
