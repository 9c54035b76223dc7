//! Rules as the API has them.

use std::num::NonZeroU64;

use serde_json::{Map, Value, json};
use vocabulary::Validity;
use vocabulary::plan::{self, Condition, Device, Devices, Share, push_condition};

use super::coverage::covered_by;
use crate::link::{ParameterValues, Second};

/// The points of one percent.
pub const POINTS_OF_ONE: f64 = Share::WHOLE as f64 / 100.0;

/// The conditions of a rule, all of which a visitor must meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The device is one of these, if there are any.
    pub devices: Devices,
    /// The language that is asked for most is one of these, or a variety of one, if there are any.
    pub languages: Vec<String>,
    /// The country, or the region with its country, is one of these, if there are any.
    pub places: Vec<String>,
    /// Not before this second.
    pub since: Option<Second>,
    /// Not from this second on.
    pub until: Option<Second>,
    /// The query has this parameter, with this value if there is one.
    pub query: Option<(String, Option<String>)>,
    /// The number of points out of [`Share::WHOLE`] that are this rule's.
    pub points: Option<u16>,
    /// The name that visits by this rule carry.
    pub variant: Option<String>,
}

impl Conditions {
    /// Reports whether there is one that a visitor can fail to meet.
    pub fn is_any(&self) -> bool {
        let always = Self {
            variant: self.variant.clone(),
            ..Self::default()
        };
        *self != always
    }

    fn write(&self, from: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let (languages, places) = (self.languages.join(","), self.places.join(","));
        if self.devices != Devices::default() {
            push_condition(&mut out, &Condition::Device(self.devices));
        }
        if !languages.is_empty() {
            push_condition(&mut out, &Condition::Language(languages.as_bytes()));
        }
        if !places.is_empty() {
            push_condition(&mut out, &Condition::Country(places.as_bytes()));
        }
        if let Some(validity) = self.validity().filter(|it| *it != Validity::ALWAYS) {
            push_condition(&mut out, &Condition::Time(validity));
        }
        if let Some((name, value)) = &self.query {
            let (name, value) = (encoded(name), value.as_deref().map(encoded));
            let value = value.as_deref().map(str::as_bytes);
            push_condition(&mut out, &Condition::Query(name.as_bytes(), value));
        }
        if let Some(points) = self.points {
            let share = Share {
                group: 0,
                from,
                until: from.saturating_add(points),
            };
            push_condition(&mut out, &Condition::Share(share));
        }
        if let Some(variant) = &self.variant {
            push_condition(&mut out, &Condition::Variant(variant.as_bytes()));
        }
        out
    }

    /// The period; `None` if it would end before it begins.
    fn validity(&self) -> Option<Validity> {
        let bound = |second: Option<Second>| second.map(Second::non_zero);
        Validity::new(bound(self.since), bound(self.until))
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// All of them must be met.
    pub conditions: Conditions,
    /// The target; of a campaign, its template.
    pub target: String,
}

impl Rule {
    /// Reports whether it is for a share of all visitors, and has no other condition.
    pub fn is_share(&self) -> bool {
        let share = Conditions {
            points: self.conditions.points,
            variant: self.conditions.variant.clone(),
            ..Conditions::default()
        };
        share.points.is_some() && share == self.conditions
    }

    /// Its members by the API's names, without the conditions that it has not; `shown` makes the text of its target.
    pub fn members(&self, shown: impl Fn(&str) -> String) -> Map<String, Value> {
        let conditions = &self.conditions;
        let devices: Vec<&str> = conditions.devices.iter().map(Device::name).collect();
        let list = |list: &[String]| (!list.is_empty()).then(|| json!(list));
        let query = conditions.query.as_ref().map(|(name, value)| match value {
            None => json!({ "name": name }),
            Some(value) => json!({ "name": name, "value": value }),
        });
        let percent = conditions.points.map(|it| f64::from(it) / POINTS_OF_ONE);
        let members = [
            ("device", (!devices.is_empty()).then(|| json!(devices))),
            ("language", list(&conditions.languages)),
            ("country", list(&conditions.places)),
            ("validSince", conditions.since.map(|it| json!(it.moment()))),
            ("validUntil", conditions.until.map(|it| json!(it.moment()))),
            ("query", query),
            ("percent", percent.map(|it| json!(it))),
            ("variant", conditions.variant.as_ref().map(|it| json!(it))),
            ("longUrl", Some(json!(shown(&self.target)))),
        ];
        let members = members.into_iter();
        members
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }

