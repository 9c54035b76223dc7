//! A reader of JSON objects that refuses a member that occurs twice, which other readers take from different places.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The reason a text is no JSON object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoObject {
    /// It is other JSON.
    #[error("must be a JSON object")]
    Other,
    /// It is not JSON, or a member occurs twice.
    #[error("is not valid JSON: {0}")]
    Malformed(String),
}

/// The byte order mark that some programs write before a text.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads an object, also behind a byte order mark.
///
/// # Errors
/// Fails if the text is something else, or an object in it has a member twice.
pub fn read_object(text: &[u8]) -> Result<Map<String, Value>, NoObject> {
    match serde_json::from_slice(text.strip_prefix(MARK).unwrap_or(text)) {
        Ok(Unique(Value::Object(members))) => Ok(members),
        Ok(_) => Err(NoObject::Other),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            let twice = error.is_data().then(|| error.to_string());
            let twice = twice
                .as_deref()
                .and_then(|text| text.rsplit_once(" at line "));
            let reason = twice.map_or(String::new(), |(reason, _)| format!("{reason}, "));
            Err(NoObject::Malformed(format!(
                "{reason}line {line}, column {column}"
            )))
        }
    }
}

/// A value whose objects have each member once.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the member {name} occurs twice")));
            }
            let Unique(value) = members.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_as_other_readers_do() {
        for text in [
            r#"{"a": [1, -2, 0.5, 1e300, "x\n", null, true, {"b": {}}], "c": "\u00e9"}"#,
            "{}",
            r#"{"": 18446744073709551615}"#,
        ] {
            let expected: Map<String, Value> = serde_json::from_str(text).expect("an object");
            assert_eq!(read_object(text.as_bytes()), Ok(expected.clone()));
            let marked = format!("\u{feff}{text}");
            assert_eq!(read_object(marked.as_bytes()), Ok(expected));
        }
    }

    #[test]
    fn a_text_that_is_no_object_is_refused_with_the_reason() {
        let malformed = |text: &str| NoObject::Malformed(text.to_owned());
        for (text, refused) in [
            ("[]", NoObject::Other),
            ("1", NoObject::Other),
            ("{\"a\":\n1,}", malformed("line 2, column 3")),
            ("{\"a\": 1", malformed("line 1, column 7")),
            ("", malformed("line 1, column 0")),
            (
                r#"{"a": 1, "a": 2}"#,
                malformed("the member a occurs twice, line 1, column 12"),
            ),
            (
                r#"{"b": [{"x at line 7": 1, "x at line 7": 2}]}"#,
                malformed("the member x at line 7 occurs twice, line 1, column 39"),
            ),
        ] {
            assert_eq!(read_object(text.as_bytes()), Err(refused), "{text}");
        }
    }
}
