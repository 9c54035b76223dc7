//! What all listings share.

use jiff::Timestamp;
use vocabulary::Code;

use super::problem::Problem;
use crate::core::visit::class::Class;

/// How many items a page has, unless the client says otherwise, and at most.
pub(super) const DEFAULT_LIMIT: u32 = 50;
pub(super) const MAX_LIMIT: u32 = 1000;

/// Reads how many items a page is to have.
pub(super) fn limit(value: &str) -> Result<u32, Problem> {
    let limit = value.parse().ok();
    limit
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| Problem::query(format!("limit must be a number from 1 to {MAX_LIMIT}.")))
}

/// Reads a cursor with `decode`.
pub(super) fn cursor<T>(value: &str, decode: impl Fn(&str) -> Option<T>) -> Result<T, Problem> {
    decode(value).ok_or_else(Problem::cursor)
}

/// Reads a moment.
pub(super) fn moment(name: &str, value: &str) -> Result<Timestamp, Problem> {
    value.parse().map_err(|_error| {
        Problem::query(format!(
            "{name} must be a date and time like 2030-12-31T23:59:59Z."
        ))
    })
}

/// Reads a class of visits.
pub(super) fn class(value: &str) -> Result<Class, Problem> {
    Class::by_name(value)
        .ok_or_else(|| Problem::query(format!("class must be one of {}.", Class::NAMES)))
}

/// Reads a code.
pub(super) fn code(value: &str) -> Result<Code, Problem> {
    Code::parse(value.as_bytes()).map_err(|_error| Problem::query("code must be a link's code."))
}

/// Cuts a page off what was read, which is one item more than a page if there is another one.
/// Answers with the last item of the page then.
pub(super) fn page<T>(items: &mut Vec<T>, limit: u32) -> Option<&T> {
    let length = limit as usize;
    if items.len() <= length {
        return None;
    }
    items.truncate(length);
    items.last()
}
