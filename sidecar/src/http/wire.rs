//! Links as JSON.

use std::num::NonZeroU64;

use jiff::Timestamp;
use serde::Serialize;

use crate::domain::link::{Link, PastChange, Second, State};

/// A link as clients see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LinkBody {
    short_code: String,
    short_url: Option<String>,
    state: &'static str,
    #[serde(flatten)]
    settings: SettingsBody,
    revision: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    created_by: String,
    /// Whether Redis has confirmed this revision; only where it was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<bool>,
}

/// What can be said of a link.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SettingsBody {
    long_url: String,
    redirect_status: u16,
    forward_query: bool,
    valid_since: Option<Timestamp>,
    valid_until: Option<Timestamp>,
    /// Approximate, and ended by whoever counts visits.
    max_visits: Option<NonZeroU64>,
    tags: Vec<String>,
    external_id: Option<String>,
    note: Option<String>,
}

impl SettingsBody {
    fn new(link: &Link) -> Self {
        Self {
            long_url: link.target.as_str().to_owned(),
            redirect_status: link.redirect_status.code(),
            forward_query: link.forward_query,
            valid_since: link.valid_since.map(Second::moment),
            valid_until: link.valid_until.map(Second::moment),
            max_visits: link.max_visits,
            tags: link.tags.clone(),
            external_id: link.external_id.clone(),
            note: link.note.clone(),
        }
    }
}

impl LinkBody {
    /// Describes a link at a moment; `base` is what short URLs begin with.
    pub(super) fn new(link: &Link, now: Timestamp, base: Option<&str>) -> Self {
        Self {
            short_code: link.code.as_str().to_owned(),
            short_url: base.map(|base| format!("{base}/{}", link.code)),
            state: state_name(link.state(now)),
            settings: SettingsBody::new(link),
            revision: link.revision,
            created_at: link.created_at,
            updated_at: link.updated_at,
            created_by: link.created_by.clone(),
            published: None,
        }
    }

    /// Adds whether Redis has confirmed the link.
    pub(super) fn published(self, published: bool) -> Self {
        Self {
            published: Some(published),
            ..self
        }
    }
}

/// A page of a listing.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageBody {
    /// The links.
    pub(super) links: Vec<LinkBody>,
    /// Where the listing goes on; `None` at its end.
    pub(super) next_cursor: Option<String>,
}

/// A page of a link's history.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HistoryBody {
    /// The changes.
    pub(super) history: Vec<PastChangeBody>,
    /// Where the history goes on; `None` at its end.
    pub(super) next_cursor: Option<String>,
}

/// A change that a link has been through.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PastChangeBody {
    changed_at: Timestamp,
    changed_by: String,
    before: BeforeBody,
}

/// What a link was before a change.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BeforeBody {
    revision: u64,
    paused: bool,
    #[serde(flatten)]
    settings: SettingsBody,
    updated_at: Timestamp,
}

impl PastChangeBody {
    /// Describes a change.
    pub(super) fn new(change: &PastChange) -> Self {
        let before = &change.before;
        Self {
            changed_at: change.changed_at,
            changed_by: change.changed_by.clone(),
            before: BeforeBody {
                revision: before.revision,
                paused: before.paused_at.is_some(),
                settings: SettingsBody::new(before),
                updated_at: before.updated_at,
            },
        }
    }
}

/// The names of states, for messages that list what is allowed.
pub(super) const STATE_NAMES: &str = "live, scheduled, paused, expired, revoked";

/// Finds a state by its name.
pub(super) fn state_by_name(name: &str) -> Option<State> {
    [
        State::Live,
        State::Scheduled,
        State::Paused,
        State::Expired,
        State::Revoked,
    ]
    .into_iter()
    .find(|&state| state_name(state) == name)
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Live => "live",
        State::Scheduled => "scheduled",
        State::Paused => "paused",
        State::Expired => "expired",
        State::Revoked => "revoked",
    }
}
