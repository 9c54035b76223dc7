//! Schemas of objects that are read member by member.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::members::{Member, Usage};

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

/// The schema of an object: its members, and the names of those that it requires.
pub fn object(
    generator: &mut SchemaGenerator,
    usage: Usage,
    tables: &[&[Member]],
    required: &[&str],
) -> Value {
    let members = tables.iter().copied().flatten();
    let schema = |member: &Member| (member.name.to_owned(), member.schema(generator, usage));
    let properties: Map<String, Value> = members.map(schema).collect();
    let mut schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
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
                use $crate::members::{Members, Usage};

                let tables = [$(<$members as Members>::MEMBERS),+];
                let schema = $crate::schema::object(generator, Usage::$usage, &tables, &$required);
                let about = concat!($($text),*).trim();
                let mut schema = schemars::Schema::try_from(schema).unwrap_or_default();
                schema.insert("description".to_owned(), about.into());
                schema
            }
        }
    };
}
pub use request;
