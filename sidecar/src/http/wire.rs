//! Links as JSON.

use jiff::Timestamp;
use serde::Serialize;

use crate::domain::link::{Link, State};

/// A link as clients see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LinkBody {
    short_code: String,
    short_url: Option<String>,
    long_url: String,
    redirect_status: u16,
    state: &'static str,
    valid_until: Option<Timestamp>,
    revision: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Whether Redis has confirmed this revision; only where it was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<bool>,
}

impl LinkBody {
    /// Describes a link at a moment; `base` is what short URLs begin with.
    pub(super) fn new(link: &Link, now: Timestamp, base: Option<&str>) -> Self {
        Self {
            short_code: link.code.as_str().to_owned(),
            short_url: base.map(|base| format!("{base}/{}", link.code)),
            redirect_status: link.redirect_status.code(),
            state: state_name(link.state(now)),
            valid_until: link.expires_at.map(|expiry| expiry.moment()),
            revision: link.revision,
            created_at: link.created_at,
            updated_at: link.updated_at,
            long_url: link.target.as_str().to_owned(),
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

/// Finds a state by its name.
pub(super) fn state_by_name(name: &str) -> Option<State> {
    [State::Live, State::Expired, State::Revoked]
        .into_iter()
        .find(|&state| state_name(state) == name)
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Live => "live",
        State::Expired => "expired",
        State::Revoked => "revoked",
    }
}
