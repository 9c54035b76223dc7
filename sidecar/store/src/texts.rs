//! Values that both stores store as text in one column: lists of words, tags, and the outcomes of a
//! request's rows.

use serde_json::Value;
use shortlink_core::ports::RowOutcome;

use crate::value::invalid;

/// Joins words with spaces, which none of them contains.
pub(super) fn joined(words: impl IntoIterator<Item = impl ToString>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| word.to_string()).collect();
    words.join(" ")
}

/// Returns the text for a link's tags; `None` for no tags.
pub(super) fn of_tags(tags: &[String]) -> Option<String> {
    if tags.is_empty() {
        return None;
    }
    Some(Value::from(tags).to_string())
}

/// Parses the tags of a link.
pub(super) fn to_tags(column: Option<&str>) -> Result<Vec<String>, sqlx::Error> {
    let Some(text) = column else {
        return Ok(Vec::new());
    };
    serde_json::from_str(text).map_err(|_error| invalid("tags"))
}

/// Returns the text for the outcomes of a chunk's rows.
pub(super) fn of_outcomes(rows: &[RowOutcome]) -> String {
    let rows = rows.iter().map(|row| match row {
        RowOutcome::Link(code) => Value::from(code.as_str()),
        RowOutcome::Problem(problem) => Value::from(vec![problem.as_str()]),
        RowOutcome::Pending => Value::Null,
    });
    Value::from_iter(rows).to_string()
}

/// Parses the outcomes of a chunk's rows; `None` if the text is invalid.
pub(super) fn to_outcomes(text: &str) -> Option<Vec<RowOutcome>> {
    let rows: Vec<Value> = serde_json::from_str(text).ok()?;
    let rows = rows.into_iter().map(|row| match row {
        Value::String(code) => code.parse().ok().map(RowOutcome::Link),
        Value::Array(problem) => Some(RowOutcome::Problem(problem.first()?.as_str()?.to_owned())),
        Value::Null => Some(RowOutcome::Pending),
        _ => None,
    });
    rows.collect()
}
