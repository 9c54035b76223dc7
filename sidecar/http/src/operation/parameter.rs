//! Parameters of requests. Each is declared where it is read.

use std::borrow::Cow;

use schemars::SchemaGenerator;
use serde_json::{Value, json};
pub(crate) use shortlink_api::schema::of;

/// A parameter of requests, to which all operations refer by its key.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) key: &'static str,
    pub(crate) place: &'static str,
    /// The parameter's name in requests.
    pub(crate) name: &'static str,
    /// Set if a request must have it.
    pub(crate) is_required: bool,
    pub(crate) text: fn() -> Cow<'static, str>,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Value,
}

/// Declares parameters: place, `required` if a request must have it, name in requests, key, description and schema. Those of
/// paths are always required.
macro_rules! parameters {
    ($($visibility:vis $constant:ident: $place:ident $($required:ident)? $name:literal, $key:literal, $text:expr, $schema:expr;)*) => {
        $(
            #[doc = $key]
            $visibility const $constant: $crate::operation::parameter::Parameter =
                $crate::operation::parameter::Parameter {
                    key: $key,
                    place: stringify!($place),
                    name: $name,
                    is_required: !concat!($(stringify!($required))?).is_empty(),
                    text: || ($text).into(),
                    schema: $schema,
                };
        )*
    };
}
pub(crate) use parameters;

impl Parameter {
    /// Describes it for OpenAPI.
    pub(super) fn describe(&self, generator: &mut SchemaGenerator) -> Value {
        let schema = (self.schema)(generator);
        let text = (self.text)();
        let mut parameter = json!({ "name": self.name, "in": self.place, "description": text });
        if self.is_required || self.place == "path" {
            parameter["required"] = json!(true);
        }
        if schema["type"] == "array" {
            parameter["explode"] = json!(false);
        }
        parameter["schema"] = schema;
        parameter
    }
}

/// The schema of any text.
pub(crate) fn string(_: &mut SchemaGenerator) -> Value {
    json!({ "type": "string" })
}

/// The schema of a moment.
pub(crate) fn moment(_: &mut SchemaGenerator) -> Value {
    json!({ "type": "string", "format": "date-time" })
}

/// The schema of a number that has a default.
pub(crate) fn number(least: i64, most: i64, default: i64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most, "default": default })
}
