//! Schemas of enumerations and of formatted texts.

use schemars::json_schema;

pub(crate) use shortlink_api::words::{
    CampaignId, CampaignState, Code, LinkState, LinkStrategy, RedirectStatus, Strategy, UploadId,
    Url, VisitClass, redirect_statuses,
};
use shortlink_api::words::{one_of, split, word};
use shortlink_core::bulk::{BulkAction, BulkState};
use shortlink_core::{ports, search};

word! {
    /// Action of a job for each of its links.
    pub(crate) JobAction: one_of(split(BulkAction::NAMES))
}

word! {
    /// State of a job. All but `running` are final.
    pub(crate) JobState: one_of(split(BulkState::NAMES))
}

word! {
    /// State of a short domain. New short URLs are on `active` domains; `serving` domains only redirect;
    /// `retired` ones do not.
    pub(crate) DomainState: one_of(split(vocabulary::domains::DomainState::NAMES))
}

word! {
    /// Member of a link that has the text.
    pub(crate) FoundBy: one_of(split(search::FoundBy::NAMES))
}

word! {
    /// Property by which visits are counted.
    pub(crate) Dimension: one_of(split(ports::Dimension::NAMES))
}

word! {
    /// Length of the intervals; days are those of `timezone`.
    pub(crate) Interval: one_of(["minute", "hour", "day"])
}

word! {
    /// `degraded`: the database takes no changes, or Redis is unavailable or its updates are overdue.
    /// `unavailable`: the database is unavailable.
    pub(crate) Readiness: one_of(["ready", "degraded", "unavailable"])
}

word! {
    /// `up` if the database responds and takes changes; `read-only` if it takes none.
    pub(crate) DatabaseState: one_of(["up", "read-only", "down"])
}

word! {
    /// `up` if the dependency responds.
    pub(crate) UpOrDown: one_of(["up", "down"])
}

word! {
    /// An API description in OpenAPI 3.1.
    pub(crate) Description: json_schema!({
        "type": "object",
        "required": ["openapi", "info", "paths", "components"],
    })
}

word! {
    /// `none` for a code without a check character.
    pub(crate) CheckCharacter: one_of(["valid", "wrong", "none"])
}
