//! API keys as JSON.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::key::KeyBody;
use crate::core::api_key::ApiKey;

/// A new key, with the text that it is presented with.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyWithSecret")]
pub(in crate::http) struct SecretBody {
    #[serde(flatten)]
    key: KeyBody,
    /// What it is presented with. Told this once.
    secret: String,
    /// The key that it was rotated from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "KeyBody")]
    predecessor: Option<KeyBody>,
}

impl SecretBody {
    /// Describes a new key.
    pub(super) fn new(key: &ApiKey, secret: String, now: Timestamp) -> Self {
        Self {
            key: KeyBody::new(key, now),
            secret,
            predecessor: None,
        }
    }

    /// Adds the key that it was rotated from.
    pub(super) fn with_predecessor(self, predecessor: &ApiKey, now: Timestamp) -> Self {
        Self {
            predecessor: Some(KeyBody::new(predecessor, now)),
            ..self
        }
    }
}

/// A page of the listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyPage")]
pub(in crate::http) struct PageBody {
    /// The keys.
    pub(super) keys: Vec<KeyBody>,
    /// Where the listing goes on; `None` at its end.
    pub(super) next_cursor: Option<String>,
}
