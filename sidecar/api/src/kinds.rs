//! The kinds of members: how a value is checked, and its schema.

pub mod link;
mod rfc3339;

use std::fmt::Display;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::str::FromStr;

use jiff::Timestamp;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use shortlink_core::link::Window;
use vocabulary::RedirectStatus;

use super::faults::Faults;
use super::schema::of;
use super::words;

/// The largest integer that every JSON parser represents exactly.
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// A kind of value that a member has.
pub trait Kind {
    /// A checked value.
    type Value;

    /// The form of a value in CSV and on the command line.
    const SHAPE: Shape;

    /// The allowed values, separated by commas, where a command lists them; else none.
    const CHOICES: &'static str = "";

    /// The fault of a `null` where there must be a value.
    const NOT_NULL: &'static str = "must not be null";

    /// Checks a value; returns `None` and notes the faults if it is invalid.
    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Self::Value>;

    /// The schema of a value, without a description.
    fn schema(generator: &mut SchemaGenerator) -> Value;

    /// Returns whether a value has the meaning of `null`.
    fn is_null(_value: &Self::Value) -> bool {
        false
    }
}

/// A kind of value that answers contain as well.
pub trait Shown: Kind {
    /// The value in an answer.
    type Shown: Serialize + JsonSchema;

    /// Makes it.
    fn show(value: &Self::Value) -> Self::Shown;
}

/// Declares that answers contain values of a kind unchanged.
macro_rules! shown_as_is {
    ($($kind:ty),*) => {$(
        impl $crate::kinds::Shown for $kind {
            type Shown = Self::Value;

            fn show(value: &Self::Value) -> Self::Shown {
                value.clone()
            }
        }
    )*};
}
use shown_as_is;

shown_as_is!(Truth, Count);

/// Declares kinds of texts whose validation depends on more than the request.
macro_rules! texts {
    ($($(#[doc = $about:literal])* $kind:ident: |$generator:pat_param| $schema:expr;)*) => {$(
        $(#[doc = $about])*
        pub enum $kind {}

        impl $crate::kinds::Kind for $kind {
            type Value = String;
            const SHAPE: Shape = Shape::Text;
            const NOT_NULL: &'static str = "must be a string";

            fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
                $crate::kinds::text(value, faults)
            }

            fn schema($generator: &mut SchemaGenerator) -> Value {
                $schema
            }
        }
    )*};
}
pub(super) use texts;

texts! {
    /// A text.
    Text: |_| json!({ "type": "string" });
}

/// The form of a value in CSV and on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A text.
    Text,
    /// A whole number.
    Number,
    /// True or false.
    Truth,
    /// A time.
    Moment,
    /// A number of characters: a whole number, or two on the command line.
    Length,
    /// True, false, or a duration.
    Window,
    /// Texts, separated by `|` in CSV.
    List,
    /// Named values: in CSV, one column per value, `member.name`.
    Object,
    /// Any value, as JSON.
    Json,
}

impl Shape {
    /// Reads a value of CSV as JSON.
    ///
    /// # Errors
    /// The form that it must have.
    pub fn of_csv(self, text: &str) -> Result<Value, &'static str> {
        match self {
            Self::Number | Self::Length => {
                let number: Result<u64, _> = text.trim().parse();
                number.map(Value::from).map_err(|_error| "a whole number")
            }
            Self::Truth => match text.trim() {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err("true or false"),
            },
            Self::Window => {
                let text = text.trim();
                let window = || {
                    text.parse()
                        .ok()
                        .map(|window: Window| json!({ "within": window.to_string() }))
                };
                let truth = Self::Truth.of_csv(text).ok();
                truth
                    .or_else(window)
                    .ok_or("true, false or a duration such as 1h")
            }
            Self::List => {
                let items = text.split('|').map(str::trim);
                Ok(items.filter(|it| !it.is_empty()).map(Value::from).collect())
            }
            Self::Json => serde_json::from_str(text).map_err(|_error| "JSON"),
            Self::Text | Self::Moment | Self::Object => Ok(Value::from(text)),
        }
    }
}

/// Returns the value, or notes the requirement that it violates.
pub(super) fn expect<T>(
    found: Option<T>,
    faults: &mut Faults<'_>,
    must: impl Display,
) -> Option<T> {
    if found.is_none() {
        faults.refuse(format!("must be {must}"));
    }
    found
}

/// Returns a checked value, or notes the reason why it is invalid.
fn checked<T, E: ToString>(checked: Result<T, E>, faults: &mut Faults<'_>) -> Option<T> {
    checked
        .map_err(|error| faults.refuse(error.to_string()))
        .ok()
}

/// Reads an integer, including one written with a zero fraction, which JSON does not distinguish.
/// Rejects large ones of that form: parsing may have rounded them.
pub fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        let is_whole = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        is_whole.then_some(number as u64)
    })
}

pub(super) fn text(value: Value, faults: &mut Faults<'_>) -> Option<String> {
    let text = match value {
        Value::String(text) => Some(text),
        _ => None,
    };
    expect(text, faults, "a string")
}

pub(super) fn object(value: Value, faults: &mut Faults<'_>) -> Option<Map<String, Value>> {
    let members = match value {
        Value::Object(members) => Some(members),
        _ => None,
    };
    expect(members, faults, "an object")
}

pub(super) fn list(value: Value, faults: &mut Faults<'_>, must: &str) -> Option<Vec<Value>> {
    let values = match value {
        Value::Array(values) => Some(values),
        _ => None,
    };
    expect(values, faults, must)
}