    pub(super) fn to_section(&self, from: u16) -> Vec<u8> {
        let mut text = self.conditions.write(from);
        text.push(b' ');
        text.extend_from_slice(self.target.as_bytes());
        text
    }

    /// Reads a rule of a record.
    pub fn of_record(rule: plan::Rule<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let list = |bytes: &[u8]| text(bytes).split(',').map(str::to_owned).collect();
        let second = |bound: Option<std::num::NonZeroU64>| {
            let moment = jiff::Timestamp::from_second(bound?.get().cast_signed()).ok()?;
            Second::at(moment)
        };
        let mut conditions = Conditions::default();
        for condition in rule.conditions.into_iter().flatten() {
            match condition {
                Condition::Device(devices) => conditions.devices = devices,
                Condition::Language(languages) => conditions.languages = list(languages),
                Condition::Country(places) => conditions.places = list(places),
                Condition::Time(validity) => {
                    conditions.since = second(validity.since());
                    conditions.until = second(validity.until());
                }
                Condition::Query(name, value) => {
                    let name = decoded(text(name));
                    conditions.query = Some((name, value.map(|it| decoded(text(it)))));
                }
                Condition::Share(share) => conditions.points = Some(share.until - share.from),
                Condition::Variant(name) => conditions.variant = Some(text(name)),
            }
        }
        Self {
            conditions,
            target: text(rule.target),
        }
    }
}

/// Reason for the refusal of a rule among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It has no condition that a visitor can fail to meet.
    #[error(
        "must have a condition besides variant: it would match every visitor and hide what follows"
    )]
    Always,
    /// The earlier rules up to this one take all its visitors.
    #[error("can never match: its visitors follow /rules/{0} or an earlier rule")]
    Covered(usize),
    /// It would end before it begins.
    #[error("must be later than validSince")]
    NeverValid,
    /// It would end before the link or campaign begins.
    #[error("must be later than validSince of the link or campaign: the rule could never match")]
    BeforeAll,
    /// It would begin after the link or campaign has ended.
    #[error("must be before validUntil of the link or campaign: the rule could never match")]
    AfterAll,
    /// The shares have a sum over 100 percent.
    #[error("must leave the percents of all rules at most 100 together")]
    Over,
}

impl RuleError {
    /// The member of the rule that is at fault, if it is one.
    pub fn member(self) -> Option<&'static str> {
        match self {
            Self::Always | Self::Covered(_) => None,
            Self::NeverValid | Self::BeforeAll => Some("validUntil"),
            Self::AfterAll => Some("validSince"),
            Self::Over => Some("percent"),
        }
    }
}

/// Checks that the period of a rule has a part in that of its link or campaign.
pub(super) fn check_period(conditions: &Conditions, of_all: Validity) -> Result<(), RuleError> {
    let bound = |second: Option<Second>| second.map(Second::non_zero);
    let is_apart = |until: Option<NonZeroU64>, since: Option<NonZeroU64>| {
        until
            .zip(since)
            .is_some_and(|(until, since)| until <= since)
    };
    if is_apart(bound(conditions.until), of_all.since()) {
        return Err(RuleError::BeforeAll);
    }
    if is_apart(of_all.until(), bound(conditions.since)) {
        return Err(RuleError::AfterAll);
    }
    Ok(())
}

/// Checks the conditions of rules, in their order; returns the faults with the places of their rules.
pub fn check_rules(rules: &[&Conditions]) -> Vec<(usize, RuleError)> {
    let mut faults = Vec::new();
    let mut from: u16 = 0;
    for (place, conditions) in rules.iter().enumerate() {
        let mut fault = |error| faults.push((place, error));
        if !conditions.is_any() {
            fault(RuleError::Always);
        }
        if conditions.validity().is_none() {
            fault(RuleError::NeverValid);
        }
        if let Some(earlier) = covered_by(&rules[..place], conditions) {
            fault(RuleError::Covered(earlier));
        }
        let points = conditions.points.unwrap_or_default();
        if from.saturating_add(points) > Share::WHOLE {
            fault(RuleError::Over);
        } else {
            from += points;
        }
    }
    faults
}

/// A text with escapes for all but unreserved characters; empty for one that can't be in a URL.
fn encoded(text: &str) -> String {
    let encoded = ParameterValues::encode(&[text]);
    encoded.map_or_else(|_error| String::new(), |it| it.as_str().to_owned())
}

fn decoded(text: String) -> String {
    let values = ParameterValues::from_stored(text).decoded();
    values.into_iter().next().unwrap_or_default()
}
