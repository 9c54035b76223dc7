//! `ETag` and `If-Match`: make a change conditional on the revision that the caller has read.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use serde_json::json;
use shortlink_core::link::{Expected, Link};

use super::app::SharedApp;
use super::operation::parameter::parameters;
use super::operation::{Operation, Taken};
use super::problem::Problem;

parameters! {
    IF_MATCH: header "If-Match", "IfMatch",
        "ETags of the revisions that may be changed, separated by commas; * stands for any revision.",
        |_| json!({ "type": "string", "pattern": r#"^(\*|(W/)?"[0-9]*"(, ?(W/)?"[0-9]*")*)$"# });
}

/// The tag of a link's present revision.
pub(super) fn etag(link: &Link) -> HeaderValue {
    // Digits between quotes are always a valid value.
    HeaderValue::try_from(format!("\"{}\"", link.revision))
        .unwrap_or_else(|_error| HeaderValue::from_static("\"\""))
}

/// The revisions that a request expects.
pub(super) struct IfMatch(pub(super) Expected);

impl FromRequestParts<SharedApp> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _app: &SharedApp) -> Result<Self, Problem> {
        expected(&parts.headers).map(Self).ok_or_else(bad_tags)
    }
}

impl Taken for IfMatch {
    fn describe(operation: Operation) -> Operation {
        let other = Problem::other_revision(2);
        operation.takes(&[IF_MATCH]).problems([bad_tags(), other])
    }
}

fn bad_tags() -> Problem {
    Problem::malformed("If-Match must be * or a list of tags, each between double quotes.")
}

/// Reads `If-Match` from all its lines; `None` if it is malformed. A weak tag, or one that no link
/// can have, is like that of another revision.
fn expected(headers: &HeaderMap) -> Option<Expected> {
    let mut tags: Option<Vec<u64>> = None;
    for line in headers.get_all(IF_MATCH.name) {
        let line = line.to_str().ok()?.trim();
        if line == "*" {
            return Some(Expected::Any);
        }
        let tags = tags.get_or_insert_default();
        for tag in line.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            let weak = tag.strip_prefix("W/");
            let text = weak.unwrap_or(tag).strip_prefix('"')?.strip_suffix('"')?;
            if weak.is_none()
                && let Ok(revision) = text.parse()
            {
                tags.push(revision);
            }
        }
    }
    Some(tags.map_or(Expected::Any, Expected::OneOf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_from_all_lines() {
        let one_of = |revisions: &[u64]| Some(Expected::OneOf(revisions.to_vec()));
        for (lines, read) in [
            (&[][..], Some(Expected::Any)),
            (&["*"], Some(Expected::Any)),
            (&["\"1\""], one_of(&[1])),
            (&["\"1\", \"2\"", "\"3\""], one_of(&[1, 2, 3])),
            (&["W/\"1\",\"abc\", \"\""], one_of(&[])),
            (&[""], one_of(&[])),
            (&["1"], None),
            (&["\"1"], None),
            (&["\""], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(IF_MATCH.name, HeaderValue::from_static(line));
            }
            assert_eq!(expected(&headers), read, "{lines:?}");
        }
    }
}
