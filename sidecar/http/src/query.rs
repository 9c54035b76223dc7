//! Parameters and pagination that all listings share.

use jiff::Timestamp;
use serde_json::json;
use shortlink_core::visit::class::Class;
use vocabulary::Code;

use super::operation::parameter::{self, Parameter, number, of, parameters, string};
use super::problem::Problem;
use super::words;

/// The default and the maximum number of items on a page.
pub(super) const DEFAULT_LIMIT: u32 = 50;
pub(super) const MAX_LIMIT: u32 = 1000;

parameters! {
    pub(super) LIMIT: query "limit", "Limit", "Maximum number of items on a page.",
        |_| number(1, MAX_LIMIT.into(), DEFAULT_LIMIT.into());
    pub(super) CURSOR: query "cursor", "Cursor",
        "Cursor of the page: the nextCursor of an earlier answer. Default: the first page.",
        |_| json!({ "type": "string", "pattern": "^[-0-9A-Za-z_]+$" });
    pub(super) SINCE: query "since", "Since",
        "Start of the period. Statistics begin seven days before their end by default, and at most \
         800 days before it.", parameter::moment;
    pub(super) UNTIL: query "until", "Until",
        "End of the period, which is not part of it. Default: now.", parameter::moment;
    pub(super) CLASS: query "class", "Class", "Only visits of this class.", of::<words::VisitClass>;
    pub(super) OF_CODE: query "code", "OfCode", "Only visits of this link.", of::<words::Code>;
    pub(super) EXTERNAL_ID: query "externalId", "ExternalId",
        "Only links with this id of yours.", string;
    pub(super) OF_CAMPAIGN: query "campaignId", "OfCampaign",
        "Only links of this campaign.", of::<words::CampaignId>;
}

/// Refuses every parameter but these.
pub(super) fn only(parameters: &[Parameter]) -> Problem {
    let names: Vec<&str> = parameters.iter().map(|it| it.name).collect();
    Problem::query(match &names[..] {
        [first @ .., last] if !first.is_empty() => {
            let first = first.join(", ");
            format!("There are only the parameters {first} and {last}.")
        }
        names => format!("There is only the parameter {}.", names.concat()),
    })
}

/// Parses the number of items on a page.
pub(super) fn limit(value: &str) -> Result<u32, Problem> {
    let limit = value.parse().ok();
    limit
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| Problem::query(format!("limit must be a number from 1 to {MAX_LIMIT}.")))
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

/// Cuts a page off `items`, which have one more item than a page if there is another page. In that
/// case, returns the last item of the page.
pub(super) fn page<T>(items: &mut Vec<T>, limit: u32) -> Option<&T> {
    let length = limit as usize;
    if items.len() <= length {
        return None;
    }
    items.truncate(length);
    items.last()
}
