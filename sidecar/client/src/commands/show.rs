//! Answers as text.

use serde_json::Value;

use crate::Failure;
use crate::output::thousands;

/// The columns of a table: their heads, and the places of their values.
pub(super) type Table<const N: usize> = [(&'static str, &'static str); N];

/// An answer as JSON.
pub(super) fn parse(answer: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(answer).map_err(|error| {
        let error = anyhow::Error::new(error);
        Failure::Other(error.context("the service's answer is not JSON"))
    })
}

/// Some members of an object, a line each. Absent and empty members have no line.
pub(super) fn block(value: &Value, members: &[(&str, &str)]) -> String {
    let found: Vec<(&str, String)> = members
        .iter()
        .filter_map(|(label, pointer)| {
            let member = value.pointer(pointer)?;
            let is_empty = match member {
                Value::Null => true,
                Value::Array(elements) => elements.is_empty(),
                Value::Object(members) => members.is_empty(),
                _ => false,
            };
            (!is_empty).then(|| (*label, cell(member)))
        })
        .collect();
    let width = found.iter().map(|(label, _)| label.len()).max();
    let width = width.unwrap_or_default();
    let lines = found.iter();
    lines
        .map(|(label, text)| format!("{label:<width$}  {text}\n"))
        .collect()
}

/// A member of an object for a table.
pub(super) fn member(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).map_or("-".to_owned(), cell)
}

/// The heads of a table.
pub(super) fn heads<const N: usize>(table: &Table<N>) -> [&'static str; N] {
    table.map(|(head, _)| head)
}

/// The cells of a row of a table.
pub(super) fn cells<const N: usize>(row: &Value, table: &Table<N>) -> [String; N] {
    table.map(|(_, place)| {
        let cell = member(row, place);
        let is_moment = place.ends_with("At") || place.ends_with("begin");
        if is_moment { second(&cell) } else { cell }
    })
}

/// A moment without parts of a second.
pub(super) fn second(moment: &str) -> String {
    match moment.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => moment.to_owned(),
    }
}

/// The elements of a member that is an array; none where it is not.
pub(super) fn elements<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    let found = value.get(name).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// A number with separators; `-` without one.
pub(super) fn number(value: &Value) -> String {
    value.as_u64().map_or("-".to_owned(), thousands)
}

/// A rate as a percentage; `-` without one.
pub(super) fn percent(rate: &Value) -> String {
    let rate = rate.as_f64();
    rate.map_or("-".to_owned(), |rate| format!("{:.1}%", rate * 100.0))
}

/// A value in a line.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => plain(text),
        // Brackets separate the objects of a list, such as rules.
        Value::Array(elements) if elements.iter().any(Value::is_object) => {
            plain(&value.to_string())
        }
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(cell).collect();
            elements.join(", ")
        }
        Value::Object(members) => {
            let members = members.iter();
            let members: Vec<String> = members
                .map(|(name, value)| format!("{}={}", plain(name), cell(value)))
                .collect();
            members.join(", ")
        }
    }
}

/// A text that does nothing to a terminal but be seen: others have written it.
pub(super) fn plain(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            seen.extend(character.escape_default());
        } else {
            seen.push(character);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_block_has_a_line_for_each_member_that_is_there() {
        let value = json!({
            "a": "one\u{1b}[31m\n", "b": {"c": 2, "d": null}, "e": [], "f": null, "g": ["x", "y"],
            "h": true,
        });
        let members = [
            ("first", "/a"),
            ("2", "/b/c"),
            ("3", "/e"),
            ("4", "/f"),
            ("5", "/none"),
            ("list", "/g"),
            ("whole", "/b"),
            ("so", "/h"),
        ];
        let text = "first  one\\u{1b}[31m\\n\n2      2\nlist   x, y\nwhole  c=2, d=-\nso     yes\n";
        assert_eq!(block(&value, &members), text);
    }
    #[test]
    fn moments_are_shown_by_the_second() {
        assert_eq!(second("2026-01-02T03:04:05.678Z"), "2026-01-02T03:04:05Z");
        assert_eq!(second("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05Z");
        assert_eq!(second("-"), "-");
    }
}
