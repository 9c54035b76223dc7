//! What both stores keep as text in one column: lists of words, tags, and what became of the rows of
//! a request.

use serde_json::Value;

use crate::core::ports::RowOutcome;
use crate::store::shared::invalid;

/// Joins words with spaces, which none of them contains.
pub(super) fn joined(words: impl IntoIterator<Item = impl ToString>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| word.to_string()).collect();
    words.join(" ")
}

/// What stands with a link that has these tags; nothing for none.
pub(super) fn of_tags(tags: &[String]) -> Option<String> {
    if tags.is_empty() {
        return None;
    }
    Some(Value::from(tags).to_string())
}

/// The tags that stand with a link.
pub(super) fn to_tags(column: Option<&str>) -> Result<Vec<String>, sqlx::Error> {
    let Some(text) = column else {
        return Ok(Vec::new());
    };
    serde_json::from_str(text).map_err(|_error| invalid("links", "tags"))
}

/// What stands with a chunk of a request whose rows have become this.
pub(super) fn of_outcomes(rows: &[RowOutcome]) -> String {
    let rows = rows.iter().map(|row| match row {
        RowOutcome::Link(code) => Value::from(code.as_str()),
        RowOutcome::Problem(problem) => Value::from(vec![problem.as_str()]),
        RowOutcome::Pending => Value::Null,
    });
    Value::from_iter(rows).to_string()
}

/// What has become of the rows of a chunk; `None` when what stands there can't be.
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
