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
    /// Who or what a visit was by.
    pub(in crate::http) VisitClass: one_of(split(Class::NAMES))
}

word! {
    /// `active` domains are put into new short URLs, `serving` ones follow links, `retired` ones do not.
    pub(in crate::http) DomainState: one_of(split(vocabulary::domains::DomainState::NAMES))
}

word! {
    /// What visits can have in common.
    pub(in crate::http) Dimension: one_of(split(ports::Dimension::NAMES))
}

word! {
    /// How long the intervals are; days are those of UTC.
    pub(in crate::http) Interval: one_of(["hour", "day"])
}

word! {
    /// `degraded` without Redis, or while links wait to be told to it.
    pub(in crate::http) Readiness: one_of(["ready", "degraded", "unavailable"])
}

word! {
    /// Whether it answers.
    pub(in crate::http) UpOrDown: one_of(["up", "down"])
}

word! {
    /// Which problem it is.
    pub(in crate::http) ProblemType: {
        let types: Vec<String> = PROBLEMS.iter().map(|name| format!("{TYPE_PREFIX}{name}")).collect();
        json_schema!({ "type": "string", "format": "uri", "enum": types })
    }
}

word! {
    /// A description as OpenAPI 3.1 has it.
    pub(in crate::http) Description: json_schema!({
        "type": "object",
        "required": ["openapi", "info", "paths", "components"],
    })
}
