//! Schemas of types, by name.

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
