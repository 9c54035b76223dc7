//! Earlier states of links as JSON, in `link_history.before` of both databases.

use std::num::NonZeroU64;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Destination, Link, Second};
use shortlink_core::plan::Plan;
use shortlink_core::target::Target;
use vocabulary::RedirectStatus;

/// Author of changes without an API key in the history.
pub(super) const NOBODY: &str = "keeper";

/// All of a link that can change, except its revision, which has a column. Members that a later
/// version adds must be optional: stored texts never change.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Past {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// The values of a link of a campaign, which it never leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters: Option<String>,
    redirect_status: u16,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forward_query: bool,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    valid_since: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    valid_until: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_visits: Option<NonZeroU64>,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused_at: Option<i64>,
    updated_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
}

impl Past {
    /// Extracts these members of a link.
    pub(super) fn of(link: &Link) -> Self {
        Self {
            target: link.destination.target().map(|it| it.as_str().to_owned()),
            parameters: link.destination.values().map(|it| it.as_str().to_owned()),
            redirect_status: link.redirect_status.code(),
            forward_query: link.forward_query,
            valid_since: link.valid_since.map(|second| second.get() as i64),
            valid_until: link.valid_until.map(|second| second.get() as i64),
            max_visits: link.max_visits,
            paused_at: link.paused_at.map(Timestamp::as_millisecond),
            updated_at: link.updated_at.as_millisecond(),
            domain: link.domain.clone(),
            external_id: link.external_id.clone(),
            note: link.note.clone(),
            tags: link.tags.clone(),
            plan: link.plan.as_ref().map(|it| it.text().to_owned()),
        }
    }

    /// Returns the text to store.
    pub(super) fn to_json(&self) -> String {
        // There is nothing in it that JSON can't hold.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a stored text.
    pub(super) fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the link at an earlier revision; `now` is its current state. `None` if the stored text is
    /// invalid.
    pub(super) fn link(self, now: &Link, revision: u64) -> Option<Link> {
        let second = |second: Option<i64>| match second {
            None => Some(None),
            Some(second) => Second::at(Timestamp::from_second(second).ok()?).map(Some),
        };
        let paused_at = match self.paused_at {
            None => None,
            Some(moment) => Some(Timestamp::from_millisecond(moment).ok()?),
        };
        let destination = match &now.destination {
            Destination::Target(_) => Destination::Target(Target::from_stored(self.target?)),
            Destination::Campaign { id, .. } => Destination::Campaign {
                id: *id,
                values: ParameterValues::from_stored(self.parameters?),
            },
        };
        Some(Link {
            code: now.code,
            plan: self
                .plan
                .and_then(|text| Plan::of_destination(text, &destination)),
            destination,
            redirect_status: RedirectStatus::from_code(self.redirect_status)?,
            forward_query: self.forward_query,
            revision,
            valid_since: second(self.valid_since)?,
            valid_until: second(self.valid_until)?,
            max_visits: self.max_visits,
            paused_at,
            // Revocation is final: a link before a change was not revoked.
            revoked_at: None,
            created_at: now.created_at,
            updated_at: Timestamp::from_millisecond(self.updated_at).ok()?,
            created_by: now.created_by.clone(),
            upload: now.upload,
            strategy: now.strategy,
            domain: self.domain,
            external_id: self.external_id,
            note: self.note,
            tags: self.tags,
        })
    }
}

#[cfg(test)]
mod tests {
    use shortlink_core::testing::{link, moment};
    use vocabulary::CampaignId;

    use super::*;

    #[test]
    fn a_link_is_read_as_it_was_and_what_was_kept_first_can_be_read() {
        let full = Link {
            forward_query: true,
            revision: 4,
            valid_since: Second::at(moment("2026-02-01T00:00:00Z")),
            valid_until: Second::at(moment("2026-03-01T00:00:00Z")),
            max_visits: NonZeroU64::new(7),
            paused_at: Some(moment("2026-01-02T00:00:00.123Z")),
            updated_at: moment("2026-01-02T00:00:00.123Z"),
            domain: Some("s.example.com".to_owned()),
            external_id: Some("order 7".to_owned()),
            note: Some("two\nlines \"quoted\"".to_owned()),
            tags: vec!["a".to_owned(), "ü".to_owned()],
            plan: Plan::of_link(
                "R25:d=i https://e.example/app".to_owned(),
                &Target::from_stored("https://example.com/a".to_owned()),
            ),
            ..link("abc")
        };
        let of_campaign = Link {
            destination: Destination::Campaign {
                id: CampaignId::FIRST,
                values: ParameterValues::from_stored("Wien&b%20c".to_owned()),
            },
            plan: None,
            ..full.clone()
        };
        for link in [link("abc"), full, of_campaign] {
            let json = Past::of(&link).to_json();
            let past = Past::from_json(&json).and_then(|past| past.link(&link, link.revision));
            assert_eq!(past, Some(link), "{json}");
        }
        let first = r#"{"target":"https://example.com/a","redirect_status":302,"updated_at":1767225600000}"#;
        let past = Past::from_json(first).and_then(|past| past.link(&link("abc"), 1));
        assert_eq!(past, Some(link("abc")));
    }
}
