//! How codes are come up with: the members `strategy` and `codeLength`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::fields::{Fields, Member, whole};
use crate::core::api_key::KeyPolicy;
use crate::core::codes::strategy::StrategyName;

/// What is said of how codes are come up with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SaidOfCodes {
    /// The way.
    pub(super) strategy: Option<StrategyName>,
    /// The least and the most characters before the check character.
    pub(super) lengths: Option<(u8, u8)>,
}

/// A `codeLength` as clients see it.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "CodeLength")]
pub(super) enum CodeLengthBody {
    /// One length.
    One(u8),
    /// Several.
    Between {
        /// The least.
        min: u8,
        /// The most.
        max: u8,
    },
}

impl CodeLengthBody {
    pub(super) fn new((min, max): (u8, u8)) -> Self {
        if min == max {
            Self::One(min)
        } else {
            Self::Between { min, max }
        }
    }
}

/// Reads what is said, where `default` is the strategy if none is; `None` when that is none.
pub(super) fn read_code_members(
    fields: &mut Fields,
    default: StrategyName,
    allowed: &KeyPolicy,
) -> Option<SaidOfCodes> {
    let strategy = match fields.text("strategy") {
        Member::Value(name) => match name.parse() {
            Ok(strategy) => {
                if let Err(error) = allowed.check_strategy(strategy) {
                    fields.refuse("strategy", error.to_string());
                }
                Some(strategy)
            }
            Err(_unknown) => {
                fields.refuse(
                    "strategy",
                    format!("must be one of {}", StrategyName::NAMES),
                );
                // How long its codes could be is not known either.
                fields.ignore("codeLength");
                return None;
            }
        },
        Member::Absent | Member::Null => None,
    };
    let lengths = read_lengths(fields, strategy.unwrap_or(default));
    if let Some((shortest, longest)) = lengths {
        for length in [shortest, longest] {
            if let Err(error) = allowed.check_body_length(length) {
                fields.refuse("codeLength", error.to_string());
                break;
            }
        }
    }
    Some(SaidOfCodes { strategy, lengths })
}

/// Reads a number, or the least and the most: without the check character.
fn read_lengths(fields: &mut Fields, strategy: StrategyName) -> Option<(u8, u8)> {
    let must = "a number, or an object with the numbers min and max";
    let value = fields.member("codeLength", must, |value| match value {
        Value::Number(_) | Value::Object(_) => Some(value),
        _ => None,
    });
    let (least, most) = strategy.lengths();
    let allowed =
        format!("must be a whole number from {least} to {most} with the strategy {strategy}");
    let within = |value: &Value| {
        let length = u8::try_from(whole(value)?).ok()?;
        (least..=most).contains(&length).then_some(length)
    };
    let mut members = match value.value()? {
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
