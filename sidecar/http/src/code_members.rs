//! The issuing of codes: the members `strategy` and `codeLength`.

use serde_json::Value;
use shortlink_api::fields::Fields;
use shortlink_api::kinds::whole;
use shortlink_core::api_key::KeyPolicy;
use shortlink_core::codes::strategy::StrategyName;

/// Options of a request for issuing codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenCodes {
    /// The strategy.
    pub(super) strategy: Option<StrategyName>,
    /// The minimum and the maximum number of characters before the check character.
    pub(super) lengths: Option<(u8, u8)>,
}

/// Checks the options; `default` is the strategy if none is specified.
pub(super) fn check_codes(
    fields: &mut Fields,
    strategy: Option<StrategyName>,
    lengths: Option<Value>,
    default: StrategyName,
    allowed: &KeyPolicy,
) -> GivenCodes {
    if let Some(strategy) = strategy
        && let Err(error) = allowed.check_strategy(strategy)
    {
        fields.refuse("strategy", error.to_string());
    }
    // The bounds of the length follow from the strategy, which is unknown if it has a fault of its own.
    let is_unknown = strategy.is_none() && fields.is_refused("strategy");
    let lengths = lengths.filter(|_| !is_unknown);
    let lengths = lengths.and_then(|it| check_lengths(fields, it, strategy.unwrap_or(default)));
    if let Some((shortest, longest)) = lengths {
        let mut checks = [shortest, longest]
            .map(|it| allowed.check_body_length(it))
            .into_iter();
        if let Some(error) = checks.find_map(Result::err) {
            fields.refuse("codeLength", error.to_string());
        }
    }
    GivenCodes { strategy, lengths }
}

/// Reads a number of characters, or a minimum and a maximum, without the check character.
fn check_lengths(fields: &mut Fields, value: Value, strategy: StrategyName) -> Option<(u8, u8)> {
    let (least, most) = strategy.lengths();
    let allowed =
        format!("must be a whole number from {least} to {most} with the strategy {strategy}");
    let within = |value: &Value| {
        let length = u8::try_from(whole(value)?).ok()?;
        (least..=most).contains(&length).then_some(length)
    };
    let mut members = match value {
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