/// Checks each item of a list and notes each fault at the item's index; returns the valid ones.
pub(super) fn items<T, E: ToString>(
    values: &[Value],
    faults: &mut Faults<'_>,
    check: impl Fn(&str) -> Result<T, E>,
) -> Vec<T> {
    let mut items = Vec::with_capacity(values.len());
    for (place, value) in values.iter().enumerate() {
        let checked = match value.as_str() {
            Some(text) => check(text).map_err(|error| error.to_string()),
            None => Err("must be a string".to_owned()),
        };
        match checked {
            Ok(item) => items.push(item),
            Err(detail) => faults.refuse_at(&place.to_string(), detail),
        }
    }
    items
}

/// A text of at most so many characters, none of them a control character.
pub enum ShortText<const MOST: usize> {}

impl<const MOST: usize> Kind for ShortText<MOST> {
    type Value = String;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        let text = text(value, faults)?;
        if text.chars().count() > MOST {
            faults.refuse(format!("must have at most {MOST} characters"));
            return None;
        }
        if text.chars().any(|c| c.is_control() && c != '\n') {
            faults.refuse("must not contain control characters");
            return None;
        }
        Some(text)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "string", "maxLength": MOST })
    }
}

/// A short text that shows something.
pub enum Name<const MOST: usize> {}

impl<const MOST: usize> Kind for Name<MOST> {
    type Value = String;
    const SHAPE: Shape = Shape::Text;
    const NOT_NULL: &'static str = "must be a string";

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        let name = ShortText::<MOST>::check(value, faults)?;
        if name.trim().is_empty() {
            faults.refuse("must not be empty");
            return None;
        }
        Some(name)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": MOST })
    }
}

/// True or false.
pub enum Truth {}

impl Kind for Truth {
    type Value = bool;
    const SHAPE: Shape = Shape::Truth;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<bool> {
        expect(value.as_bool(), faults, "true or false")
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "boolean" })
    }
}

/// A number of things, at least one.
pub enum Count {}

impl Kind for Count {
    type Value = NonZeroU64;
    const SHAPE: Shape = Shape::Number;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<NonZeroU64> {
        let count = whole(&value).filter(|&count| count <= MAX_COUNT);
        let count = count.and_then(NonZeroU64::new);
        let must = format_args!("a whole number from 1 to {MAX_COUNT}");
        expect(count, faults, must)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_COUNT })
    }
}

/// A whole number within bounds.
pub enum Number<const LEAST: u32, const MOST: u32> {}

impl<const LEAST: u32, const MOST: u32> Kind for Number<LEAST, MOST> {
    type Value = u32;
    const SHAPE: Shape = Shape::Number;
    const NOT_NULL: &'static str = "is required";

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<u32> {
        let number = whole(&value).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| (LEAST..=MOST).contains(number));
        let must = format_args!("a whole number from {LEAST} to {MOST}");
        expect(number, faults, must)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "integer", "minimum": LEAST, "maximum": MOST })
    }
}

/// A number of characters of a code.
pub type Length = Number<1, { vocabulary::BodyLengths::LONGEST as u32 }>;

/// The status of a redirect.
pub enum Status {}

impl Kind for Status {
    type Value = RedirectStatus;
    const SHAPE: Shape = Shape::Number;
    const CHOICES: &'static str = RedirectStatus::CODES;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<RedirectStatus> {
        let code = whole(&value).and_then(|code| u16::try_from(code).ok());
        let must = format_args!("one of {}", RedirectStatus::CODES);
        expect(code.and_then(RedirectStatus::from_code), faults, must)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        of::<words::RedirectStatus>(generator)
    }
}

impl Shown for Status {
    type Shown = words::RedirectStatus;

    fn show(value: &RedirectStatus) -> words::RedirectStatus {
        words::RedirectStatus(value.code())
    }
}

/// A time.
pub enum Moment {}

impl Kind for Moment {
    type Value = Timestamp;
    const SHAPE: Shape = Shape::Moment;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Timestamp> {
        let moment = rfc3339::parse(&text(value, faults)?);
        expect(moment, faults, "a date and time like 2030-12-31T23:59:59Z")
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        let example = ["2030-12-31T23:59:59Z"];
        json!({ "type": "string", "format": "date-time", "examples": example })
    }
}

/// A list of texts that can be parsed; `W` is their schema.
pub struct List<T, W>(PhantomData<(T, W)>);

impl<T: FromStr<Err: ToString>, W: JsonSchema> Kind for List<T, W> {
    type Value = Vec<T>;
    const SHAPE: Shape = Shape::List;
    const NOT_NULL: &'static str = "must be a list of strings";

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Vec<T>> {
        let values = list(value, faults, "a list of strings")?;
        let items = items(&values, faults, T::from_str);
        (items.len() == values.len()).then_some(items)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        json!({ "type": "array", "minItems": 1, "items": of::<W>(generator) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_however_they_are_written() {
        for (text, number) in [
            ("0", Some(0)),
            ("7.0", Some(7)),
            ("7e0", Some(7)),
            ("9007199254740991", Some(MAX_COUNT)),
            ("4294967295.0", Some(u32::MAX.into())),
            ("9007199254740991.0", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("1e300", None),
            ("7.5", None),
            ("-1", None),
            ("-1.0", None),
            ("\"7\"", None),
        ] {
            let value = serde_json::from_str(text).expect("JSON");
            assert_eq!(whole(&value), number, "{text}");
        }
    }
}
