//! A person: a user of the console who signs in at a provider of OpenID Connect.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_core::api_key::{self, ApiKey, Role};

use super::words;

/// A person in an answer.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Person")]
pub struct PersonBody {
    /// Id of the person, where other answers have the id of an API key.
    id: String,
    /// Name of the person at the last sign-in; like all members, from the provider.
    name: String,
    email: Option<String>,
    /// Role of the person; `null` if their groups gave none.
    #[schemars(with = "Option<words::Role>")]
    role: Option<&'static str>,
    #[schemars(with = "Vec<words::Scope>")]
    scopes: Vec<api_key::Scope>,
    #[schemars(with = "words::PersonState")]
    state: &'static str,
    /// Number of current sessions; only in answers to reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub sessions: Option<u64>,
    /// Provider of the person.
    issuer: String,
    /// Name of the person at the provider, which never changes.
    subject: String,
    created_at: Timestamp,
    signed_in_at: Timestamp,
    blocked_at: Option<Timestamp>,
}

impl PersonBody {
    /// Describes a person; `None` for an API key that is none.
    pub fn new(key: &ApiKey) -> Option<Self> {
        let person = key.person.as_deref()?;
        Some(Self {
            id: key.id.clone(),
            name: key.name.clone(),
            email: person.email.clone(),
            role: person.role.map(Role::name),
            scopes: key.scopes.clone(),
            state: key.person_state().name(),
            sessions: None,
            issuer: person.issuer.clone(),
            subject: person.subject.clone(),
            created_at: key.created_at,
            signed_in_at: person.signed_in_at,
            blocked_at: key.revoked_at,
        })
    }
}
