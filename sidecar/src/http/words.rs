//! Schemas of enumerations and of formatted texts.

use schemars::json_schema;

pub(in crate::http) use crate::api::words::{
    CampaignId, CampaignState, Code, LinkState, RedirectStatus, Strategy, Url, redirect_statuses,
};
use crate::api::words::{one_of, split, word};
use crate::core::ports;
use crate::core::visit::class::Class;

/// The prefix of identifiers of problems.
pub(in crate::http) const TYPE_PREFIX: &str = "urn:shortlink:problem:";

/// All problems, by the last part of their type.
pub(in crate::http) const PROBLEMS: [&str; 23] = [
    "batch-too-large",
    "expired",
    "forbidden",
    "forgotten",
    "idempotency-key-reused",
    "internal",
    "last-admin",
    "malformed",
    "method-not-allowed",
    "not-found",
    "not-from-console",
    "not-json",
    "not-rows",
    "other-revision",
    "query",
    "rate-limited",
    "revoked",
    "rotated",
    "taken",
    "too-large",
    "unauthorized",
    "unavailable",
    "validation",
];

word! {
    /// Class of a visit: the kind of its client.
    pub(in crate::http) VisitClass: one_of(split(Class::NAMES))
}

word! {
    /// State of a short domain. New short URLs are on `active` domains; `serving` domains only redirect;
    /// `retired` ones do not.
    pub(in crate::http) DomainState: one_of(split(vocabulary::domains::DomainState::NAMES))
}

word! {
    /// Property by which visits are counted.
    pub(in crate::http) Dimension: one_of(split(ports::Dimension::NAMES))
}

word! {
    /// Length of the intervals; days are days in UTC.
    pub(in crate::http) Interval: one_of(["hour", "day"])
}

word! {
    /// `degraded`: Redis is unavailable or its updates are overdue. `unavailable`: the database is
    /// unavailable.
    pub(in crate::http) Readiness: one_of(["ready", "degraded", "unavailable"])
}

word! {
    /// `up` if the dependency responds.
    pub(in crate::http) UpOrDown: one_of(["up", "down"])
}

word! {
    /// Identifier of a problem.
    pub(in crate::http) ProblemType: {
        let types: Vec<String> = PROBLEMS.iter().map(|name| format!("{TYPE_PREFIX}{name}")).collect();
        json_schema!({ "type": "string", "format": "uri", "enum": types })
    }
}

word! {
    /// An API description in OpenAPI 3.1.
    pub(in crate::http) Description: json_schema!({
        "type": "object",
        "required": ["openapi", "info", "paths", "components"],
    })
}
