//! Schemas of objects that are read member by member.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// The schema of a type, by its name.
pub fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// A schema that `null` fits as well.
pub fn or_null(mut schema: Value) -> Value {
    if schema.get("$ref").is_some() {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    }
    if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        choices.push(json!({ "type": "null" }));
    } else if let Some(kind) = schema["type"].as_str() {
        schema["type"] = json!([kind, "null"]);
    }
    schema
}

/// Declares a type that represents the schema of a request: its required members, and all members.
#[macro_export]
macro_rules! request {
    (
        $(#[doc = $text:literal])*
        $vis:vis $name:ident: $usage:ident, required $required:expr, of $($members:ty),+
    ) => {
        $(#[doc = $text])*
        $vis enum $name {}

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                use $crate::members::{Members, Usage, properties};

                let required: &[&str] = &$required;
                let tables = [$(<$members as Members>::MEMBERS),+];
                let mut schema = schemars::json_schema!({
                    "type": "object",
                    "description": concat!($($text),*).trim(),
                    "properties": properties(generator, Usage::$usage, &tables),
                    "additionalProperties": false,
                });
                if !required.is_empty() {
                    schema.insert("required".to_owned(), serde_json::json!(required));
                }
                schema
            }
        }
    };
}
pub use request;
